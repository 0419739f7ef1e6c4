"""The notebooks on data pipelines name the operator, and the playbook shows what tuning gained."""

from pathlib import Path

import nbformat
import papermill

from workbench.widgets.data_pipeline import NEEDS_LAB

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SAMPLES = Path(__file__).parents[1] / "data_samples"
STARVED, TUNED = SAMPLES / "data_starved" / "starved", SAMPLES / "data_starved" / "tuned"


def executed(name, folder, **parameters):
    path = NOTEBOOKS / f"{name}.ipynb"
    values = {key: str(value) for key, value in parameters.items()}
    done = papermill.execute_notebook(
        str(path), str(folder / "out.ipynb"), values, cwd=str(path.parent), progress_bar=False
    )
    cells = [c for c in nbformat.from_dict(done).cells if c.cell_type == "code"]
    return {c.source: [o.data["text/plain"] for o in c.outputs if "data" in o] for c in cells}


def test_the_playbook_shows_what_tuning_gained_and_does_not_tune_by_itself(tmp_path):
    shown = executed("troubleshoot/data_pipeline_too_slow", tmp_path, run_path=STARVED, compare_with=TUNED)
    assert shown["data_pipeline.verdict(case.tables)"][0].startswith("Map holds the pipeline back: it waits")
    assert shown["data_pipeline.tuner(lambda: built_pipelines(pipelines), step_ms=step_ms)"] == [NEEDS_LAB]
    assert shown["case.proof()"][0].startswith("Proven: data_starved in starved, gone in tuned.")


def test_the_explore_notebook_runs_on_files_alone(tmp_path):
    shown = executed("explore/data_pipeline", tmp_path, run_path=SAMPLES / "data_pipeline_starved")
    assert shown["data_pipeline.verdict(tables)"][0].startswith("Map holds the pipeline back")
