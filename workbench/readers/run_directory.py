"""The run directory that the Recorder and the evaluations write -> tables. File names: `workbench.files.RunFiles`."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.files import RUN_SCHEMA
from workbench.readers.kinds import FileContext, FileKind, in_folder
from workbench.readers.parquet_file import read_parquet
from workbench.readers.records import (
    NumberedRecords,
    Record,
    last_of_each,
    read_bytes,
    read_json_lines,
    records_to_table,
    shown_lines,
)
from workbench.tables import (
    EVAL_SAMPLES,
    EVALS,
    EVENTS,
    PARAMETER_GROUPS,
    SETTINGS,
    TELEMETRY,
    TRAINING_STEPS,
    Note,
    Reading,
    Table,
)

RUN_KEYS = ("schema", "run_id")


def read_metrics(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `metrics/rank_<r>.jsonl` into `training_steps` and `parameter_groups`, in step order.

    A step that occurs twice (the run was restarted from a checkpoint) keeps its last record, with a note.
    """
    file = context.name(path)
    rows, notes = read_json_lines(path, context)
    rows, dropped = last_of_each(rows, ["step"])
    if dropped:
        notes.append(_repeated(file, dropped, "step"))
    constants: dict[str, object] = {"rank_id": context.rank_id, "source": file}
    completed = NumberedRecords([_with_finiteness(r) for r in rows.records], rows.lines)
    steps = records_to_table(TRAINING_STEPS, completed, file=file, constants=constants)
    groups = records_to_table(PARAMETER_GROUPS, _group_records(rows), file=file, constants={"rank_id": context.rank_id})
    return {
        "training_steps": Reading(_with_ratio(steps.table).sort_values("step", ignore_index=True), notes + steps.notes),
        "parameter_groups": Reading(_with_ratio(groups.table).sort_values("step", ignore_index=True), groups.notes),
    }


def _with_finiteness(record: Record) -> Record:
    loss = record.get("loss")
    if loss is None or isinstance(record.get("loss_finite"), bool):
        return record
    if isinstance(loss, str):  # a writer whose JSON has no NaN, or one that writes every number as text
        try:
            return record | {"loss_finite": math.isfinite(float(loss))}
        except ValueError:
            return record
    return record | {"loss_finite": True}


def _group_records(rows: NumberedRecords) -> NumberedRecords:
    flat = NumberedRecords([], [])
    for record, line in zip(rows.records, rows.lines, strict=True):
        groups = record.get("groups")
        for group, norms in (groups if isinstance(groups, dict) else {}).items():
            pair = [*norms, None, None][:2] if isinstance(norms, list) else [None, None]
            flat.records.append(
                {"step": record.get("step"), "group": group, "gradient_norm": pair[0], "parameter_norm": pair[1]}
            )
            flat.lines.append(line)
    return flat


def _with_ratio(table: pd.DataFrame) -> pd.DataFrame:
    ratio = table.gradient_norm / table.parameter_norm.where(table.parameter_norm > 0)
    return table.assign(gradient_parameter_ratio=table.gradient_parameter_ratio.fillna(ratio))


def _repeated(file: str, lines: list[int], what: str) -> Note:
    return Note(
        file=file,
        where=shown_lines(lines),
        problem=f"Records of the same {what} follow later in the file: the run was restarted or repeated.",
        lost=f"{len(lines)} earlier record(s); the last of each {what} is kept",
        fix="nothing, if that is what happened; else give each run its own directory",
    )


