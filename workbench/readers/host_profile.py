"""Operator files of CPU and GPU profiles -> kernels, kernel_totals, graph_ops, memory_timeline.

CPU: `*_ascend_ms/FRAMEWORK/cpu_*` of MindSpore 2.5 and later; GPU: `profiler/gpu_*` of MindSpore 1.x-2.4. The files
look alike, but where a header states no unit, CPU files count in ms and GPU files in us; shares are fractions in both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.op_names import communicates, op_types
from workbench.readers.plain_lines import bad_lines_notes, read_lines, share_of_lines
from workbench.tables import GRAPH_OPS, KERNEL_TOTALS, KERNELS, MEMORY_TIMELINE, Column, Note, Reading

TIMESTAMP_LINE = re.compile(r"[^;]+;(HostCpuOps|GpuOps);.*")
CPU_CALL = re.compile(r"(\d{1,19}),(\d+(?:\.\d*)?(?:e[-+]?\d+)?),(\d{1,18})")
GPU_CALL = re.compile(r"(\d{1,19}),(\d+(?:\.\d*)?(?:e[-+]?\d+)?)()")
FRAMEWORK_LINE = re.compile(r"[^;]+;[^;]+;\d+;(input_\d+:[^;]*;)*")
INPUT = re.compile(r"input_\d+:\s*[\[(]?([^;\])]*)")
US_PER_MS = 1e3
LARGEST = 2**63

Sniff = Callable[[Path, bytes], bool]
Read = Callable[[Path, FileContext], dict[str, Reading]]
Call = tuple[str, str, int, float, int | None]  # name, core, start_ns, duration_us, thread

DETAIL_COLUMNS = (
    Column("name", "string", "operator", ("full_op_name", "op_full_name"), required=True),
    Column("op_type", "string", "type", "op_type", required=True),
    Column("side", "string", "Host or Device", "op_side"),
    Column("count", "float64", "calls", "op_occurrences"),
    Column("total_us", "float64", "sum", ("op_total_time(ms)", "op_total_time(us)")),
    Column("avg_us", "float64", "mean", ("op_avg_time(ms)", "op_avg_time(us)")),
    Column("share", "float64", "fraction of 1", "total_proportion"),
)
TYPE_COLUMNS = (
    Column("op_type", "string", "type", "op_type", required=True),
    Column("count", "float64", "calls", "type_occurrences", required=True),
    Column("total_ms", "float64", "sum, CPU files, ms without saying so", "total_compute_time"),
    Column("total_us", "float64", "sum, GPU files", "total_time(us)"),
    Column("avg_us", "float64", "mean", ("avg_time(ms)", "avg_time(us)")),
    Column("share", "float64", "fraction of 1", ("percent", "total_proportion")),
)
ACTIVITY_COLUMNS = (
    Column("kernel", "string", "CUDA kernel", "name", required=True),
    Column("op_name", "string", "operator that launched it", "op_full_name", required=True),
    Column("count", "float64", "launches", "occurrences"),
    Column("total_us", "float64", "sum", "total_duration(us)"),
    Column("avg_us", "float64", "mean", "avg_duration(us)"),
    Column("max_us", "float64", "longest", "max_duration(us)"),
    Column("min_us", "float64", "shortest", "min_duration(us)"),
)


def sniff_timestamps(path: Path, head: bytes) -> bool:
    """Lines `name;HostCpuOps;...` or `name;GpuOps;...`; a line may be longer than what is looked at."""
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return bool(TIMESTAMP_LINE.fullmatch(first)) or share_of_lines(head, TIMESTAMP_LINE) > 0.5


def read_timestamps(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `cpu_op_execute_timestamp` (`start_ns,duration_ms,thread` per call) or the GPU one (`start_ns,duration_us`).

    `start_ns` is the wall clock, ns since the epoch. Rows are ordered by start.
    """
    lines = read_lines(path, context, _calls, what="an operator and its calls", parse_torn=_calls_of_torn)
    broken = [n for n, (_, whole) in zip(lines.numbers, lines.records, strict=True) if not whole]
    notes = lines.notes + bad_lines_notes(context.name(path), broken, "intact in all their calls")
    calls = [call for of_line, _ in lines.records for call in of_line]
    frame = pd.DataFrame(calls, columns=["name", "accelerator_core", "start_ns", "duration_us", "stream_id"])
    frame["op_type"] = op_types(frame["name"])
    frame["is_communication"] = communicates(frame["op_type"])
    frame = frame.astype({"stream_id": "Int64"}).sort_values("start_ns", kind="stable")
    return {"kernels": Reading(KERNELS.check(frame.assign(**_place(context))), notes)}


