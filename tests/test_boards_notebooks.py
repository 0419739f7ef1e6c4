"""The boards as notebooks run from top to bottom, on what a run has and on what it lacks."""

from pathlib import Path

import nbformat
import pytest

from workbench.reporting.report import render_report
from workbench.widgets.tabs import BOARDS

FOLDER = Path(__file__).parents[1] / "notebooks" / "boards"
NOTEBOOKS = {name: FOLDER / f"{name.lower().replace(' ', '_')}.ipynb" for name in BOARDS}
HEALTHY = "Nothing found: healthy as far as these tables show."
FOUND = {"rehearsal_run": HEALTHY, "simulated_cluster_8": "Link 2-3 moves 8.3 GB/s"}
CHARTS = {  # at least, of what the sample has tables for
    ("Training quality", "rehearsal_run"): 3, ("Resource efficiency", "rehearsal_run"): 4,
    ("Data health", "rehearsal_run"): 1, ("Training quality", "simulated_cluster_8"): 0,
    ("Resource efficiency", "simulated_cluster_8"): 2, ("Data health", "simulated_cluster_8"): 0,
}  # fmt: skip


def test_every_board_is_a_notebook():
    assert {p.name for p in FOLDER.glob("*.ipynb")} == {p.name for p in NOTEBOOKS.values()}


@pytest.mark.parametrize(("board", "sample"), CHARTS)
def test_a_board_runs_on_a_run_and_on_a_cluster(board, sample, data_samples, tmp_path):
    out = render_report(NOTEBOOKS[board], tmp_path / "out.ipynb", run_path=str(data_samples / sample))
    notebook = nbformat.read(out, as_version=4)
    text = [o["data"].get("text/plain", "") for c in notebook.cells for o in c.get("outputs", []) if "data" in o]
    assert any(FOUND[sample] in words for words in text)
    state = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    charts = [model for model in state if model["state"].get("_anywidget_id", "").endswith("JupyterChart")]
    assert len(charts) >= CHARTS[board, sample]
