"""Two of the lab's pipelines, measured for real; the whole lab is in benchmarks/data_pipelines.py."""

import pytest

pytest.importorskip("mindspore")

from workbench.errors import PipelineError, UnknownParameterError
from workbench.findings.data_pipeline import pipeline_verdicts
from workbench.probes.data_profile import profile_pipeline, profile_pipelines
from workbench.probes.pipeline_lab import LAB, lab_pipeline
from workbench.probes.pipeline_services import measure_services
from workbench.probes.pipeline_tune import apply, tune
from workbench.run import open_run

pytestmark = pytest.mark.mindspore


def test_a_sleeping_map_gains_from_a_second_worker_as_predicted():
    lab = lab_pipeline("too_few_workers", size=2)
    tuned = tune(lab.dataset, seconds_each=0.3)
    services = tuned.services.table.set_index("name")
    assert services.service_us.idxmax() == "Map"
    assert services.cpu_us["Map"] < services.service_us["Map"] / 2
    assert services.lock_us["Map"] == 0
    assert tuned.recommended.workers["Map"] == 2
    assert not tuned.recommended.processes["Map"]
    assert tuned.gain > 1.3  # two where the machine is free
    row = tuned.table[tuned.table.is_recommended].iloc[0]
    assert row.batch_us == pytest.approx(row.clean_us, rel=0.3)
    assert row.bound == "Map"
    applied = apply(lab.dataset, tuned.recommended)
    assert applied is not lab.dataset


def test_train_and_evaluation_pipelines_are_profiled_one_by_one(tmp_path):
    labs = {"train": lab_pipeline("too_few_workers", size=2), "eval": lab_pipeline("keeps_up", size=2)}
    folders = profile_pipelines(
        {name: lab.dataset for name, lab in labs.items()}, tmp_path, seconds=1.2,
        step_us={name: lab.step_us for name, lab in labs.items()},
    )  # fmt: skip
    found = {}
    for name, folder in folders.items():
        run = open_run(folder, quiet=True)
        found[name] = pipeline_verdicts({t: run.table(t) for t in run.tables})[1].iloc[0]
    assert found["train"]["name"] == "Map"
    assert found["train"].sentence.startswith("Map holds the pipeline back: it waits")
    assert found["eval"].keeps_up


def test_a_second_session_is_refused_with_a_fix(tmp_path):
    dataset = lab_pipeline("keeps_up").dataset
    with profile_pipeline(tmp_path / "first"):
        iterator = dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)
        next(iterator)
        with pytest.raises(PipelineError, match="one pipeline at a time"), profile_pipeline(tmp_path / "second"):
            pass
        iterator.stop()
    assert (tmp_path / "first" / "pipeline_profiling_0.json").exists()


def test_what_cannot_run_in_processes_is_noted_and_the_rest_is_measured(monkeypatch):
    from workbench.probes import pipeline_services

    run = pipeline_services.run_pipeline

    def refuse(dataset, seconds, **options):
        if "in processes" in options.get("what", ""):
            raise PipelineError("it cannot be sent", fix="-")
        return run(dataset, seconds, **options)

    monkeypatch.setattr(pipeline_services, "run_pipeline", refuse)
    monkeypatch.setattr(pipeline_services, "COMPUTES_SHARE", 0.0)  # on a busy machine the operator mostly waits
    found = measure_services(lab_pipeline("locked_map").dataset, seconds_each=0.1)
    assert found.notes == ("Map does not run in processes: it cannot be sent",)
    assert found.table.set_index("name").loc["Map", ["process_us"]].isna().all()


def test_the_lab_refuses_names_that_it_does_not_have():
    assert len(LAB) >= 12  # two sizes each
    with pytest.raises(UnknownParameterError, match="Fix: use one of"):
        lab_pipeline("none")
