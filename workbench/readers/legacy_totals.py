"""Operator tables of MindInsight-era profiles (Ascend, MindSpore 1.0-2.4) -> kernel_totals.

Times are milliseconds, though no header says so; what is written as `percent` is per cent in 1.x and a fraction in 2.1
to 2.4, so shares are computed from the times. Source: mindspore/profiler/parser/ascend_op_generator.py and
ascend_msprof_generator.py of MindSpore 2.2 (which divides all times of op_summary by 1000).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.json_values import number
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.op_names import op_types
from workbench.readers.plain_lines import read_lines
from workbench.tables import KERNEL_TOTALS, Column, Note, Reading

US_PER_MS = 1e3
FLOPS_PER_MFLOPS = 1e6
FLOPS_PER_GFLOPS = 1e9
SHARE_PER_PERCENT = 0.01

DETAIL_NAMES = ("full_kernel_name", "full_op_name", "full_kernel_time", "full_op_time")
DETAIL_COLUMNS = (
    Column("name", "string", "operator; the last two headers are slips of early files", DETAIL_NAMES, required=True),
    Column("avg_ms", "float64", "mean of a call", ("task_duration", "execution_time"), required=True),
    Column("count", "float64", "calls", "execution_frequency"),
    Column("core_type", "string", "core", "task_type"),
)
TYPE_COLUMNS = (
    Column("op_type", "string", "type", ("kernel_type", "op_type"), required=True),
    Column(
        "time_ms", "float64", "AI-core file: sum; PyNative file: mean", ("total_time", "execution_time"), required=True
    ),
    Column("count", "float64", "calls", "execution_frequency", required=True),
)
FLOPS_HEADER = re.compile(rb"\s*(full_kernel_name|op_full_name|full_op_name), *M?FLOPs", re.IGNORECASE)
TOTAL_ROW = "total op"


def sniff_detail(path: Path, head: bytes) -> bool:
    """Header of aicore_intermediate_detail or pynative_op_intermediate_detail."""
    times = ("task_duration", "execution_time")
    return any(sniff_headers(head, (name, time), none_of=("op_type",)) for name in DETAIL_NAMES for time in times)


def read_detail(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the mean time of each operator; without a frequency column the number of calls is unknown."""
    raw = read_delimited(path, context, columns=DETAIL_COLUMNS)
    table = raw.table.assign(op_type=op_types(raw.table["name"]), avg_us=raw.table["avg_ms"] * US_PER_MS)
    if "count" in table:
        table["total_us"] = table["avg_us"] * table["count"]
    return _reading(table, raw.notes, _source(path, "intermediate_detail"), context)


def sniff_type(path: Path, head: bytes) -> bool:
    """Header of aicore_intermediate_type or pynative_op_intermediate_type."""
    names, times = ("kernel_type", "op_type"), ("total_time", "execution_time")
    return any(sniff_headers(head, (n, t, "execution_frequency", "percent")) for n in names for t in times)


