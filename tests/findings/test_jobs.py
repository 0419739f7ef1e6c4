"""A directory with several jobs: which are named, which is judged, and what is not compared."""

import json

import numpy as np
import pytest

import workbench as wb
from tests.job_logs import mindformers_job
from tests.log_text import write_logs
from tests.rendered_logs import mindformers, series
from workbench.cli import main

LLAMA = "model:\n  model_config:\n    hidden_size: 4096\n    num_layers: 32\n"
QWEN = "model:\n  model_config:\n    hidden_size: 5120\n    num_layers: 40\n"
HEALTHY = "healthy as far as these tables show"


def log(ms, *, loss, seed=0, start=0.0):
    step = np.arange(1, 61)
    frame = series(step, ms=ms * np.random.default_rng(seed).normal(1, 0.004, 60), loss=loss - step / 100, norm=1.3)
    return mindformers(frame.assign(seconds=frame["seconds"] + start), planned=2000)


def two_jobs(folder, *, names=("llama", "qwen"), losses=(3.0, 4.0), **files):
    """The later one takes 1.6 times as long per step."""
    logs = {f"{names[0]}/worker_0.log": log(1000, loss=losses[0]),
            f"{names[1]}/worker_0.log": log(1600, loss=losses[1], seed=1, start=9e5)}  # fmt: skip
    for name, text in {**logs, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return wb.diagnose(folder)


def causes(found):
    return [f.cause for f in found.causes]


def test_jobs_without_anything_in_common_are_named_and_not_compared(tmp_path):
    found = two_jobs(tmp_path)
    assert causes(found) == []
    lines = repr(found).splitlines()
    assert lines[0] == "2 jobs are here: llama (1 file, 1 rank, steps 1 to 60); qwen (1 file, 1 rank, steps 1 to 60)."
    assert lines[1].startswith("Judged is the latest, qwen. Not compared with llama: its model or its losses")
    assert HEALTHY in lines[2]
    assert found._repr_html_().startswith(f"<p style='color:#57606a'>{lines[0]}</p>")


def test_jobs_of_two_models_are_not_compared_though_their_losses_are_alike(tmp_path):
    files = {"llama/config.yaml": LLAMA, "qwen/config.yaml": QWEN}
    assert causes(two_jobs(tmp_path / "two", losses=(3.0, 3.0), **files)) == []
    one = two_jobs(tmp_path / "one", losses=(3.0, 3.0), **{**files, "qwen/config.yaml": LLAMA})
    assert causes(one) == ["version_regression"]


@pytest.mark.parametrize(
    ("names", "losses"), [(("a", "b"), (3.0, 3.03)), (("run_before", "run_after"), (3.0, 4.0))], ids=["losses", "names"]
)
def test_runs_of_one_job_are_compared(tmp_path, names, losses):
    found = two_jobs(tmp_path, names=names, losses=losses)
    assert causes(found) == ["version_regression"]
    assert f"Judged is the latest, {names[1]}. Compared with {names[0]}." in repr(found)


@pytest.mark.parametrize(("first_loss", "causes_found"), [("8.1", ["poor_scaling"]), ("9.9", [])])
def test_jobs_of_other_models_are_no_points_of_one_scaling_curve(tmp_path, first_loss, causes_found):
    """Their first losses are those of two vocabularies: ln 3,300 and ln 20,000."""
    large = "\n".join(mindformers_job(step_ms=1600, devices=32, batch=256, seed=1))
    logs = {
        "small/worker_0.log": "\n".join(mindformers_job(step_ms=1000, devices=8, batch=64)),
        "large/worker_0.log": large.replace("loss: 8.1", f"loss: {first_loss}").replace("2025-05-11", "2025-05-14"),
    }
    for name, text in logs.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text + "\n")
    found = wb.diagnose(tmp_path)
    assert causes(found) == causes_found
    assert ("Compared with small in how it scales" in repr(found)) == bool(causes_found)
    assert ("Not compared with small" in repr(found)) == (not causes_found)


def test_one_job_needs_no_such_line(tmp_path):
    assert wb.diagnose(write_logs(tmp_path, {"worker_0.log": log(1000, loss=3.0)})).jobs == ()


def test_steps_told_are_those_of_the_judged_job(tmp_path):
    short = "\n".join(log(300, loss=1.0, seed=2, start=9e5).splitlines()[:35]) + "\n"
    (tmp_path / "train").mkdir()
    (tmp_path / "eval").mkdir()
    (tmp_path / "train/worker_0.log").write_text(log(1000, loss=3.0))
    (tmp_path / "eval/worker_0.log").write_text(short)
    found = wb.diagnose(tmp_path)
    last = found.coverage["steps"][1]
    assert last < 60
    assert f"eval (1 file, 1 rank, steps 1 to {last})" in repr(found)


def test_profiles_of_ranks_that_no_log_has_are_told(tmp_path, data_samples):
    (tmp_path / "profiles").symlink_to(data_samples / "simulated_cluster_8")
    for rank in range(2):
        write_logs(tmp_path, {f"worker_{rank}.log": log(1000, loss=3.0)})
    found = wb.diagnose(tmp_path)
    assert found.jobs[0].startswith("Profiles are of 8 ranks, steps of 2 ranks: they are judged together, as one job.")
    (tmp_path / "worker_1.log").unlink()
    assert wb.diagnose(tmp_path).jobs == ()


def test_beside_json_the_jobs_go_to_the_error_stream(tmp_path, capsys):
    two_jobs(tmp_path)
    assert main(["diagnose", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["causes"] == []
    assert printed.err.startswith("2 jobs are here: llama (")
