"""The playbooks under papermill: the cause on the faulty sample, the proof of the fix, and a healthy run cleared."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from playbooks import HEALTHY, OTHERS

from workbench.findings.checks import conclude, examine
from workbench.findings.playbooks import PLAYBOOKS
from workbench.reporting.report import read_findings, render_report

TROUBLESHOOT = Path(__file__).parents[1] / "notebooks" / "troubleshoot"
SAMPLES = Path(__file__).parents[1] / "data_samples"
FOUND = {
    "T1": "no_gradient_clipping", "T2": "data_starved", "T3": "stage_imbalance", "T4": "slow_link",
    "T5": "data_mix_shift", "T6": "data_starved", "T7": "stall_steps", "T8": "recompile", "T9": "fragmentation",
    "T10": "version_regression", "E7": "checkpoint_stall",
}  # fmt: skip
RULED_OUT = FOUND | {"T5": "subset_regression"}  # the healthy run does not record which samples it takes
OTHER_RUNS = [
    ("T1", "lab_runs/resume_restarts_schedule", "resume_state_lost"),
    ("T1", "cases/01-lr-schedule-runs-out", "lr_schedule_error"),
    ("T1", "optimizer_mismatch", "precision_or_optimizer_mismatch"),
    ("T3", "simulated_devices/memory_leak", "memory_leak"),
    ("T3", "cases/06-oom-card-already-in-use", "device_shared_with_other_process"),
    ("T4", "cases/13-collective-timeout-one-rank-silent", "rank_missing_collective"),
    ("T7", "data_starved/starved", "data_starved"),
    ("T9", "simulated_devices/memory_leak", "memory_leak"),
]
ELSEWHERE = [  # logs alone, CSV series alone
    ("T9", "cases/13-collective-timeout-one-rank-silent", "T4"),
    ("T2", "cases/09-eval-subset-after-mix-change", "T5"),
]

pytestmark = pytest.mark.slow


def code_cells(notebook):
    return [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]


def notebook_of(playbook):
    return TROUBLESHOOT / f"{PLAYBOOKS[playbook].notebook}.ipynb"


def executed(playbook, folder, **parameters):
    """Run the notebook under papermill; gives what each cell shows as text, the pictures, and the causes written."""
    found = folder / "findings.json"
    out = render_report(notebook_of(playbook), folder / "out.ipynb", findings_path=str(found), **parameters)
    cells = code_cells(out)
    shown = {c.source: "\n".join(o.data["text/plain"] for o in c.outputs if "data" in o) for c in cells}
    assert [o for c in cells for o in c.outputs if o.output_type == "stream" and o.name == "stderr"] == []
    pictures = sum("image/svg+xml" in o.data for c in cells for o in c.outputs if "data" in o)
    return shown, pictures, [f["cause"] for f in read_findings(found)]


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_each_cause_is_checked_in_the_order_of_the_playbook(playbook):
    source = "\n".join(c.source for c in code_cells(notebook_of(playbook)))
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "case.check"]
    assert tuple(a.value for call in calls for a in call.args) == PLAYBOOKS[playbook].causes


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_faulty_sample_has_the_cause_and_the_fixed_one_proves_it(playbook, tmp_path):
    shown, pictures, written = executed(playbook, tmp_path)
    cause = FOUND[playbook]
    assert shown["case.verdict()"].startswith(f"The cause is {cause}: ")
    assert "Fix: " in shown["case.verdict()"]
    assert any(f"\n{cause}: the cause. " in f"\n{shown[s]}" for s in shown if s.startswith("case.check("))
    assert shown["case.proof()"].startswith("Proven: ")
    assert f"\n{cause}: not the cause. " in shown["case.proof()"]
    assert cause in written
    assert pictures >= 2


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_healthy_run_has_none_of_the_causes(playbook, tmp_path):
    healthy = SAMPLES / HEALTHY.get(playbook, OTHERS)
    shown, _pictures, _written = executed(playbook, tmp_path, run_path=str(healthy))
    sentence, *checks = shown["case.verdict()"].splitlines()
    assert sentence.startswith("None of this playbook's causes, and nothing else is found.")
    words = dict(re.match(r"(\w+): (the cause|not the cause|cannot tell)\. ", line).groups() for line in checks)
    assert tuple(words) == PLAYBOOKS[playbook].causes
    assert words[RULED_OUT[playbook]] == "not the cause"
    assert "the cause" not in words.values()
    assert shown["case.proof()"].startswith("No fixed run yet. ")


@pytest.mark.parametrize(("playbook", "sample", "cause"), OTHER_RUNS)
def test_other_runs_with_the_symptom(playbook, sample, cause):
    assert conclude(examine(SAMPLES / sample), playbook).sentence.startswith(f"The cause is {cause}: ")


@pytest.mark.parametrize(("playbook", "sample", "goes_on"), ELSEWHERE)
def test_a_run_of_another_kind_leads_to_its_own_playbook(playbook, sample, goes_on, tmp_path):
    shown, _pictures, _written = executed(playbook, tmp_path, run_path=str(SAMPLES / sample))
    assert shown["case.verdict()"].startswith("None of this playbook's causes")
    assert ". The run has another: " in shown["case.verdict()"]
    assert f"Go on with {goes_on}, troubleshoot/{PLAYBOOKS[goes_on].notebook}." in shown["case.verdict()"]
    assert any(text.startswith("No rows of table ") for text in shown.values())
