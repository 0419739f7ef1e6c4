"""The playbooks: each names the cause on its faulty sample, proves the fix, and is silent on a healthy run."""

import ast
import re
from pathlib import Path

import altair as alt
import nbformat
import pytest

from workbench.findings.playbooks import PLAYBOOKS
from workbench.reporting.report import read_findings, render_report

TROUBLESHOOT = Path(__file__).parents[1] / "notebooks" / "troubleshoot"
SAMPLES = Path(__file__).parents[1] / "data_samples"
FOUND = {
    "T1": "resume_state_lost", "T2": "data_starved", "T3": "memory_leak", "T4": "slow_link", "T5": "data_mix_shift",
    "T6": "data_starved", "T7": "stall_steps", "T8": "recompile", "T9": "fragmentation", "T10": "version_regression",
    "E7": "checkpoint_stall",
}  # fmt: skip
HEALTHY = {
    "T3": "simulated_devices/healthy", "T4": "simulated_cluster_healthy", "T7": "simulated_devices/healthy",
    "T9": "simulated_devices/healthy", "T10": "upgrade_fixed",
}  # fmt: skip
RULED_OUT = FOUND | {"T5": "subset_regression"}  # the healthy run does not record which samples it takes
OTHER_CASES = [
    ("T1", "cases/01-lr-schedule-runs-out", "lr_schedule_error"),
    ("T3", "cases/05-oom-first-pipeline-stage", "stage_imbalance"),
    ("T4", "cases/13-collective-timeout-one-rank-silent", "rank_missing_collective"),
]


def code_cells(playbook):
    notebook = nbformat.read(TROUBLESHOOT / f"{PLAYBOOKS[playbook].notebook}.ipynb", as_version=4)
    return [c for c in notebook.cells if c.cell_type == "code"]


def run_cells(playbook, **parameters):
    """Run the notebook's cells in this process; gives what each last line shows, and the names."""
    names, shown = {}, []
    for cell in code_cells(playbook):
        tree = ast.parse(cell.source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        if "PipelineTuner" in cell.source:  # runs a pipeline: tests/test_data_pipeline_notebooks.py
            continue
        exec(compile(tree, playbook, "exec"), names)
        if "parameters" in cell.metadata.get("tags", []):
            assert set(parameters) <= set(names)
            names |= parameters
        if last is not None:
            value = eval(compile(ast.Expression(last.value), playbook, "eval"), names)
            shown.append(value)
            drawn = value.to_dict() if isinstance(value, alt.TopLevelMixin) else repr(value)
            assert drawn
            getattr(value, "_repr_html_", str)()
    return shown, names


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_each_cause_is_checked_in_the_order_of_the_playbook(playbook):
    source = "\n".join(c.source for c in code_cells(playbook))
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "case.check"]
    assert tuple(a.value for call in calls for a in call.args) == PLAYBOOKS[playbook].causes


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_the_faulty_sample_has_the_cause_and_the_fixed_one_proves_it(playbook, monkeypatch, tmp_path):
    monkeypatch.chdir(TROUBLESHOOT)
    _shown, names = run_cells(playbook, findings_path=str(tmp_path / "findings.json"))
    case = names["case"]
    verdict = case.verdict()
    assert verdict.sentence.startswith(f"The cause is {FOUND[playbook]}: ")
    assert "Fix: " in verdict.sentence
    assert case.proof().sentence.startswith("Proven: ")
    written = [f["cause"] for f in read_findings(tmp_path / "findings.json")]
    assert written == [f.cause for f in case.findings]
    assert FOUND[playbook] in written


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_healthy_run_has_none_of_the_causes(playbook, monkeypatch):
    monkeypatch.chdir(TROUBLESHOOT)
    healthy = SAMPLES / HEALTHY.get(playbook, "rehearsal_run")
    shown, names = run_cells(playbook, run_path=str(healthy))
    verdict = names["case"].verdict()
    assert verdict.sentence.startswith("None of this playbook's causes, and nothing else is found.")
    words = {c.cause: c.verdict for c in verdict.checks}
    assert words[RULED_OUT[playbook]] == "not the cause"
    assert "the cause" not in words.values()
    assert any(re.match("No fixed run yet", repr(s)) for s in shown)


@pytest.mark.parametrize(("playbook", "sample", "cause"), OTHER_CASES)
def test_other_runs_with_the_symptom(playbook, sample, cause, monkeypatch):
    monkeypatch.chdir(TROUBLESHOOT)
    _shown, names = run_cells(playbook, run_path=str(SAMPLES / sample))
    assert names["case"].verdict().sentence.startswith(f"The cause is {cause}: ")


def test_a_playbook_runs_under_papermill(tmp_path):
    """All of them: benchmarks/playbooks.py."""
    notebook = TROUBLESHOOT / f"{PLAYBOOKS['T9'].notebook}.ipynb"
    out = render_report(notebook, tmp_path / "out.ipynb", findings_path=str(tmp_path / "findings.json"))
    assert read_findings(tmp_path / "findings.json")[0]["cause"] == "fragmentation"
    text = out.read_text()
    assert "Proven: fragmentation in fragmentation, gone in healthy" in text
    assert text.count("image/svg+xml") >= 4
