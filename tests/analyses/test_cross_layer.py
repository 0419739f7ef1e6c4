import numpy as np
import pandas as pd
import pytest

from tests.made_run import made_steps
from workbench.analyses.cross_layer import READINGS, cross_layer_readings, signal_blocks
from workbench.metrics import METRICS
from workbench.tables import TRAINING_STEPS


def training(seed=0, **changes):
    steps = made_steps(600, seed=seed)
    late = steps["step"].between(400, 460)
    for column, change in changes.items():
        steps[column] = steps[column].where(~late, change(steps[column]))
    return steps


CASES = {
    "optimizer, learning rate": {"loss": lambda x: x + 3, "gradient_norm": lambda x: x * 30},
    "data": {"loss": lambda x: x + 3},
    "optimizer, precision": {"gradient_norm": lambda x: x * 30},
    "data pipeline": {"step_us": lambda x: x + 80_000, "data_wait_us": lambda x: x + 80_000},
    "communication, devices": {"step_us": lambda x: x + 80_000},
    "checkpoint saving, inline evaluation": {"callbacks_us": lambda x: x + 60_000},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("points_at", CASES)
def test_a_combination_of_signals_points_at_its_subsystem(points_at, seed):
    found = cross_layer_readings(training(seed, **CASES[points_at]))
    assert found.points_at.unique().tolist() == [points_at]
    assert found.first_step.min() <= 430
    assert found.last_step.max() >= 400
    assert found.first_step.min() > 340


@pytest.mark.parametrize("seed", range(5))
def test_a_level_training_says_nothing(seed):
    assert cross_layer_readings(training(seed)).empty


def test_every_reading_speaks_of_the_catalogue_and_points_at_what_its_metrics_point_at():
    for reading in READINGS:
        assert set(reading.signals) <= set(METRICS)
        assert reading.points_at


def test_too_little_and_nothing_recorded_is_empty():
    assert cross_layer_readings(TRAINING_STEPS.empty()).empty
    assert cross_layer_readings(TRAINING_STEPS.check(made_steps(15))).empty
    bare = TRAINING_STEPS.check(pd.DataFrame({"rank_id": 0, "step": np.arange(1, 99), "loss": 2.0}))
    assert set(signal_blocks(bare).signal) == {"training_loss"}
