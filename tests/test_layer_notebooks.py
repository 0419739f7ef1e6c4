"""The notebooks on layers and on post-training run on their samples, and end with what is true of them."""

from pathlib import Path

import nbformat
import papermill
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def executed(path: str, tmp_path, **parameters):
    """Code cells of the notebook after a run."""
    notebook = NOTEBOOKS / path
    done = papermill.execute_notebook(
        str(notebook), str(tmp_path / "out.ipynb"), parameters, cwd=str(notebook.parent), progress_bar=False
    )
    return [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]


def text_of(cells) -> str:
    return "\n".join(str(o.get("data", {}).get("text/plain", "")) for c in cells for o in c.outputs)


def pictures(cells) -> int:
    return sum("image/svg+xml" in o.get("data", {}) for c in cells for o in c.outputs)


def test_layers(tmp_path):
    cells = executed("explore/layers.ipynb", tmp_path)
    assert "blocks.2.mlp_out" in text_of(cells[-1:])
    assert pictures(cells) == 5


@pytest.mark.parametrize("run_path", ["../../data_samples/post_training_run", "../../data_samples/rehearsal_run"])
def test_post_training(tmp_path, run_path):
    cells = executed("reports/post_training.ipynb", tmp_path, run_path=run_path)
    if run_path.endswith("rehearsal_run"):  # which has none of the tables
        assert pictures(cells) == 0
        assert text_of(cells).count("workbench post-training") >= 5
    else:
        assert pictures(cells) == 4
        assert "self bleu" in "".join(str(o.get("data", {}).get("text/html", "")) for c in cells for o in c.outputs)