def read_type(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the times per operator type.

    `total_time` is the sum over all calls. `execution_time` is the sum over the operators (AI core, 1.x; the frequency
    then counts operators) or, in files of PyNative runs, the mean over the calls: those are told by their name.
    """
    raw = read_delimited(path, context, columns=TYPE_COLUMNS)
    time_us = raw.table["time_ms"] * US_PER_MS
    is_mean = path.name.startswith("pynative")
    total = time_us * raw.table["count"] if is_mean else time_us
    table = raw.table.assign(total_us=total, avg_us=total / raw.table["count"].where(raw.table["count"] > 0))
    return _reading(table, raw.notes, _source(path, "intermediate_type"), context)


def sniff_compute_time(path: Path, head: bytes) -> bool:
    """Header of output_op_compute_time, below a banner."""
    return b"compute_time(ms)" in head[:1024] and b"op_name" in head[:1024]


def read_compute_time(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read output_op_compute_time: `name mean_ms stream`, blank separated; the last row is the sum and is left out."""
    lines = read_lines(path, context, _compute_time, what="'<operator> <ms> <stream>'")
    rows = [row for row in lines.records if row[0]]
    table = pd.DataFrame(rows, columns=["name", "avg_us"])
    return _reading(table.assign(op_type=op_types(table["name"])), lines.notes, "output_op_compute_time", context)


def _compute_time(line: str) -> tuple[str, float] | None:
    """Name and mean; an empty name for banner, header, rule and sum, which are no damage."""
    words = line.split()
    if set(line) <= set("=- ") or line.startswith(("=", "op_name", TOTAL_ROW)):
        return "", np.nan
    try:
        return (words[0], float(words[1]) * US_PER_MS) if len(words) == 3 and words[2].isdigit() else None
    except ValueError:
        return None


def sniff_flops(path: Path, head: bytes) -> bool:
    """Header of flops_<rank>.txt."""
    return bool(FLOPS_HEADER.match(head.removeprefix(b"\xef\xbb\xbf")))


def read_flops(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `name, operations (10^6), speed (10^9/s), use of the peak (%)` of each operator.

    The columns are taken by their order, for the headers FLOPs and FLOPS differ in case only.
    """
    lines = read_lines(path, context, _flops, what="an operator and three numbers", parse_torn=_torn_flops)
    rows = [row for row in lines.records if row[0]]
    table = pd.DataFrame(rows, columns=["name", "flops", "flops_per_s", "flops_utilization_share"])
    return _reading(table.assign(op_type=op_types(table["name"])), lines.notes, "flops", context)


def _flops(line: str) -> tuple[str, float, float, float] | None:
    """An operator in plain units; an empty name for the header, which is no damage."""
    if FLOPS_HEADER.match(line.encode()):
        return "", np.nan, np.nan, np.nan
    name, *cells = line.rsplit(",", 3)
    values = [number(cell.strip()) for cell in cells]
    if len(values) != 3 or np.isnan(values).any() or not name:
        return None
    return name.strip(), values[0] * FLOPS_PER_MFLOPS, values[1] * FLOPS_PER_GFLOPS, values[2] * SHARE_PER_PERCENT


def _torn_flops(line: str) -> tuple[str, float, float, float] | None:
    """All but the last number, which may be cut."""
    found = _flops(line)
    return (*found[:3], np.nan) if found else None


def _source(path: Path, what: str) -> str:
    return f"{'pynative' if path.name.startswith('pynative') else 'aicore'}_{what}"


def _reading(table: pd.DataFrame, notes: Sequence[Note], source: str, context: FileContext) -> dict[str, Reading]:
    table = table.assign(side="device", source=source, rank_id=context.rank_id, window=context.window)
    if "total_us" in table:
        total = table["total_us"].sum()
        table["share"] = table["total_us"] / total if total > 0 else np.nan
    return {"kernel_totals": Reading(KERNEL_TOTALS.check(table), list(notes))}


def _kind(
    name: str,
    meaning: str,
    sniff: Callable[[Path, bytes], bool],
    read: Callable[[Path, FileContext], dict[str, Reading]],
) -> FileKind:
    return FileKind(name=name, meaning=meaning, tables=("kernel_totals",), sniff=sniff, read=filled(read))


KINDS: tuple[FileKind, ...] = (
    _kind(
        "intermediate_detail",
        "aicore_ or pynative_op_intermediate_detail: per operator",
        or_named(sniff_detail, r"(aicore|pynative_op)_intermediate_\d+_detail\.csv"),
        read_detail,
    ),
    _kind(
        "intermediate_type",
        "aicore_ or pynative_op_intermediate_type: per operator type",
        or_named(sniff_type, r"(aicore|pynative_op)_intermediate_\d+_type\.csv"),
        read_type,
    ),
    _kind(
        "op_compute_time",
        "output_op_compute_time: mean time per operator",
        or_named(sniff_compute_time, r"output_op_compute_time_\d+\.txt"),
        read_compute_time,
    ),
    _kind(
        "flops",
        "flops_<rank>.txt: floating point operations per operator",
        or_named(sniff_flops, r"flops_\d+\.txt"),
        read_flops,
    ),
)
