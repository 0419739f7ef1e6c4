"""The Recorder on real trainings: values against numpy, forms of outputs, failures that must not end a training."""

import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("mindspore")
pytestmark = pytest.mark.mindspore

SCRIPT = Path(__file__).with_name("recorded_training.py")


def run_training(tmp_path: Path, *words: str) -> dict:
    """Run recorded_training.py in a process of its own; return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "run"), *words],
        capture_output=True, text=True, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_gradient_norm_equals_the_norm_of_the_gradients(tmp_path: Path, mode: str):
    expected = run_training(tmp_path, mode)
    steps = records(tmp_path / "run" / "metrics" / "rank_0.jsonl")
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5, 6]
    for step, by_hand in zip(steps, expected["steps"], strict=True):
        # the script differentiates the same batch with the same parameters and squares every element in numpy
        assert step["gradient_norm"] == pytest.approx(by_hand["gradient_norm"], rel=1e-5)
        assert step["loss"] == pytest.approx(by_hand["loss"], rel=1e-6)
        assert step["learning_rate"] == pytest.approx(by_hand["learning_rate"], rel=1e-6)
        for group, (gradient_norm, _) in step["groups"].items():
            assert gradient_norm == pytest.approx(by_hand["groups"][group], rel=1e-4)
        # squares of the groups add up to the square of the global norm
        total = math.sqrt(sum(g[0] ** 2 for g in step["groups"].values()))
        assert total == pytest.approx(step["gradient_norm"], rel=1e-9)
    assert steps[0]["parameter_norm"] == pytest.approx(expected["first_parameter_norm"], rel=1e-5)
    assert steps[0]["tokens"] == 4 * 16  # batch x length
    assert steps[0]["samples"] == 4


def test_events_tell_compilation_saving_profile_and_the_end(tmp_path: Path):
    run_training(tmp_path, "graph", "--profile")
    events = records(tmp_path / "run" / "events" / "rank_0.jsonl")
    kinds = [e["kind"] for e in events]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    compile_event = next(e for e in events if e["kind"] == "compile")
    assert compile_event["step"] == 1
    assert compile_event["detail"]["input_shapes"] == [[4, 16], [4, 16]]
    saved = [e for e in events if e["kind"] == "checkpoint"]
    assert [(e["step"], e["name"]) for e in saved] == [(3, "tiny-1_3.ckpt"), (6, "tiny-1_6.ckpt")]
    assert all(e["duration_us"] > 0 for e in saved)
    profile = next(e for e in events if e["kind"] == "profile")
    assert profile["detail"] == {"first_step": 2, "last_step": 3}
    assert list((tmp_path / "run" / "profiles").glob("*_ascend_ms/ASCEND_PROFILER_OUTPUT/trace_view.json"))
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["config"] == {"model.width": 8, "note": "nested"}
    assert len(run["attempts"]) == 1


def test_a_slow_pipeline_shows_as_data_wait_and_a_slow_callback_does_not(tmp_path: Path):
    slow_dir = tmp_path / "slow"
    slow_dir.mkdir()
    run_training(slow_dir, "graph", "--steps", "24", "--slow-data-ms", "400")
    starved = records(slow_dir / "run" / "metrics" / "rank_0.jsonl")[-11:]  # what compilation let prefetch is used up
    run_training(tmp_path, "graph", "--steps", "24", "--slow-data-ms", "400", "--slow-callback-ms", "600")
    hidden = records(tmp_path / "run" / "metrics" / "rank_0.jsonl")[-11:]
    # one worker sleeps 400 ms for a batch: waited for, unless another callback sleeps longer than that; single steps
    # may be held up by other programs
    assert median(s["data_wait_us"] for s in starved) > 100_000
    assert median(s["data_wait_us"] for s in hidden) < 100_000
    assert min(s["callbacks_us"] for s in hidden) > 590_000


def test_return_grad_and_plain_steps_are_understood(tmp_path: Path):
    run_training(tmp_path, "graph", "--step", "return_grad")
    with_gradients = records(tmp_path / "run" / "metrics" / "rank_0.jsonl")
    assert with_gradients[0]["gradient_norm"] > 0
    plain_dir = tmp_path / "plain"
    plain_dir.mkdir()
    run_training(plain_dir, "graph", "--step", "plain")
    plain = records(plain_dir / "run" / "metrics" / "rank_0.jsonl")
    assert plain[0]["gradient_norm"] is None
    assert plain[0]["loss"] == pytest.approx(with_gradients[0]["loss"], rel=1e-6)


def test_a_hand_written_loop_records_the_same_numbers(tmp_path: Path):
    run_training(tmp_path, "graph")
    loop_dir = tmp_path / "loop"
    loop_dir.mkdir()
    run_training(loop_dir, "graph", "--loop")
    by_model = records(tmp_path / "run" / "metrics" / "rank_0.jsonl")
    by_loop = records(loop_dir / "run" / "metrics" / "rank_0.jsonl")
    assert [s["gradient_norm"] for s in by_loop] == pytest.approx([s["gradient_norm"] for s in by_model], rel=1e-5)
    assert all(s["data_wait_us"] >= 0 for s in by_loop)


def test_not_a_number_is_recorded_and_training_goes_on(tmp_path: Path):
    run_training(tmp_path, "graph", "--nan-at", "4")
    steps = records(tmp_path / "run" / "metrics" / "rank_0.jsonl")
    assert len(steps) == 6
    assert [s["loss"] == "NaN" for s in steps] == [False, False, False, True, True, True]
    assert steps[3]["overflow"] is True


def test_a_full_disk_loses_records_but_not_the_training(tmp_path: Path):
    out = run_training(tmp_path, "graph", "--full-disk-at", "3")
    assert out["finished"] is True
    assert out["lost_records"] >= 3
    assert len(records(tmp_path / "run" / "metrics" / "rank_0.jsonl")) == 2


def test_a_second_training_with_the_same_recorder_goes_on_counting(tmp_path: Path):
    run_training(tmp_path, "graph", "--twice")
    steps = records(tmp_path / "run" / "metrics" / "rank_0.jsonl")
    assert [s["step"] for s in steps] == list(range(1, 13))
    ends = [e["step"] for e in records(tmp_path / "run" / "events" / "rank_0.jsonl") if e["kind"] == "end"]
    assert ends == [6, 12]
