import numpy as np
import pandas as pd
import pytest

from workbench.analyses.curves import group_ratio_curve, step_time_histogram, throughput_curve
from workbench.tables import PARAMETER_GROUPS, TRAINING_STEPS


def steps(step_us, **columns):
    frame = pd.DataFrame({"rank_id": 0, "step_us": np.asarray(step_us, dtype=float)}).assign(**columns)
    return frame.assign(step=range(1, len(frame) + 1))


def test_histogram_counts_every_steady_step():
    found = step_time_histogram(steps([900.0, 800.0, *range(100, 200), 5000.0]), bins=10)
    assert found.steps.sum() == 101  # without two warm-up steps
    assert found.low_us.iloc[0] == 100
    assert found.high_us.iloc[-1] < 5000


def test_histogram_of_equal_and_of_no_steps():
    assert step_time_histogram(steps([100.0] * 5)).steps.sum() == 3
    assert step_time_histogram(TRAINING_STEPS.empty()).empty


def test_throughput_per_bin_by_hand():
    both = pd.concat([steps([1e6, 1e6, 2e6, 2e6], tokens=100.0), steps([2e6, 2e6, 2e6, 2e6], tokens=100.0, rank_id=1)])
    found = throughput_curve(both, bins=2)
    assert found.step.tolist() == [1, 3]
    assert found.tokens_per_s.tolist() == pytest.approx([2 * 200 / 4, 2 * 200 / 4])  # the slowest rank's 2 s a step


def test_throughput_without_tokens_is_empty():
    assert throughput_curve(steps([1e6, 1e6])).empty


def test_group_ratios_are_binned_by_median_in_natural_order():
    groups = pd.DataFrame({"rank_id": 0, "step": [1, 2, 3, 1], "group": ["b.10", "b.10", "b.10", "b.2"],
                           "gradient_parameter_ratio": [1.0, 3.0, 5.0, 7.0]})  # fmt: skip
    found = group_ratio_curve(groups, bins=2)
    assert found.to_dict("list") == {"step": [1, 1, 3], "group": ["b.2", "b.10", "b.10"],
                                     "gradient_parameter_ratio": [7.0, 2.0, 5.0]}  # fmt: skip
    assert group_ratio_curve(PARAMETER_GROUPS.empty()).empty
