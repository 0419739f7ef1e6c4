"""Allocations of the memory tracker (memory_block.csv) and of hand-made tables -> tensor_lifetimes.

Source: mindspore/ccsrc/backend/common/mem_reuse/mem_tracker.cc (columns; blocks of the CPU pool are left out by the
writer; a block without a known producer has empty cells). Its time stamps count tasks and are no clock.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path

import pandas as pd

from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.tables import TENSOR_LIFETIMES, Column, Note, Reading

NEVER_FREED = frozenset({2**63 - 1, 2**64 - 1, 2**32 - 1, -1})  # INT64_MAX is what the tracker starts with
TRACKER_COLUMNS = (
    Column("node", "string", "node that asked for it", "node_name"),
    Column("task_name", "string", "task that asked for it", "task_name"),
    Column("size_bytes", "float64", "bytes", "size", required=True),
    Column("allocated", "string", "task counter", "start_time_stamp", required=True),
    Column("freed", "string", "task counter", "end_time_stamp", required=True),
    Column("address", "string", "device address", "device_addr"),
    Column("stream_id", "string", "stream", "stream_id"),
    Column("kind", "string", "memory type", "type"),
    Column("pool", "string", "pool", "pool_type"),
    Column("allocated_total_bytes", "float64", "pool in use", "actual_used_memory"),
    Column("stack", "string", "Python stack", "python_stack"),
)
ALIAS_COLUMNS = (
    Column("name", "string", "operator", "op_name", required=True),
    Column("size_bytes", "float64", "bytes", "size_bytes", required=True),
    Column("allocated", "string", "number of unknown unit", "alloc_time", required=True),
    Column("freed", "string", "number of unknown unit", "free_time", required=True),
    Column("last_used", "string", "number of unknown unit", ("last_use_time", "last_used_at", "last_used_time")),
    Column("address", "string", "address", "addr"),
    Column("device_id", "Int64", "card", "device_id"),
)
# (smallest value, ns per unit) of a time of day after 2001: ns, us, ms or s since the epoch
EPOCH_UNITS = ((10**18, 1), (10**15, 10**3), (10**12, 10**6), (10**9, 10**9))
FRACTION_SCALE = 10**6


def sniff_tracker(path: Path, head: bytes) -> bool:
    """Header of memory_block.csv."""
    return sniff_headers(head, ("start_time_stamp", "end_time_stamp", "device_addr", "size"))


def read_tracker(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read memory_block.csv; `clock` is task. Python stacks hold paths of the training host."""
    raw = read_delimited(path, context, columns=TRACKER_COLUMNS)
    table = raw.table.reindex(columns=[c.name for c in TRACKER_COLUMNS])
    table = table.assign(
        name=table["node"].fillna(table["task_name"]).fillna(table["kind"]).fillna("unknown"),
        kind=table["kind"].fillna(table["pool"]),
        allocated_at=_times(table["allocated"], 1),
        freed_at=_times(table["freed"], 1),
        clock="task",
    )
    notes = raw.notes
    if table.empty:
        notes = [*notes, _no_blocks_note(context.name(path))]
    return _reading(table, notes, context.name(path), context)


def sniff_alias(path: Path, head: bytes) -> bool:
    """The column names under which articles show such a table."""
    return sniff_headers(head, ("op_name", "size_bytes", "alloc_time", "free_time"))


def read_alias(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `op_name, tensor_id, size_bytes, alloc_time, free_time, device_id, addr`, and `last_use_time` where it is.

    Times that lie after 2001 as s, ms, us or ns since the epoch become ns (`clock` ns). Anything else is a counter or a
    clock of its own: the numbers are kept (fractions times a million, with a note) and `clock` is task.
    """
    raw = read_delimited(path, context, columns=ALIAS_COLUMNS)
    table = raw.table.reindex(columns=[c.name for c in ALIAS_COLUMNS])
    numbers = [n for n in (_decimal(cell) for cell in table["allocated"]) if n is not None]
    scale, clock = _scale(numbers)
    notes = [*raw.notes, _fractions_note(context.name(path))] if clock == "task" and scale != 1 else raw.notes
    table = table.assign(
        allocated_at=_times(table["allocated"], scale),
        freed_at=_times(table["freed"], scale),
        last_used_at=_times(table["last_used"], scale),
        clock=clock,
    )
    return _reading(table, notes, context.name(path), context)


def _scale(numbers: list[Decimal]) -> tuple[int, str]:
    """What to multiply the times with, and the clock that gives."""
    smallest = min(numbers, default=Decimal(0))
    if smallest < 10**19:
        for least, ns_per_unit in EPOCH_UNITS:
            if smallest >= least:
                return ns_per_unit, "ns"
    return (FRACTION_SCALE if any(n != n.to_integral_value() for n in numbers) else 1), "task"


def _times(cells: pd.Series, scale: int) -> pd.Series:
    """Int64, exact; missing for empty cells, for what is no number and for blocks that were never freed."""
    values: list[int | None] = []
    for cell in cells:
        number = _decimal(cell)
        whole = None if number is None or number in NEVER_FREED else round(number * scale)
        values.append(whole if whole is not None and abs(whole) < 2**63 else None)
    return pd.Series(pd.array(values, dtype="Int64"), index=cells.index)


def _decimal(cell: object) -> Decimal | None:
    try:
        number = Decimal(cell) if isinstance(cell, str) else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() and abs(number) < Decimal(10**30) else None


def _reading(table: pd.DataFrame, notes: list[Note], file: str, context: FileContext) -> dict[str, Reading]:
    checked = TENSOR_LIFETIMES.check(table.assign(rank_id=context.rank_id, window=context.window))
    for column in ("allocated", "freed"):
        bad = sum(isinstance(cell, str) and _decimal(cell) is None for cell in table[column])
        if bad:
            notes = [*notes, _bad_times_note(file, column, bad)]
    return {"tensor_lifetimes": Reading(checked, notes)}


def _bad_times_note(file: str, column: str, count: int) -> Note:
    return Note(
        file=file,
        where=f"times {column}",
        problem=f"{count} cells are no numbers.",
        lost=f"when these blocks were {column}",
        fix="copy the file again from the training host",
    )


def _no_blocks_note(file: str) -> Note:
    return Note(
        file=file,
        where="whole file",
        problem="The tracker wrote no block.",
        lost="all allocations",
        fix="run on Ascend: the tracker leaves out the CPU pool; on CPU profile with profile_memory=True",
    )


def _fractions_note(file: str) -> Note:
    return Note(
        file=file,
        where="columns alloc_time and free_time",
        problem="The times are fractions of an unknown unit.",
        lost="nothing: they are kept, multiplied by a million",
        fix="give times of day in seconds, or in ns",
    )


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="memory_block",
        meaning="memory_block.csv of the memory tracker: every block with its life",
        tables=("tensor_lifetimes",),
        sniff=or_named(sniff_tracker, r"memory_block(_\d+)?\.csv"),
        read=filled(read_tracker),
    ),
    FileKind(
        name="tensor_table",
        meaning="table op_name, size_bytes, alloc_time, free_time: lives of tensors",
        tables=("tensor_lifetimes",),
        sniff=sniff_alias,
        read=filled(read_alias),
    ),
)