def read_events(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `events/rank_<r>.jsonl` into `events`, in order of their start."""
    rows, notes = read_json_lines(path, context)
    reading = records_to_table(EVENTS, rows, file=context.name(path), constants={"rank_id": context.rank_id})
    ordered = reading.table.sort_values("start_ns", kind="stable", ignore_index=True)
    return {"events": Reading(ordered, notes + reading.notes)}


def read_evals(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `evals/<kind>.jsonl` into `evals`: of a model state that was evaluated twice, the last evaluation."""
    rows, notes = read_json_lines(path, context)
    rows, dropped = last_of_each(rows, ["checkpoint", "step", "subset", "metric"])
    if dropped:
        notes.append(_repeated(context.name(path), dropped, "model state, subset and metric"))
    reading = records_to_table(EVALS, rows, file=context.name(path), constants={"kind": path.stem})
    return {"evals": Reading(reading.table, notes + reading.notes)}


def read_telemetry(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `telemetry/<host>_<r>.jsonl` into `telemetry`."""
    rows, notes = read_json_lines(path, context)
    reading = records_to_table(TELEMETRY, rows, file=context.name(path))
    return {"telemetry": Reading(reading.table, notes + reading.notes)}


def read_eval_samples(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one `eval_samples/*.parquet` into `eval_samples`.

    Raises:
        UnreadableFileError: it is not a complete Parquet file.
        MissingColumnsError: it lacks a required column.
    """
    return read_parquet(
        EVAL_SAMPLES, path, context, fix="evaluate the checkpoint again with `workbench report RUN --checkpoint NAME`"
    )


def read_run_json(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `run.json` into `settings`, one row per value, nested keys joined with dots.

    Raises:
        UnreadableFileError: it is not a JSON object.
    """
    info = read_run_info(path)
    pairs = list(_flat("", info))
    frame = pd.DataFrame({"name": [n for n, _ in pairs], "value": [v for _, v in pairs]}, dtype="string")
    notes = [] if info.get("schema", RUN_SCHEMA) == RUN_SCHEMA else [_other_schema(context.name(path), info["schema"])]
    return {"settings": Reading(SETTINGS.check(frame.assign(source=context.name(path))), notes)}


def _other_schema(file: str, schema: object) -> Note:
    return Note(
        file=file,
        where="schema",
        problem=f"The run was written in form {schema!r}; this version of the workbench knows form {RUN_SCHEMA}.",
        lost="perhaps what the other form calls by other names",
        fix="read the run with the version that wrote it (versions in run.json), or a newer one",
    )


def read_run_info(path: Path) -> dict[str, Any]:
    """The object in `run.json`.

    Raises:
        UnreadableFileError: it is not a JSON object.
    """
    try:
        info = msgspec.json.decode(read_bytes(path).removeprefix(codecs.BOM_UTF8))  # some editors put it there
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise UnreadableFileError(
            f"{path} is not a JSON object: the description of the run (configuration, versions) is lost.",
            fix="restore it from a backup; metrics and evaluations are read without it",
        )
    return info


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif prefix and (value is not None or prefix.startswith("config.")):  # `clip_norm: null` says that it is off
        yield prefix, value if isinstance(value, str) else msgspec.json.encode(value).decode()


def sniff_run_json(path: Path, _head: bytes) -> bool:
    """Whether `path` is the description of one of our runs."""
    return path.name == "run.json"


def _kind(name: str, meaning: str, tables: tuple[Table, ...], sniff: Any, read: Any) -> FileKind:
    return FileKind(name=name, meaning=meaning, tables=tuple(t.name for t in tables), sniff=sniff, read=read)


KINDS: tuple[FileKind, ...] = (
    _kind("run_json", "description of a recorded run", (SETTINGS,), sniff_run_json, read_run_json),
    _kind(
        "run_metrics",
        "recorded training steps of one rank",
        (TRAINING_STEPS, PARAMETER_GROUPS),
        in_folder("metrics", r"rank_\d+\.jsonl"),
        read_metrics,
    ),
    _kind("run_events", "recorded events of one rank", (EVENTS,), in_folder("events", r"rank_\d+\.jsonl"), read_events),
    _kind("run_evals", "recorded evaluations", (EVALS,), in_folder("evals", r"[a-z_]+\.jsonl"), read_evals),
    _kind(
        "run_eval_samples",
        "scores of single samples",
        (EVAL_SAMPLES,),
        in_folder("eval_samples", r".+\.parquet"),
        read_eval_samples,
    ),
    _kind(
        "run_telemetry",
        "host and device samples",
        (TELEMETRY,),
        in_folder("telemetry", r".+\.jsonl"),
        read_telemetry,
    ),
)
