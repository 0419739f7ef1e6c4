"""Task lists of MindInsight-era profiles (Ascend, MindSpore 1.0-2.4) -> kernels; operator lists -> graph_ops.

Starts are on the device's clock (since boot), not times of day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from workbench.readers.delimited import read_delimited, read_json, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.json_values import integer, items, listed, member, number, text
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.op_names import communicates, op_types
from workbench.readers.plain_lines import bad_lines_notes, read_lines
from workbench.tables import GRAPH_OPS, KERNELS, Column, Note, Reading

US_PER_MS = 1e3
NS_PER_US = 1_000

TIMELINE_STARTS = ("start_time(ms)", "start_time(us)")
TIMELINE_COLUMNS = (
    Column("name", "string", "operator", "op_name", required=True),
    Column("stream_id", "Int64", "stream", "stream_id"),
    Column("start_ns", "Int64", "since boot", TIMELINE_STARTS, required=True),
    Column("duration_us", "float64", "run time", "duration(ms)", required=True),
)
AICPU_NUMBERS = ("total_time", "dispatch_time", "execution_time", "run_start", "run_end")
AICPU_COLUMNS = (
    Column("serial_number", "Int64", "running number", "serial_number"),
    Column("op_type", "string", "type", ("op_type", "kernel_type", "node_type_name"), required=True),
    *(Column(name, "float64", "ms, or us", name, required=name == "total_time") for name in AICPU_NUMBERS),
)
AICPU_TABLE_HEADER = re.compile(r"serial_number\s+node_type_name\s+total_time\(ms\)")
FRAMEWORK_COLUMNS = (
    Column("name", "string", "operator with scope", ("full_kernel_name", "full_op_name"), required=True),
    Column("op_type", "string", "type", ("op_type", "kernel_type"), required=True),
    Column("task_id", "Int64", "task", "task_id"),
    Column("stream_id", "Int64", "stream", "stream_id"),
    Column("graph_id", "string", "graph", ("graph_id", "model_id", "subgraph")),
    Column("op_info", "string", "inputs and outputs, JSON", "op_info"),
)
TENSOR = re.compile(r"(input|output)_(\d+)", re.IGNORECASE)


def sniff_timeline(path: Path, head: bytes) -> bool:
    """Header of output_timeline_data."""
    return any(sniff_headers(head, ("op_name", "stream_id", start, "duration(ms)")) for start in TIMELINE_STARTS)


def read_timeline(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read output_timeline_data: every task of the AI cores.

    MindSpore 2.1 and later write `start_time(us)` above milliseconds: where the tasks of a stream would overlap if the
    header were right, the starts are taken as ms.
    """
    raw = read_delimited(path, context, columns=TIMELINE_COLUMNS)
    table = raw.table.reindex(columns=[c.name for c in TIMELINE_COLUMNS])
    if TIMELINE_STARTS[1] in (header.strip() for header in raw.headers) and _overlaps(table):
        table["start_ns"] *= int(US_PER_MS)
    types = op_types(table["name"])
    table = table.assign(op_type=types, is_communication=communicates(types), **_place(context))
    return {"kernels": Reading(KERNELS.check(table), raw.notes)}


def _overlaps(table: pd.DataFrame) -> bool:
    """Whether more than half of the tasks' time lies over the next task of the same stream."""
    known = table.dropna(subset=["start_ns", "duration_us"]).sort_values("start_ns")
    gaps_us = known.groupby("stream_id")["start_ns"].diff(-1).abs() / NS_PER_US
    gaps_us = gaps_us.astype("float64")
    excess = (known["duration_us"] - gaps_us).clip(lower=0).sum()
    return len(known) > 1 and bool(excess > 0.5 * known["duration_us"].sum())


def sniff_aicpu_csv(path: Path, head: bytes) -> bool:
    """Header of aicpu_intermediate."""
    return sniff_headers(head, ("serial_number", "total_time", "dispatch_time"))


