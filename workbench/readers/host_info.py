"""profiler/host_info/ of MindSpore 2.1-2.3 (host_info_<rank>.csv, host_memory_<rank>.csv) -> host_ops, memory_timeline.

Both files have the same columns: a row where an event starts (start_end 0) and one where it ends (1), with the time of
day in us and the resident memory in kB of 1024 bytes (VmRSS of /proc).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.tables import HOST_OPS, MEMORY_TIMELINE, Column, Note, Reading

NS_PER_US = 1e3
COLUMNS = (
    Column("thread", "string", "thread", "tid"),
    Column("module", "string", "module", "module_name", required=True),
    Column("event", "string", "event", "event", required=True),
    Column("stage", "string", "stage", "stage"),
    Column("is_end", "Int64", "0 start, 1 end", "start_end", required=True),
    Column("memory_bytes", "float64", "resident", "memory_usage(kB)"),
    Column("time_ns", "Int64", "epoch", "time_stamp(us)", required=True),
)


def sniff_host_info(path: Path, head: bytes) -> bool:
    """Header of host_info or host_memory."""
    return sniff_headers(head, ("tid", "module_name", "event", "stage", "start_end", "time_stamp(us)"))


def read_host_info(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read events and memory; of the two files of a rank, memory is taken from host_memory, events from host_info.

    Start and end are matched per thread, event and stage, the innermost first; a start without an end counts as a call
    without a duration, with a note.
    """
    raw = read_delimited(path, context, columns=COLUMNS)
    rows = raw.table.reindex(columns=[c.name for c in COLUMNS])
    spans, unmatched = _spans(rows)
    ops, memory = _host_ops(spans, context), _memory(rows, context)
    twin = path.with_name(path.name.replace("host_info", "host_memory"))
    if path.name.startswith("host_memory"):
        ops = HOST_OPS.empty()
        unmatched = 0
    elif twin != path and twin.exists():
        memory = MEMORY_TIMELINE.empty()
    notes = raw.notes + ([_unmatched_note(context.name(path), unmatched)] if unmatched else [])
    return {
        "host_ops": Reading(HOST_OPS.check(ops), notes),
        "memory_timeline": Reading(MEMORY_TIMELINE.check(memory), []),
    }


def _spans(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """One row per event with its length in us (missing without an end), and how many starts or ends had no partner."""
    open_starts: dict[tuple[object, ...], list[int]] = {}
    spans: list[tuple[object, object, object, float]] = []
    lonely = 0
    known = rows.dropna(subset=["is_end", "time_ns"])
    for row in known.itertuples(index=False):
        key = (row.thread, row.module, row.event, row.stage)
        if row.is_end == 0:
            open_starts.setdefault(key, []).append(int(row.time_ns))
        elif open_starts.get(key):
            spans.append((row.module, row.event, row.stage, (int(row.time_ns) - open_starts[key].pop()) / NS_PER_US))
        else:
            lonely += 1
    for (_, module, event, stage), starts in open_starts.items():
        spans += [(module, event, stage, float("nan"))] * len(starts)
        lonely += len(starts)
    return pd.DataFrame(spans, columns=["module", "event", "stage", "duration_us"]), lonely


def _host_ops(spans: pd.DataFrame, context: FileContext) -> pd.DataFrame:
    stage = spans["stage"].where(spans["stage"].notna() & (spans["stage"] != spans["event"]))
    name = spans["event"].astype("string").str.cat("." + stage.astype("string").fillna("")).str.rstrip(".")
    grouped = spans.assign(name=name, level=spans["module"].astype("string").str.lower()).groupby(["level", "name"])
    times = grouped["duration_us"].agg(
        total_us=lambda s: s.sum(min_count=1), avg_us="mean", min_us="min", max_us="max", count="size"
    )
    return times.reset_index().assign(rank_id=context.rank_id, window=context.window)


def _memory(rows: pd.DataFrame, context: FileContext) -> pd.DataFrame:
    known = rows.dropna(subset=["time_ns", "memory_bytes"])
    return pd.DataFrame({"time_ns": known["time_ns"], "reserved_bytes": known["memory_bytes"]}).assign(
        component="process", device="host", rank_id=context.rank_id, window=context.window
    )


def _unmatched_note(file: str, count: int) -> Note:
    return Note(
        file=file,
        where="column start_end",
        problem=f"{count} starts or ends of events have no partner.",
        lost="the duration of these events",
        fix="nothing to do where the profile began or ended inside an event",
    )


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="host_info",
        meaning="host_info or host_memory: host events and resident memory",
        tables=("host_ops", "memory_timeline"),
        sniff=or_named(sniff_host_info, r"host_(info|memory)_\d+\.csv"),
        read=filled(read_host_info),
    ),
)
