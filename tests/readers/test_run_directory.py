"""Reading the run directory: what was recorded, what a kill tore, what a restart repeated."""

import json
import math

import pandas as pd
import pytest

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.readers.run_directory import (
    read_eval_samples,
    read_evals,
    read_events,
    read_metrics,
    read_run_json,
    read_telemetry,
)
from workbench.tables import EVAL_SAMPLES


def lines(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_metrics_become_steps_and_groups(tmp_path):
    path = lines(
        tmp_path / "metrics/rank_3.jsonl",
        {"step": 1, "time_ns": 1795955116000000001, "loss": 5.5, "gradient_norm": 3.0, "parameter_norm": 12.0,
         "overflow": False, "groups": {"embedding": [2.0, 8.0], "head": [1.5, None]}},
        {"step": 2, "loss": 5.0, "step_us": 1000.5},
    )  # fmt: skip
    readings = read_metrics(path, FileContext(rank_id=3, root=tmp_path))
    steps, groups = readings["training_steps"].table, readings["parameter_groups"].table
    assert steps.rank_id.tolist() == [3, 3]
    assert steps.time_ns[0] == 1795955116000000001  # a float64 would end in ...000000000
    assert pd.isna(steps.time_ns[1])
    assert steps.gradient_parameter_ratio[0] == 3.0 / 12.0
    assert math.isnan(steps.gradient_norm[1])
    assert steps.step_us[1] == 1000.5
    assert steps.overflow.tolist() == [False, pd.NA]
    assert groups.group.tolist() == ["embedding", "head"]
    assert groups.gradient_parameter_ratio[0] == 2.0 / 8.0
    assert math.isnan(groups.gradient_parameter_ratio[1])
    assert readings["training_steps"].notes == []
    assert set(steps.source) == {"metrics/rank_3.jsonl"}


@pytest.mark.parametrize(
    ("written", "loss", "finite"),
    [("NaN", math.nan, False), ("Infinity", math.inf, False), ("-Infinity", -math.inf, False), (2.5, 2.5, True),
     ("2.5", 2.5, True), ("half", math.nan, pd.NA), (None, math.nan, pd.NA)],
)  # fmt: skip
def test_a_loss_that_is_not_finite_is_told_from_one_that_was_not_recorded(tmp_path, written, loss, finite):
    path = lines(tmp_path / "metrics/rank_0.jsonl", {"step": 1, "loss": written})
    steps = read_metrics(path, FileContext())["training_steps"].table
    assert steps.loss[0] == loss or (math.isnan(steps.loss[0]) and math.isnan(loss))
    assert steps.loss_finite[0] is finite or steps.loss_finite[0] == finite


def test_a_torn_last_line_costs_that_record_only(tmp_path):
    path = lines(tmp_path / "metrics/rank_0.jsonl", {"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5})
    path.write_text(path.read_text() + '{"step": 3, "lo')
    reading = read_metrics(path, FileContext(root=tmp_path))["training_steps"]
    assert reading.table.step.tolist() == [1, 2]
    assert [(n.file, n.where) for n in reading.notes] == [("metrics/rank_0.jsonl", "line 3")]


def test_a_restart_keeps_the_last_record_of_a_step(tmp_path):
    path = lines(
        tmp_path / "metrics/rank_0.jsonl",
        {"step": 1, "loss": 9.0},
        {"step": 2, "loss": 8.0, "groups": {"all": [1.0, 2.0]}},
        '{"step": 3, "loss"',  # killed here, resumed from the checkpoint of step 1
        {"step": 2, "loss": 7.0, "groups": {"all": [3.0, 2.0]}},
        {"step": 3, "loss": 6.0},
    )
    readings = read_metrics(path, FileContext())
    steps = readings["training_steps"]
    assert steps.table.loss.tolist() == [9.0, 7.0, 6.0]
    assert readings["parameter_groups"].table.gradient_norm.tolist() == [3.0]
    assert [n.where for n in steps.notes] == ["line 3", "line 2"]


def test_an_unreadable_cell_is_missing_and_noted_never_zero(tmp_path):
    path = lines(
        tmp_path / "metrics/rank_0.jsonl",
        {"step": 1, "loss": "broken", "tokens": [1]},
        {"step": "first", "loss": 1.0},
        [1, 2],
        {"step": 3, "loss": 2.0},
    )
    reading = read_metrics(path, FileContext())["training_steps"]
    assert reading.table.step.tolist() == [1, 3]
    assert math.isnan(reading.table.loss[0])
    assert math.isnan(reading.table.tokens[0])
    problems = {(n.where, n.problem) for n in reading.notes}
    assert ("line 3", "Not a JSON object.") in problems
    assert ("line 1", "Column loss holds something that is not float64.") in problems
    assert ("line 2", "Column step holds something that is not int64.") in problems
    assert ("line 2", "A record without one of rank_id, step.") in problems


def test_cells_that_all_are_lists_cost_no_other_cell(tmp_path):
    path = lines(tmp_path / "metrics/rank_0.jsonl", *({"step": s, "loss": [1.0, 2.0], "tokens": 8.0} for s in (1, 2)))
    reading = read_metrics(path, FileContext())["training_steps"]
    assert reading.table.tokens.tolist() == [8.0, 8.0]
    assert reading.table.loss.isna().all()
    assert [(n.where, n.problem) for n in reading.notes] == [
        ("lines 1, 2", "Column loss holds something that is not float64.")
    ]


def test_bare_words_for_numbers_are_read_as_python_writes_them(tmp_path):
    path = lines(tmp_path / "metrics/rank_0.jsonl", '{"step": 1, "loss": NaN}', '{"step": 2, "loss": -Infinity}')
    reading = read_metrics(path, FileContext())["training_steps"]
    assert math.isnan(reading.table.loss[0])
    assert reading.table.loss[1] == -math.inf
    assert reading.table.loss_finite.tolist() == [False, False]
    assert reading.notes == []


def test_records_without_a_step_are_no_restart(tmp_path):
    path = lines(tmp_path / "metrics/rank_0.jsonl", {"loss": 3.0}, {"loss": 2.0}, {"step": 1, "loss": 1.0})
    reading = read_metrics(path, FileContext())["training_steps"]
    assert reading.table.step.tolist() == [1]
    assert [(n.where, n.problem) for n in reading.notes] == [("lines 1, 2", "A record without one of rank_id, step.")]


def test_an_empty_file_is_noted(tmp_path):
    path = lines(tmp_path / "metrics/rank_0.jsonl")
    reading = read_metrics(path, FileContext())["training_steps"]
    assert reading.table.empty
    assert [n.problem for n in reading.notes] == ["No intact record."]


def test_events_are_in_order_of_their_start(tmp_path):
    path = lines(
        tmp_path / "events/rank_1.jsonl",
        {"kind": "checkpoint", "start_ns": 20, "duration_us": 1.5, "step": 4, "name": "a.ckpt", "detail": {"bytes": 7}},
        {"kind": "start", "start_ns": 10},
    )
    events = read_events(path, FileContext(rank_id=1))["events"].table
    assert events.kind.tolist() == ["start", "checkpoint"]
    assert json.loads(events.detail[1]) == {"bytes": 7}
    assert math.isnan(events.duration_us[0])  # open, not 0


def test_the_last_evaluation_of_a_checkpoint_wins(tmp_path):
    row = {"checkpoint": "c-10", "step": 10, "subset": "code", "metric": "loss", "n": 8, "protocol": {"load": True}}
    path = lines(
        tmp_path / "evals/checkpoint.jsonl",
        row | {"value": 2.0, "evaluation_id": "a"},
        row | {"value": 1.5, "evaluation_id": "b"},
        row | {"value": 3.0, "evaluation_id": "b", "subset": "prose"},
    )
    reading = read_evals(path, FileContext())["evals"]
    assert reading.table[["subset", "value"]].to_numpy().tolist() == [["code", 1.5], ["prose", 3.0]]
    assert set(reading.table.kind) == {"checkpoint"}
    assert json.loads(reading.table.protocol[0]) == {"load": True}
    assert [n.where for n in reading.notes] == ["line 1"]


def test_telemetry_keeps_its_metrics(tmp_path):
    path = lines(
        tmp_path / "telemetry/node1_2.jsonl",
        {"host": "node1", "rank_id": 2, "time_ns": 5, "metric": "host_cpu_share", "value": 0.25},
        {"host": "node1", "time_ns": 6, "metric": "device_temperature_celsius", "value": 71},
    )
    table = read_telemetry(path, FileContext(rank_id=2))["telemetry"].table
    assert table.value.tolist() == [0.25, 71.0]
    assert table.rank_id.tolist() == [2, pd.NA]


def test_run_json_becomes_settings(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"run_id": "demo", "versions": {"mindspore": "2.10.0"}, "config": {"lr": 0.001}}))
    table = read_run_json(path, FileContext(root=tmp_path))["settings"].table
    values = dict(zip(table.name, table.value, strict=True))
    assert values == {"run_id": "demo", "versions.mindspore": "2.10.0", "config.lr": "0.001"}


def test_what_a_configuration_turns_off_is_a_setting(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"config": {"clip_norm": null}, "seed": null}')
    table = read_run_json(path, FileContext(root=tmp_path))["settings"].table
    assert dict(zip(table["name"], table["value"], strict=True)) == {"config.clip_norm": "null"}


def test_a_run_json_of_another_form_or_editor_is_read(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b'\xef\xbb\xbf{"run_id": "demo", "schema": 99}')
    reading = read_run_json(path, FileContext(root=tmp_path))["settings"]
    assert dict(zip(reading.table.name, reading.table.value, strict=True)) == {"run_id": "demo", "schema": "99"}
    assert [(n.file, n.where) for n in reading.notes] == [("run.json", "schema")]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe\x00"])
def test_a_damaged_run_json_says_what_to_do(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match="Fix: "):
        read_run_json(path, FileContext())


def test_eval_samples_are_checked(tmp_path):
    path = tmp_path / "eval_samples/c-10.parquet"
    path.parent.mkdir()
    pd.DataFrame({"subset": ["code"], "sample_id": ["s1"], "loss_nats": [12.5], "step": [10]}).to_parquet(path)
    table = read_eval_samples(path, FileContext())["eval_samples"].table
    assert list(table) == EVAL_SAMPLES.column_names
    assert table.loss_nats[0] == 12.5
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnreadableFileError, match="not a complete Parquet file"):
        read_eval_samples(path, FileContext())
