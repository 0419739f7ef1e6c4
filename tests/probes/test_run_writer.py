"""The run directory's writing side, without MindSpore."""

import json
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import UnknownParameterError
from workbench.probes.run_writer import RunWriter, finite, flatten


def test_records_are_on_disk_before_the_next_one(tmp_path: Path):
    writer = RunWriter(tmp_path / "run", rank_id=3, world_size=4)
    writer.step({"step": 1, "loss": 2.5})
    assert json.loads((tmp_path / "run/metrics/rank_3.jsonl").read_text()) == {"step": 1, "loss": 2.5}
    writer.event("compile", start_ns=5, duration_us=7.0, step=1, name="graph", detail={"graphs": 1})
    event = json.loads((tmp_path / "run/events/rank_3.jsonl").read_text())
    assert event == {"kind": "compile", "start_ns": 5, "duration_us": 7.0, "step": 1, "name": "graph",
                     "detail": {"graphs": 1}}  # fmt: skip
    assert not (tmp_path / "run/run.json").exists()
    writer.describe({"config": {}})
    assert not (tmp_path / "run/run.json").exists()  # rank 0 describes the run


def test_a_line_torn_by_a_kill_stays_alone(tmp_path: Path):
    path = tmp_path / "run/metrics/rank_0.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"step":1,"loss":1.0}\n{"step":2,"lo')
    RunWriter(tmp_path / "run").step({"step": 3, "loss": 0.5})
    lines = path.read_text().splitlines()
    assert lines[1] == '{"step":2,"lo'
    assert json.loads(lines[2]) == {"step": 3, "loss": 0.5}


def test_a_second_attempt_keeps_the_start(tmp_path: Path):
    first = RunWriter(tmp_path / "run")
    first.describe({"config": {"a": 1}})
    first.describe({"config": {"a": 1}, "steps_per_epoch": 7})  # the same attempt says more
    start = json.loads((tmp_path / "run/run.json").read_text())
    assert len(start["attempts"]) == 1
    assert start["steps_per_epoch"] == 7
    RunWriter(tmp_path / "run").describe({"config": {"a": 2}})
    second = json.loads((tmp_path / "run/run.json").read_text())
    assert second["start_ns"] == start["start_ns"]
    assert len(second["attempts"]) == 2
    assert second["config"] == {"a": 2}


@pytest.mark.parametrize("content", ['{"run_id": "de', "[1]", '{"attempts": {"a": 1}}'])
def test_a_damaged_description_does_not_keep_a_training_from_starting(tmp_path: Path, content: str):
    (tmp_path / "run.json").write_text(content)
    RunWriter(tmp_path).describe({"config": {}})
    assert len(json.loads((tmp_path / "run.json").read_text())["attempts"]) == 1
    readable = content.endswith("}}")
    assert (tmp_path / "run.json.damaged").exists() is not readable


def test_a_file_is_no_run_directory(tmp_path: Path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UnknownParameterError, match="is a file"):
        RunWriter(tmp_path / "run")


def test_values_of_other_libraries_are_written(tmp_path: Path):
    writer = RunWriter(tmp_path)
    writer.describe({"seeds": {"numpy": np.int64(7)}, "evaluation": {"arguments": {"file": tmp_path}}})
    writer.step({"step": 1, "learning_rate": np.float32(0.5), "loss": np.float32("nan"), "extra": np.arange(2)})
    writer.event("eval", start_ns=1, detail={"file": tmp_path, "score": np.array([0.25])})
    info = json.loads((tmp_path / "run.json").read_text())
    assert (info["seeds"], info["evaluation"]) == ({"numpy": 7}, {"arguments": {"file": str(tmp_path)}})
    step = json.loads((tmp_path / "metrics/rank_0.jsonl").read_text())
    assert step == {"step": 1, "learning_rate": 0.5, "loss": "NaN", "extra": "[0 1]"}
    assert json.loads((tmp_path / "events/rank_0.jsonl").read_text())["detail"]["score"] == 0.25


def test_words_for_numbers_that_json_lacks():
    record = finite({"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 1.5, "e": None})
    assert record == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5, "e": None}


def test_flatten_joins_keys_with_dots():
    assert flatten({"a": {"b": 1, "c": {"d": "x"}}, "e": (1, 2)}) == {"a.b": 1, "a.c.d": "x", "e": "(1, 2)"}
