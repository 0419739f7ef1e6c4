from pathlib import Path

import altair as alt
import pandas as pd
import pytest

from tests.analyses.pipeline_tables import chain, service
from workbench.analyses.pipeline_rates import Setting
from workbench.charts.theme import enable_offline
from workbench.commands import data_targets
from workbench.errors import MissingTableError, PipelineError
from workbench.widgets import data_pipeline
from workbench.widgets.data_pipeline import DataPipelineView, PipelineTuner

SAMPLES = Path(__file__).parents[2] / "data_samples"
SERVICES = chain(
    service("Generator", 50.0, cpu_us=40.0, can_have_workers=False),
    service("Map", 2000.0, cpu_us=2000.0, lock_us=2000.0, many_workers=2, many_us=2000.0, process_us=2200.0,
            process_cpu_us=2300.0),
    service("Batch", 10.0, cpu_us=10.0, input_rows=8.0, can_have_workers=False),
)  # fmt: skip


class Measured:
    table, intervals_us, notes = SERVICES, {}, ()


@pytest.fixture
def tuner(monkeypatch):
    pytest.importorskip("mindspore")
    from workbench.probes import pipeline_services, pipeline_tune

    monkeypatch.setattr(pipeline_services, "cores", lambda: 2)
    monkeypatch.setattr(pipeline_services, "measure_services", lambda *_args, **_options: Measured)
    monkeypatch.setattr(
        pipeline_tune, "measure_settings",
        lambda _dataset, settings, **_options: pd.DataFrame({"measured_us": [9100.0] * len(settings)}),
    )  # fmt: skip
    return PipelineTuner({"train": object(), "eval": object()})


def said(widget):
    return " ".join(child.children[0].value for child in widget.children[4:5])


@pytest.fixture
def live_page():
    before = alt.renderers.active
    enable_offline("lab")
    yield
    alt.renderers.enable(before)


def test_on_an_archived_page_nothing_is_measured():
    before = alt.renderers.active
    enable_offline("static")
    assert repr(data_pipeline.tuner(lambda: pytest.fail("no pipeline is built"))) == data_pipeline.NEEDS_LAB
    alt.renderers.enable(before)


def test_without_mindspore_the_tuner_says_what_is_missing(live_page, monkeypatch):
    monkeypatch.setattr(data_targets, "find_spec", lambda _name: None)
    said = repr(data_pipeline.tuner(lambda: data_targets.built_pipelines("workbench.probes.pipeline_lab:demo")))
    assert said.startswith("Building a data pipeline needs MindSpore, which is not installed.")
    assert "pip install" in said


def test_a_pipeline_that_cannot_be_built_is_said(live_page):
    pytest.importorskip("mindspore")
    said = repr(data_pipeline.tuner(lambda: data_targets.built_pipelines("no_such_module:train")))
    assert "no_such_module:train cannot be imported" in said


def test_a_recorded_pipeline_shows_its_verdict():
    view = DataPipelineView(SAMPLES / "data_pipeline_starved")
    assert "Map holds the pipeline back" in view.children[1].children[0].value
    assert view.rank_id == 0


def test_a_run_without_a_profile_says_how_to_have_one(tmp_path):
    (tmp_path / "run.json").write_text('{"run_id": "demo"}')
    with pytest.raises(MissingTableError, match="profile_data=True"):
        DataPipelineView(tmp_path)


def test_sliding_predicts_and_measuring_stands_beside_it(tuner):
    tuner.measure_operators()
    assert "a batch every 16.00 ms" in said(tuner)
    tuner.use_recommended()
    assert tuner.setting.workers == {"Map": 2}
    assert tuner.setting.processes == {"Map": True}
    assert "a batch every 9.37 ms" in said(tuner)  # two cores do 8 x 2340 + 10 us
    tuner.measure()
    assert tuner.table.measured_us.tolist() == [9100.0]
    assert "Measured: 9.10 ms" in said(tuner)
    tuner.step_ms = 30.0
    assert "a batch every 30.00 ms" in said(tuner)
    assert "set by step" in said(tuner)


def test_another_pipeline_starts_without_measurements(tuner):
    tuner.measure_operators()
    tuner.pipeline = "eval"
    assert tuner.setting == Setting(prefetch_size=16)
    assert tuner.table.empty


def test_a_problem_is_shown_in_the_widget(tuner, monkeypatch):
    from workbench.probes import pipeline_services

    def fail(*_args, **_options):
        raise PipelineError("it raised", fix="look at sample 3")

    monkeypatch.setattr(pipeline_services, "measure_services", fail)
    tuner.children[0].children[2].click()
    assert "look at sample 3" in said(tuner)
