"""The notebook on training data names the faults that were seeded into the sample."""

from pathlib import Path

import nbformat
import papermill
import pytest

EXPLORE = Path(__file__).parents[1] / "notebooks" / "explore"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "out.ipynb"
    done = papermill.execute_notebook(
        str(EXPLORE / "data_health.ipynb"), str(out), cwd=str(EXPLORE), progress_bar=False
    )
    cells = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    return {c.source: [o.data for o in c.outputs if "data" in o] for c in cells}


def test_the_faults_of_the_data_set_are_named(shown):
    verdict = shown["sections.verdict(tables)"][0]["text/plain"]
    # README of the sample: 14 of 335 usable samples repeat, 6 of 341 are empty, 2 of 343 lines are cut off
    assert f"{14 / 335:.1%} of the samples, {7 / 335:.1%} exactly); most in english" in verdict
    assert f"{6 / 341:.1%} of the samples of mix are empty; most in math ({6 / 120:.1%})" in verdict
    assert (
        f"{2 / 343:.1%} of the samples of mix cannot be used; most: not JSON (2, the first at mix.jsonl, 51)" in verdict
    )
    assert "of code it cuts 20.6%" in verdict


def test_the_drift_of_the_run_is_named(shown):
    last = list(shown.values())[-1]
    assert "The share of code goes from 30" in last[0]["text/plain"]
    assert sum("image/svg+xml" in data for outputs in shown.values() for data in outputs) == 6
