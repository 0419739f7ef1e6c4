"""The notebooks on data pipelines tell a starved training, the same one tuned, and a healthy one apart."""

from pathlib import Path

import nbformat
import papermill
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SAMPLES = Path(__file__).parents[1] / "data_samples"
STARVED, TUNED = SAMPLES / "data_starved" / "starved", SAMPLES / "data_starved" / "tuned"
HEALTHY = SAMPLES / "rehearsal_run"

pytest.importorskip("mindspore")
pytestmark = pytest.mark.mindspore  # the last part runs a pipeline


def executed(name, folder, **parameters):
    path = NOTEBOOKS / f"{name}.ipynb"
    values = {key: str(value) for key, value in parameters.items()}
    done = papermill.execute_notebook(
        str(path), str(folder / "out.ipynb"), values, cwd=str(path.parent), progress_bar=False
    )
    cells = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    return {c.source: [o.data["text/plain"] for o in c.outputs if "data" in o] for c in cells}


def test_the_playbook_names_the_operator_and_shows_what_tuning_gained(tmp_path):
    shown = executed("troubleshoot/data_pipeline_too_slow", tmp_path, run_path=STARVED, compare_with=TUNED)
    assert shown["data_pipeline.verdict(tables)"][0].startswith("Map holds the pipeline back: it waits")
    assert "1. [critical] Map holds the data pipeline back" in shown["wb.diagnose(run)"][0]
    assert "data_starved" not in shown["(case.fixed or case.examined).diagnosis"][0]


@pytest.mark.parametrize(
    ("run", "verdict"), [(STARVED, "Map holds the pipeline back"), (HEALTHY, "The pipeline keeps up")]
)
def test_low_throughput_tells_a_starved_from_a_healthy_run(tmp_path, run, verdict):
    shown = executed("troubleshoot/low_throughput", tmp_path, run_path=run)
    assert shown["data_pipeline.verdict(tables)"][0].startswith(verdict)
    assert ("holds the data pipeline back" in shown["wb.diagnose(run)"][0]) == (run == STARVED)


def test_the_explore_notebook_runs_on_files_alone(tmp_path):
    shown = executed("explore/data_pipeline", tmp_path, run_path=SAMPLES / "data_pipeline_starved")
    assert shown["data_pipeline.verdict(tables)"][0].startswith("Map holds the pipeline back")