def read_aicpu_csv(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read aicpu_intermediate: AI-CPU tasks, comma separated."""
    raw = read_delimited(path, context, columns=AICPU_COLUMNS)
    return _aicpu_reading(raw.table.reindex(columns=[c.name for c in AICPU_COLUMNS]), raw.notes, context)


def sniff_aicpu_text(path: Path, head: bytes) -> bool:
    """Header of output_data_preprocess_aicpu."""
    return bool(AICPU_TABLE_HEADER.match(head[:512].decode("utf-8", "replace").lstrip()))


def read_aicpu_text(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read output_data_preprocess_aicpu: AI-CPU tasks, blank separated.

    Six names or seven, with or without execution_time; the last row is the sum and is left out.
    """
    lines = read_lines(path, context, _aicpu_words, what="a row of numbers")
    header = next((words for words in lines.records if words[:1] == ["serial_number"]), [])
    names = [word.split("(")[0].replace("node_type_name", "op_type") for word in header]
    rows = [(n, words) for n, words in zip(lines.numbers, lines.records, strict=True) if words and words[0].isdigit()]
    bad = [n for n, words in rows if len(words) != len(names)]
    table = pd.DataFrame([dict(zip(names, words, strict=True)) for _, words in rows if len(words) == len(names)])
    table = table.reindex(columns=[c.name for c in AICPU_COLUMNS])
    for name in ("serial_number", *AICPU_NUMBERS):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    notes = lines.notes + bad_lines_notes(context.name(path), bad, f"rows of {len(names)} cells")
    return _aicpu_reading(table, notes, context)


def _aicpu_words(line: str) -> list[str] | None:
    """The words of a row; an empty list for the rule and the sum; None for anything else."""
    if set(line) <= set("- ") or line.startswith("AI CPU Total Time"):
        return []
    words = line.split()
    return words if words[0] == "serial_number" or words[0].isdigit() else None


def _aicpu_reading(table: pd.DataFrame, notes: list[Note], context: FileContext) -> dict[str, Reading]:
    """Run times are ms. run_start and run_end are us in 1.x and ms from 2.1 on: told by their difference."""
    run = table["run_end"] - table["run_start"]
    difference = (run - table["total_time"]).abs()
    is_ms = len(table) > 0 and bool((difference <= 0.01 * table["total_time"] + 1e-3).mean() > 0.5)
    run_us = run * (US_PER_MS if is_ms else 1.0)
    start_us = table["run_start"] * (US_PER_MS if is_ms else 1.0)
    frame = pd.DataFrame(
        {
            "name": table["op_type"],
            "op_type": table["op_type"],
            "start_ns": (start_us * NS_PER_US).round().astype("Int64"),
            "duration_us": (table["execution_time"] * US_PER_MS).fillna(run_us),
            "wait_us": table["dispatch_time"] * US_PER_MS,
        }
    ).assign(accelerator_core="AI_CPU", is_communication=False, **_place(context))
    return {"kernels": Reading(KERNELS.check(frame), notes)}


def sniff_framework(path: Path, head: bytes) -> bool:
    """Header of framework_raw."""
    return any(sniff_headers(head, ("task_id", name, "op_info")) for name in ("full_op_name", "full_kernel_name"))


def read_framework(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read framework_raw: operators of the graph with shapes; `op_info` is a JSON cell, an empty shape is a scalar."""
    raw = read_delimited(path, context, columns=FRAMEWORK_COLUMNS)
    table = raw.table.reindex(columns=[c.name for c in FRAMEWORK_COLUMNS])
    infos = [_op_info(cell) for cell in table["op_info"]]
    tensors = pd.DataFrame(
        {
            f"{side}_{what}": [_joined(info, side, key) for info in infos]
            for side in ("input", "output")
            for what, key in (("shapes", "shape"), ("dtypes", "data_type"))
        },
        index=table.index,
    )
    notes = raw.notes + _info_notes(table["op_info"], infos, context.name(path))
    checked = GRAPH_OPS.check(table.join(tensors).assign(**_place(context)))
    return {"graph_ops": Reading(checked, notes)}


def _op_info(cell: object) -> Mapping[str, Any] | None:
    try:
        value = msgspec.json.decode(cell) if isinstance(cell, str) else {}
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _joined(info: Mapping[str, Any] | None, side: str, key: str) -> str | None:
    """The shapes or types of all inputs or outputs, in the order of their numbers."""
    found = [
        (int(m[2]), value)
        for name, value in (info or {}).items()
        if (m := TENSOR.fullmatch(name)) and m[1].lower() == side
    ]
    if not found:
        return None
    return ";".join(_cell(member(value, key)) for _, value in sorted(found, key=lambda f: f[0]))


def _cell(value: object) -> str:
    return ",".join(str(v) for v in value) if isinstance(value, list) else text(value) or ""


def _info_notes(cells: pd.Series, infos: list[Mapping[str, Any] | None], file: str) -> list[Note]:
    bad = int(np.sum([info is None for info in infos]))
    if not bad:
        return []
    problem = f"{bad} of {len(cells)} cells are not JSON."
    fix = "copy the file again from the training host"
    return [Note(file=file, where="column op_info", problem=problem, lost="shapes and types of these rows", fix=fix)]


def sniff_dynamic_shapes(path: Path, head: bytes) -> bool:
    """A JSON object of operators per step with their shapes."""
    return head.lstrip()[:1] == b"{" and all(k in head for k in (b'"operator"', b'"op_side"', b'"shape_info"'))


def read_dynamic_shapes(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read dynamic_shape_info: each call with its shapes, per step; `dur` is us."""
    value, notes = read_json(path, context, expect=dict)
    steps = member(value, "operator")
    rows = [
        {
            "step": integer(op.get("step", step)),
            "name": text(op.get("op_name")),
            "op_type": text(op.get("op_type")),
            "accelerator_core": (text(op.get("op_side")) or "").upper() or None,
            "duration_us": number(op.get("dur")),
            "input_shapes": ";".join(str(s).strip("[]").replace(" ", "") for s in listed(op.get("shape_info"))),
        }
        for step, ops in (steps.items() if isinstance(steps, dict) else ())
        for op in items(ops)
    ]
    names = ["step", "name", "op_type", "accelerator_core", "duration_us", "input_shapes"]
    frame = pd.DataFrame(rows, columns=names).assign(**_place(context))
    frame["is_communication"] = communicates(frame["op_type"])
    return {"kernels": Reading(KERNELS.check(frame), notes)}


def _place(context: FileContext) -> dict[str, int]:
    return {"rank_id": context.rank_id, "window": context.window}


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="output_timeline",
        meaning="output_timeline_data: every task of the AI cores",
        tables=("kernels",),
        sniff=or_named(sniff_timeline, r"output_timeline_data_\d+\.txt"),
        read=filled(read_timeline),
    ),
    FileKind(
        name="aicpu_csv",
        meaning="aicpu_intermediate: AI-CPU tasks",
        tables=("kernels",),
        sniff=or_named(sniff_aicpu_csv, r"aicpu_intermediate_\d+\.csv"),
        read=filled(read_aicpu_csv),
    ),
    FileKind(
        name="aicpu_text",
        meaning="output_data_preprocess_aicpu: AI-CPU tasks",
        tables=("kernels",),
        sniff=or_named(sniff_aicpu_text, r"output_data_preprocess_aicpu_\d+\.txt"),
        read=filled(read_aicpu_text),
    ),
    FileKind(
        name="framework_raw",
        meaning="framework_raw: operators of the graph with shapes",
        tables=("graph_ops",),
        sniff=or_named(sniff_framework, r"framework_raw_\d+\.csv"),
        read=filled(read_framework),
    ),
    FileKind(
        name="dynamic_shapes",
        meaning="dynamic_shape_info: calls with their shapes, per step",
        tables=("kernels",),
        sniff=or_named(sniff_dynamic_shapes, r"dynamic_shape_info_\d+\.json"),
        read=filled(read_dynamic_shapes),
    ),
)
