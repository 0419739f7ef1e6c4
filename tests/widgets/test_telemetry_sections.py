"""The parts of the telemetry notebook, and the notebook on its sample."""

import nbformat
import papermill

import workbench as wb
from tests.test_notebooks import NOTEBOOKS
from workbench.widgets import telemetry_sections as sections
from workbench.widgets.sections import Text


def test_steps_are_marked_and_looked_at_alone(data_samples):
    run = wb.open_run(data_samples / "throttled_rank", quiet=True)
    tables = sections.tables_of(run)
    assert sections.slow_rank(wb.diagnose(run)) == 3
    assert "1.3 GHz" in repr(sections.verdict(tables, 3, (31, 60)))
    assert "no reason" in repr(sections.verdict(tables, 3, (5, 25)))  # before the clock fell
    rows = sections.reasons(tables, 3, (31, 60))
    assert rows["during"].unique().tolist() == ["steps 31 to 60"]
    marked = sections.course(tables, 3, (31, 60)).to_dict()["vconcat"][0]["layer"]
    assert marked[0]["mark"]["type"] == "rect"


def test_what_is_missing_is_said(data_samples):
    tables = sections.tables_of(wb.open_run(data_samples / "rehearsal_run", quiet=True))
    assert isinstance(sections.reasons(tables, 0), Text)  # one rank, nothing wrong
    assert isinstance(sections.course({}, 0), Text)


def test_the_notebook_names_the_throttled_card(tmp_path):
    folder = NOTEBOOKS / "explore"
    done = papermill.execute_notebook(
        str(folder / "telemetry.ipynb"), str(tmp_path / "out.ipynb"), cwd=str(folder), progress_bar=False
    )
    cells = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    assert "fell" in str(cells[-2].outputs) or "1.3 GHz (other ranks: 1.8) at 81" in str(cells[-2].outputs)
    assert "image/svg+xml" in cells[3].outputs[0].data
