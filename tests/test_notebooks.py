"""Notebooks are thin and clean, and the report runs on the sample and on runs with anything missing."""

import ast
import json
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

from tests.made_run import made_samples, made_steps, write_run
from workbench.reporting.report import read_findings, render_report

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
ALL = sorted(p for p in NOTEBOOKS.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
FORBIDDEN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.Try, ast.With)
MOST_STATEMENTS = 5
REPORT = NOTEBOOKS / "reports" / "checkpoint.ipynb"
SAMPLES = pd.concat([made_samples("c-100", 100), made_samples("c-200", 200, better=0.13, worse=["code"])])


@pytest.mark.parametrize("path", ALL, ids=lambda p: str(p.relative_to(NOTEBOOKS)))
def test_cells_are_thin_and_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c for c in code if c.outputs or c.execution_count] == []
    assert len([c for c in code if "parameters" in c.metadata.get("tags", [])]) == 1
    for cell in code:
        tree = ast.parse(cell.source)
        assert len(tree.body) <= MOST_STATEMENTS, cell.source
        assert [n for n in ast.walk(tree) if isinstance(n, FORBIDDEN)] == [], cell.source


def outputs(path):
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    return [o.data for c in cells for o in c.outputs if "data" in o]


def test_the_report_on_a_checkpoint_that_got_worse_on_one_subset(tmp_path):
    run = write_run(tmp_path / "run", made_steps(200), samples=SAMPLES)
    findings = tmp_path / "findings.json"
    out = render_report(
        REPORT, tmp_path / "out.ipynb", run_path=str(run), checkpoint="c-200", findings_path=str(findings)
    )
    assert [f["cause"] for f in read_findings(findings)] == ["subset_regression"]
    shown = outputs(out)
    verdict = next(d["text/plain"] for d in shown if d["text/plain"].startswith("quality:"))
    assert verdict.startswith("quality: attention. Subset code got worse")
    assert "stability: good" in verdict
    assert len([d for d in shown if "image/svg+xml" in d]) >= 7


def test_the_report_on_an_early_checkpoint_knows_nothing_of_later(tmp_path):
    run = write_run(tmp_path / "run", made_steps(200), samples=SAMPLES)
    findings = tmp_path / "findings.json"
    out = render_report(
        REPORT, tmp_path / "out.ipynb", run_path=str(run), checkpoint="c-100", findings_path=str(findings)
    )
    assert read_findings(findings) == []
    assert "step 100 of 200" in json.dumps(outputs(out))


def test_the_report_on_a_run_without_metrics_and_events(tmp_path):
    run = write_run(tmp_path / "run", made_steps(20), samples=SAMPLES)
    for folder in ("metrics", "events"):
        for path in (run / folder).iterdir():
            path.unlink()
    text = json.dumps(outputs(render_report(REPORT, tmp_path / "out.ipynb", run_path=str(run))))
    assert "stability: not measured" in text
    assert "No rows of table training_steps" in text


def test_the_report_shows_a_loss_that_is_lost(tmp_path):
    steps = made_steps(200)
    steps.loc[150:, ["loss", "gradient_norm"]] = np.nan
    run = write_run(tmp_path / "run", steps, samples=SAMPLES.assign(loss_nats=np.nan))
    text = json.dumps(outputs(render_report(REPORT, tmp_path / "out.ipynb", run_path=str(run))))
    assert "The loss is not a number from step 151 on" in text
    assert "subsets without a finite loss: 3" in text  # evidence of the same cause


def test_the_report_runs_on_its_default(tmp_path):
    assert "4 subsets" in json.dumps(outputs(render_report(REPORT, tmp_path / "out.ipynb")))


def test_the_start_notebook_runs_without_lab(tmp_path):
    out = render_report(NOTEBOOKS / "start.ipynb", tmp_path / "out.ipynb")
    assert len([d for d in outputs(out) if "image/svg+xml" in d]) == 4
