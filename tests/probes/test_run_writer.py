"""The run directory's writing side, without MindSpore."""

import json
from pathlib import Path

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


def test_words_for_numbers_that_json_lacks():
    record = finite({"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 1.5, "e": None})
    assert record == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5, "e": None}


def test_flatten_joins_keys_with_dots():
    assert flatten({"a": {"b": 1, "c": {"d": "x"}}, "e": (1, 2)}) == {"a.b": 1, "a.c.d": "x", "e": "(1, 2)"}
