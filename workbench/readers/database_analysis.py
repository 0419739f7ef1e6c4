"""Tables that profilers and msprof-analyze compute (StepTraceTime, CommAnalyzer*, Cluster*) -> our tables."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from workbench.readers import communication
from workbench.readers.collective_rows import (
    BYTES_PER_MB,
    TIMES_US,
    TOTAL,
    link_names,
    operation,
    start_ns,
    step_number,
)
from workbench.readers.kinds import FileContext
from workbench.readers.recognise import reading
from workbench.readers.sqlite_file import SqliteFile
from workbench.tables import STEP_TIME, Reading

STEP_TABLES = ("StepTraceTime", "ClusterStepTraceTime")
TIME_TABLES = ("CommAnalyzerTime", "ClusterCommunicationTime", "ClusterCommAnalyzerTime")
SPEED_TABLES = ("CommAnalyzerBandwidth", "ClusterCommunicationBandwidth", "ClusterCommAnalyzerBandwidth")
LINK_TABLES = ("CommAnalyzerMatrix", "ClusterCommunicationMatrix", "ClusterCommAnalyzerMatrix")
NOTHING_MOVED = [("HCCS", 0.0, 0.0)]  # what the writer leaves out of its table of bandwidths
STEP_US = {  # column -> column in the file
    "computing_us": "computing",
    "communication_not_overlapped_us": "communication_not_overlapped",
    "overlapped_us": "overlapped",
    "communication_us": "communication",
    "free_us": "free",
    "stage_us": "stage",
    "bubble_us": "bubble",
    "communication_not_overlapped_exclude_receive_us": "communication_not_overlapped_and_exclude_receive",
    "preparing_us": "preparing",
}


def step_times(db: SqliteFile, context: FileContext) -> Reading | None:
    """Step times of a rank, or of the ranks in a cluster database; Stage and Bubble of 0 are missing (unknown)."""
    table = _first(db, STEP_TABLES)
    if table is None:
        return None
    raw = db.frame(table, step="step", kind="type", index="index", **STEP_US)
    raw = raw[raw.kind.isna() | (raw.kind == "rank")].reset_index(drop=True)
    rows = pd.DataFrame(
        {name: db.floats(raw[name], f"table {table}, {raw_name}") for name, raw_name in STEP_US.items()}
    )
    unknown = {name: rows[name].mask(rows[name] == 0) for name in ("stage_us", "bubble_us")}
    rows = rows.assign(**unknown, step=_steps(raw.step))
    if table.startswith("Cluster"):
        rows = rows.assign(rank_id=db.integers(raw["index"], f"table {table}, index"))
        rows = rows[rows.rank_id.notna()]
    if len(rows) == 1 and (rows.step == 0).fillna(False).all():
        rows = rows.assign(step=pd.array([pd.NA], dtype="Int64"))
    return reading(STEP_TIME, rows, context, [])


def communication_operations(db: SqliteFile, context: FileContext) -> Reading | None:
    """Communication operations with times and bytes; from the task table alone, times from start to end only."""
    table = _first(db, TIME_TABLES)
    if table is None:
        return _from_tasks(db, context)
    columns = {name: raw.removesuffix("(ms)").strip().lower().replace(" ", "_") for name, raw in TIMES_US.items()}
    del columns["elapsed_us"]  # written in two ways
    raw = db.frame(
        table,
        rank="rank_id",
        step="step",
        name="hccl_op_name",
        group="group_name",
        start="start_timestamp",
        elapsed_us=("elapse_time", "elapsed_time"),
        **columns,
    )
    times = pd.DataFrame({name: db.floats(raw[name], f"table {table}, {name}") * 1000 for name in TIMES_US})
    moved = _moved(db)
    unlisted = [] if _first(db, SPEED_TABLES) is None or db.notes else NOTHING_MOVED
    rows = []
    for row, us in zip(raw.itertuples(index=False), times.to_dict("records"), strict=True):
        if row.name != TOTAL:
            key = (row.rank, row.step, row.name, row.group)
            found = operation(f"{row.name}@{row.group}", start_ns(row.start), us, moved.get(key, unlisted))
            rows.append({"rank_id": row.rank, "step": step_number(row.step), **found})
    return _collectives(rows, context, db.file, by_rank=table.startswith("Cluster"))


def links(db: SqliteFile, context: FileContext) -> Reading | None:
    """Links of one rank (numbers in the group), or of a cluster database (global ranks; rows belong to the sender)."""
    table = _first(db, LINK_TABLES)
    if table is None:
        return None
    is_cluster = table.startswith("Cluster")
    raw = db.frame(
        table, step="step", name="hccl_op_name", group="group_name", src="src_rank", dst="dst_rank", op="op_name",
        transport="transport_type", size="transit_size", transit="transit_time", speed="bandwidth",
    )  # fmt: skip
    raw = raw[raw["name"] != TOTAL].reset_index(drop=True)
    names = pd.DataFrame(
        [link_names(f"{r.name}@{r.group}", r.op) for r in raw.itertuples(index=False)],
        columns=list(link_names("", None)),
    )
    where = f"table {table}"
    rows = names.assign(
        step=_steps(raw.step),
        src_rank=db.integers(raw.src, where),
        dst_rank=db.integers(raw.dst, where),
        transport=raw.transport,
        size_bytes=db.floats(raw["size"], where) * BYTES_PER_MB,
        transit_us=db.floats(raw.transit, where) * 1000,
        bandwidth_bytes_per_s=db.floats(raw.speed, where) * 1e9,
    )
    if is_cluster:
        rows = rows[rows.src_rank.notna()]
        rows = rows.assign(rank_id=rows.src_rank, is_global=True)
    return communication.links(rows.to_dict("records"), context, [], [], db.file)


def _from_tasks(db: SqliteFile, context: FileContext) -> Reading | None:
    if not db.has("COMMUNICATION_OP"):
        return None
    raw = db.frame("COMMUNICATION_OP", name="opName", start="startNs", end="endNs", group="groupName")
    words = strings(db)
    start, end = (db.integers(raw[c], "table COMMUNICATION_OP, startNs, endNs") for c in ("start", "end"))
    rows = []
    for row, begin, stop in zip(raw.itertuples(index=False), start, end, strict=True):
        us = dict.fromkeys(TIMES_US, float("nan"))
        if not pd.isna(begin) and not pd.isna(stop):
            us["elapsed_us"] = (stop - begin) / 1000
        key = f"{words.get(row.name, row.name)}@{words.get(row.group, '')}"
        rows.append({**operation(key, None if pd.isna(begin) else begin, us, []), "step": None})
    return _collectives(rows, context, db.file, by_rank=False)


def strings(db: SqliteFile) -> dict[Any, str]:
    """Number -> text of all names in the database."""
    names = db.frame("STRING_IDS", id="id", value="value")
    return dict(zip(names.id, names.value, strict=True))


def _collectives(rows: list[dict[str, Any]], context: FileContext, file: str, *, by_rank: bool) -> Reading:
    if by_rank:
        ranks = [step_number(row["rank_id"]) for row in rows]
        rows = [{**row, "rank_id": rank} for row, rank in zip(rows, ranks, strict=True) if rank is not None]
    else:
        rows = [{name: value for name, value in row.items() if name != "rank_id"} for row in rows]
    return communication.collectives(rows, context, [], [], file)


def _moved(db: SqliteFile) -> dict[tuple[Any, ...], list[tuple[str, float, float]]]:
    """(rank, step, operation, group) -> transport, MB, GB/s. Rows repeat both for each packet size."""
    table = _first(db, SPEED_TABLES)
    moved: dict[tuple[Any, ...], list[tuple[str, float, float]]] = defaultdict(list)
    if table is None:
        return moved
    raw = db.frame(
        table, rank="rank_id", step="step", name="hccl_op_name", group="group_name",
        transport=("transport_type", "band_type"), size="transit_size", speed="bandwidth",
    )  # fmt: skip
    raw = raw.assign(size=db.floats(raw["size"], f"table {table}"), speed=db.floats(raw.speed, f"table {table}"))
    for row in raw.drop_duplicates(["rank", "step", "name", "group", "transport"]).itertuples(index=False):
        moved[(row.rank, row.step, row.name, row.group)].append((str(row.transport), row.size, row.speed))
    return moved


def _steps(values: pd.Series) -> pd.Series:
    return pd.Series(pd.array([step_number(v) for v in values], dtype="Int64"), index=values.index)


def _first(db: SqliteFile, tables: tuple[str, ...]) -> str | None:
    return next((t for t in tables if db.has(t)), None)
