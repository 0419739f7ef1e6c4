"""The notebooks on subsets and checkpoints run on their samples and reach their verdicts."""

from pathlib import Path

import nbformat
import papermill

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def executed(name, folder, **parameters):
    path = NOTEBOOKS / f"{name}.ipynb"
    out = str(folder / "out.ipynb")
    done = papermill.execute_notebook(str(path), out, parameters, cwd=str(path.parent), progress_bar=False)
    cells = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    return {c.source: [o.data for o in c.outputs if "data" in o] for c in cells}


def test_the_playbook_names_the_starved_subset(tmp_path):
    shown = executed("troubleshoot/one_subset_degrades", tmp_path)
    verdict = shown["case.verdict()"][0]["text/plain"]
    assert "Subset arithmetic got worse" in verdict
    assert "when the sampling mix changed: arithmetic went from" in verdict
    assert sum("image/svg+xml" in d for outputs in shown.values() for d in outputs) == 4  # one of them the proof


def test_the_explorer_recommends_a_checkpoint(tmp_path):
    shown = executed("explore/evaluation", tmp_path)
    assert "rehearsal-1_400" in shown["sections.ranking(tables)"][0]["text/html"]
    assert sum("image/svg+xml" in d for outputs in shown.values() for d in outputs) == 4