def _calls(line: str) -> tuple[list[Call], bool] | None:
    """The calls in a line, and whether all could be read; None where the line is none."""
    parts = line.rsplit(";", 2)
    if len(parts) != 3 or parts[1] not in ("HostCpuOps", "GpuOps") or not parts[0]:
        return None
    on_cpu = parts[1] == "HostCpuOps"
    pattern, core, scale = (CPU_CALL, "CPU", US_PER_MS) if on_cpu else (GPU_CALL, "GPU", 1.0)
    words = parts[2].split()
    calls: list[Call] = []
    for word in words:
        found = pattern.fullmatch(word)
        if found and (start := int(found[1])) < LARGEST:
            calls.append((parts[0], core, start, float(found[2]) * scale, int(found[3]) if found[3] else None))
    return calls, len(calls) == len(words)


def _calls_of_torn(line: str) -> tuple[list[Call], bool] | None:
    """All calls but the last, which may be cut."""
    return _calls(line.rsplit(" ", 1)[0]) if " " in line else None


def sniff_framework(path: Path, head: bytes) -> bool:
    """Lines `type;name;graph;input_1:[...];`."""
    return share_of_lines(head, FRAMEWORK_LINE) > 0.5


def read_framework(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `cpu_framework` or `gpu_framework`: the input shapes of each call; equal calls are counted in one row."""
    lines = read_lines(path, context, _framework, what="'type;name;graph;inputs'")
    counted = Counter(lines.records)
    frame = pd.DataFrame([(*key, n) for key, n in counted.items()], columns=[*_FRAMEWORK_NAMES, "count"])
    return {"graph_ops": Reading(GRAPH_OPS.check(frame.assign(**_place(context))), lines.notes)}


_FRAMEWORK_NAMES = ("op_type", "name", "graph_id", "input_shapes")


def _framework(line: str) -> tuple[str, str, str, str] | None:
    if not FRAMEWORK_LINE.fullmatch(line):
        return None
    op_type, name, graph, inputs = line.split(";", 3)
    shapes = [shape.replace(" ", "") for shape in INPUT.findall(inputs)]
    return op_type, name, graph, ";".join("" if shape == "NoShape" else shape for shape in shapes)


def sniff_detail(path: Path, head: bytes) -> bool:
    """Header of cpu_op_detail_info or gpu_op_detail_info."""
    return sniff_headers(head, ("op_side", "op_type", "op_name", "op_occurrences"))


def read_detail(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read totals per operator; the unit is in the headers."""
    raw = read_delimited(path, context, columns=DETAIL_COLUMNS)
    side = raw.table["side"].str.lower() if "side" in raw.table else "host"
    return _totals(raw.table.assign(side=side), raw.notes, "op_detail_info", context)


def sniff_types(path: Path, head: bytes) -> bool:
    """Header of cpu_op_type_info or gpu_op_type_info."""
    common = ("op_type", "type_occurrences")
    return any(sniff_headers(head, (*common, time)) for time in ("total_compute_time", "total_time(us)"))


def read_types(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read totals per operator type: total time in ms without saying so on CPU, in us on GPU."""
    raw = read_delimited(path, context, columns=TYPE_COLUMNS)
    table = raw.table
    if "total_ms" in table:
        table = table.assign(total_us=table["total_ms"] * US_PER_MS, side="host")
    else:
        table = table.assign(side="device")
    return _totals(table, raw.notes, "op_type_info", context)


def sniff_activity(path: Path, head: bytes) -> bool:
    """Header of gpu_activity_data."""
    return sniff_headers(head, ("name", "op_full_name", "occurrences", "total_duration(us)"))


def read_activity(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read totals per CUDA kernel; the name is `<operator>/<kernel>`, the type that of the operator."""
    raw = read_delimited(path, context, columns=ACTIVITY_COLUMNS)
    table = raw.table.reindex(columns=[c.name for c in ACTIVITY_COLUMNS])
    name = (table["op_name"] + "/" + table["kernel"]).fillna(table["kernel"])
    table = table.assign(name=name, op_type=op_types(table["op_name"]), side="device", core_type="CUDA")
    return _totals(table.assign(share=table["total_us"] / table["total_us"].sum()), raw.notes, "gpu_activity", context)


def _totals(table: pd.DataFrame, notes: Sequence[Note], source: str, context: FileContext) -> dict[str, Reading]:
    checked = KERNEL_TOTALS.check(table.assign(source=source, **_place(context)))
    return {"kernel_totals": Reading(checked, list(notes))}


def sniff_memory(path: Path, head: bytes) -> bool:
    """Header of cpu_ms_memory_record."""
    return sniff_headers(head, ("Timestamp(ns)", "Total Allocated(Byte)"))


def read_memory(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the pool's curve, one row per allocation or release, ns since the epoch and bytes.

    Parameters that were made before the window are not in it, and the reserved size begins at 1 GiB (MindSpore 2.10).
    """
    raw = read_delimited(path, context, columns=MEMORY_TIMELINE)
    table = MEMORY_TIMELINE.check(raw.table.assign(component="CPU", device="CPU", **_place(context)))
    return {"memory_timeline": Reading(table, raw.notes)}


def _place(context: FileContext) -> dict[str, int]:
    return {"rank_id": context.rank_id, "window": context.window}


def _kind(name: str, meaning: str, table: str, sniff: Sniff, read: Read) -> FileKind:
    return FileKind(name=name, meaning=meaning, tables=(table,), sniff=sniff, read=filled(read))


KINDS: tuple[FileKind, ...] = (
    _kind(
        "op_timestamps",
        "cpu_ or gpu_op_execute_timestamp: every call",
        "kernels",
        or_named(sniff_timestamps, r"(cpu|gpu)_op_execute_timestamp_\d+\.txt"),
        read_timestamps,
    ),
    _kind(
        "op_framework",
        "cpu_ or gpu_framework: input shapes of calls",
        "graph_ops",
        or_named(sniff_framework, r"(cpu|gpu)_framework_\d+\.txt"),
        read_framework,
    ),
    _kind(
        "op_detail_info",
        "cpu_ or gpu_op_detail_info: per operator",
        "kernel_totals",
        or_named(sniff_detail, r"(cpu|gpu)_op_detail_info_\d+\.csv"),
        read_detail,
    ),
    _kind(
        "op_type_info",
        "cpu_ or gpu_op_type_info: per operator type",
        "kernel_totals",
        or_named(sniff_types, r"(cpu|gpu)_op_type_info_\d+\.csv"),
        read_types,
    ),
    _kind(
        "gpu_activity",
        "gpu_activity_data: per CUDA kernel",
        "kernel_totals",
        or_named(sniff_activity, r"gpu_activity_data_\d+\.csv"),
        read_activity,
    ),
    _kind(
        "cpu_memory",
        "cpu_ms_memory_record: memory pool of a CPU run",
        "memory_timeline",
        or_named(sniff_memory, r"cpu_ms_memory_record_\d+\.txt"),
        read_memory,
    ),
)
