import pytest

import workbench as wb
from tests.analyses.test_cross_layer import CASES, training
from tests.made_run import made_steps, write_run
from workbench.findings.catalogue import find_cross_layer
from workbench.tables import TRAINING_STEPS

CAUSES = {"optimizer, learning rate": "loss_spike", "data": "loss_spike", "data pipeline": "step_time_drift",
          "communication, devices": "step_time_drift"}  # fmt: skip


@pytest.mark.parametrize("points_at", CASES)
def test_a_reading_is_told_of_the_cause_that_its_signal_names(points_at):
    found = find_cross_layer(training(1, **CASES[points_at]))
    if points_at not in CAUSES:
        assert found == []
        return
    assert [(f.cause, f.severity, f.evidence[0].value) for f in found] == [(CAUSES[points_at], "info", points_at)]


def test_level_and_empty_trainings_say_nothing():
    assert find_cross_layer(made_steps(300)) == []
    assert find_cross_layer(TRAINING_STEPS.empty()) == []


def test_the_diagnosis_tells_it_as_evidence_of_the_jump(tmp_path):
    run = write_run(tmp_path / "run", training(1, **CASES["optimizer, learning rate"]))
    spikes = [f for f in wb.diagnose(run).causes if f.cause == "loss_spike"]
    assert len(spikes) == 1
    assert any("layers together" in e.fact for e in spikes[0].evidence)
