"""The fault lab: what it plans, and that a run of it tells nothing of the fault but what happened."""

import json

import pytest

from workbench.errors import UnknownParameterError
from workbench.findings.diagnosis import diagnose
from workbench.findings.finding import CAUSES
from workbench.probes.lab import FAULTS, HEALTHY, planned, run_lab
from workbench.probes.lab_training import recorded_config


@pytest.mark.parametrize("name", [*FAULTS, *HEALTHY])
def test_a_plan_depends_on_its_name_and_seed_alone(name):
    assert planned(name, 3) == planned(name, 3)
    assert planned(name, 3).training.seed == 3


def test_no_healthy_variant_has_the_name_of_a_fault():
    assert not FAULTS.keys() & HEALTHY.keys()


def test_seeds_move_the_faults():
    assert len({planned("resume_restarts_schedule", seed).onset for seed in range(8)}) > 3


def test_causes_are_words_of_the_catalogue():
    assert {fault.cause for fault in FAULTS.values()} <= CAUSES.keys()


def test_an_unknown_fault_names_those_that_exist():
    with pytest.raises(UnknownParameterError, match="lr_too_high"):
        planned("no_such_fault", 1)


def test_a_directory_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UnknownParameterError, match="not empty"):
        run_lab(tmp_path, "plain")


def test_the_recorded_configuration_is_that_of_the_plan_not_of_the_mistake():
    healthy = recorded_config(planned("plain", 1).training)
    for fault in ("schedule_runs_out", "resume_restarts_schedule", "duplicate_data", "memory_leak", "bad_batch"):
        assert recorded_config(planned(fault, 1).training) == healthy


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_real_fault_and_its_diagnosis(tmp_path):
    plan = run_lab(tmp_path / "run", "schedule_runs_out", seed=2)
    info = json.loads((tmp_path / "run/run.json").read_text())
    assert "speed" not in json.dumps(info["config"])
    first = diagnose(tmp_path / "run").causes[0]
    assert first.cause == "lr_schedule_error"
    assert abs(first.steps.first - plan.onset) <= FAULTS["schedule_runs_out"].onset_tolerance
