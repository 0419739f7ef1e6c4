"""The fault lab: what it plans, and that a run of it tells nothing of the fault but what happened."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import papermill
import pytest

from workbench.errors import UnknownParameterError
from workbench.findings.diagnosis import diagnose
from workbench.findings.finding import CAUSES, Culprit, Finding, Steps
from workbench.findings.lab_truth import compared, faults
from workbench.probes import lab
from workbench.probes.lab import FAULTS, HEALTHY, main, planned, run_lab
from workbench.probes.lab_training import recorded_config
from workbench.processes import Outcome

EXPLORE = Path(__file__).parents[2] / "notebooks" / "explore"


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


def test_the_command_line_leaves_a_directory_with_files_alone_and_says_so(tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert main([str(tmp_path), "--fault", "bad_batch"]) == 2
    assert "is not empty.\nFix: name a new directory" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_the_command_line_starts_as_many_ranks_as_the_fault_needs(tmp_path, capsys, monkeypatch):
    started = []
    monkeypatch.setattr(lab, "run_child", lambda command, **_: started.append(command) or Outcome(0, [], 0.0))
    assert main([str(tmp_path / "run"), "--fault", "slow_rank"]) == 0
    assert "--worker_num=2" in started[0]
    assert f"workbench diagnose {tmp_path / 'run'}" in capsys.readouterr().out


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


def finding(cause, severity="warning", *, first=None, listed=None, **culprit):
    steps = Steps(first=first, list=listed)
    return Finding(cause=cause, severity=severity, confidence="high", title="", fix="", playbook="T1", source="",
                   steps=steps, culprit=Culprit(**culprit))  # fmt: skip


def agreed(fault, plan, *findings):
    return dict(compared(fault, plan, findings).set_index("what")["agrees"])


def test_a_diagnosis_is_compared_by_cause_place_and_onset():
    plan = planned("schedule_runs_out", 1)  # from step 80 on, within 10 steps
    assert plan.onset == 80
    assert agreed("schedule_runs_out", plan, finding("lr_schedule_error", first=90)) == {
        "cause": True, "first step": True
    }  # fmt: skip
    assert agreed("schedule_runs_out", plan, finding("lr_schedule_error", first=91)) == {
        "cause": True,
        "first step": False,
    }
    assert agreed("schedule_runs_out", plan, finding("bad_batch", first=80)) == {"cause": False, "first step": True}
    assert agreed("schedule_runs_out", plan, finding("lr_schedule_error", "info", first=80)) == {"cause": False}
    late = finding("slow_rank", rank=0)
    slow = planned("slow_rank", 1)
    assert agreed("slow_rank", slow, late) == {"cause": True, "rank": slow.rank == 0}


def test_a_healthy_training_agrees_with_silence_alone():
    plan = planned("plain", 1)
    assert agreed("plain", plan, finding("stall_steps", "info")) == {"cause": True}
    assert agreed("plain", plan, finding("stall_steps")) == {"cause": False}


def test_the_list_of_faults_names_all():
    assert set(faults().index) == {*FAULTS, *HEALTHY}


@pytest.mark.mindspore
@pytest.mark.slow
def test_the_notebook_trains_and_finds_the_fault(tmp_path):
    done = papermill.execute_notebook(
        str(EXPLORE / "fault_lab.ipynb"), str(tmp_path / "out.ipynb"), cwd=str(EXPLORE), progress_bar=False,
        parameters={"fault": "bad_batch", "seed": 4, "folder": str(tmp_path / "runs")},
    )  # fmt: skip
    code = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    assert "bad_batch" in code[-2].outputs[0].data["text/plain"]
    assert "False" not in code[-1].outputs[0].data["text/plain"]
    assert sum("image/svg+xml" in o.get("data", {}) for c in code for o in c.outputs) == 4


def test_an_interrupted_command_says_so(monkeypatch, capsys, tmp_path):
    def stop(*_arguments, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "run_lab", stop)
    assert main([str(tmp_path / "run"), "--fault", "lr_too_high"]) == 130
    assert capsys.readouterr().err.startswith("Interrupted")


def test_without_mindspore_the_lab_says_what_to_install(tmp_path):
    block = """
        import sys

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "mindspore":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Blocked())
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(block))
    repository = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(repository)])}
    command = [sys.executable, "-m", "workbench.probes.lab", str(tmp_path / "run"), "--fault", "small_ops"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "The fault lab needs MindSpore, which is not installed.",
        "Fix: pip install 'mindspore-workbench[mindspore]'",
    ]
    assert not (tmp_path / "run").exists()
