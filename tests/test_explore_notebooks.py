"""The explore notebooks on devices run on the sample and name its faults."""

from pathlib import Path

import nbformat
import papermill
import pytest

EXPLORE = Path(__file__).parents[1] / "notebooks" / "explore"


@pytest.mark.parametrize("topic", ["step_time", "kernels", "communication"])
def test_the_notebook_runs_and_ends_with_the_causes(topic, tmp_path):
    done = papermill.execute_notebook(
        str(EXPLORE / f"{topic}.ipynb"), str(tmp_path / "out.ipynb"), cwd=str(EXPLORE), progress_bar=False
    )
    code = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    causes = code[-1].outputs[0].data["text/plain"]
    assert "Link 0-1" in causes
    assert "Rank 2 computes 1.30 times" in causes
    assert sum("image/svg+xml" in o.get("data", {}) for c in code for o in c.outputs) >= 2
