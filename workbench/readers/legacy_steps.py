"""Step tables of MindInsight-era profiles (MindSpore 1.0-2.4) -> step_time, collectives.

Raw clocks count ticks of 10 ns since boot. A step trace tells where forward and backward pass begin and end, but not
when the device computed: computing, not-overlapped communication and free time are missing; cluster files have them.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.readers.delimited import Delimited, read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.op_names import op_types
from workbench.tables import COLLECTIVES, STEP_TIME, Column, Note, Reading

NS_PER_TICK = 10
US_PER_TICK = 0.01
US_PER_MS = 1e3
AVERAGE_STEP = "-"
START, END = "_start_point", "_end_point"
STREAM = re.compile(r"^stream_\d+_\d+_(?=.)")
P2P = ("send", "receive")

TRACE_COLUMNS = (
    Column("step", "string", "step number, or '-' for the average", "step_num", required=True),
    Column("start", "Int64", "ticks", "start_point", required=True),
    Column("end", "Int64", "ticks", "end_point"),
    Column("step_us", "Int64", "ticks", "total", required=True),
    Column("preparing_us", "Int64", "ticks", "iteration_interval"),
    Column("forward_backward_us", "Int64", "ticks", ("fp_and_bp", "fp")),
    Column("tail_us", "Int64", "ticks", "tail"),
)
IN_TICKS = ("step_us", "preparing_us", "forward_backward_us", "tail_us")
CLUSTER_COLUMNS = (
    Column("computing_us", "float64", "ms", ("computation_time", "computation"), required=True),
    Column("communication_not_overlapped_us", "float64", "ms", "communication_alone_time", required=True),
    Column("stage_us", "float64", "ms", "stage_time"),
    Column("bubble_us", "float64", "ms", "receive_alone_time"),
    Column(
        "communication_not_overlapped_exclude_receive_us",
        "float64",
        "ms",
        ("collective_communication_alone_time", "collective_communication_time"),
    ),
)
DATA_PARALLEL_COLUMNS = (
    Column("preparing_us", "float64", "ticks", "iteration_interval", required=True),
    Column("forward_backward_us", "float64", "ticks", "fp_and_bp", required=True),
    Column("tail_us", "float64", "ticks", "tail", required=True),
)
UNKNOWN = ("computing_us", "communication_not_overlapped_us", "free_us")


def sniff_step_trace(path: Path, head: bytes) -> bool:
    """Header of step_trace_raw_detail_time."""
    return sniff_headers(head, ("step_num", "start_point", "end_point", "total", "fp_point"))


def read_step_trace(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read step_trace_raw: the step and every collective of it, in ticks of 10 ns.

    `preparing_us` is the gap between the end of the step before and the first forward task: the wait for data. The last
    row (step '-') is the average and is left out, as are rows of zeros. `communication_us` is the time in which a
    collective of the step runs, counted once where several do; missing where a cell of one is.
    """
    raw = read_delimited(path, context, columns=TRACE_COLUMNS, required=("step", "start", "step_us"))
    names = _collective_names(raw.headers)
    if names:
        parts = [Column(part, "Int64", "ticks", part) for name in names for part in (name, name + START, name + END)]
        raw = read_delimited(path, context, columns=(*TRACE_COLUMNS, *parts), required=("step", "start", "step_us"))
    steps, notes = _real_steps(raw, context.name(path))
    collectives = _collectives(steps, names)
    place = {"rank_id": context.rank_id, "window": context.window}
    table = steps.reindex(columns=["step", *IN_TICKS, *UNKNOWN])
    for name in IN_TICKS:
        table[name] = table[name].astype("float64") * US_PER_TICK
    points = steps[[name + suffix for name in names for suffix in (START, END)]]
    table["communication_us"] = np.where(points.notna().all(axis=1), _busy_us(collectives, len(steps)), np.nan)
    if not names:
        table["communication_us"] = np.nan
    return {
        "step_time": Reading(STEP_TIME.check(table.assign(**place)), raw.notes + notes),
        "collectives": Reading(COLLECTIVES.check(collectives.assign(**place)), []),
    }


def _collective_names(headers: tuple[str, ...]) -> list[str]:
    """Headers that have a start and an end beside them."""
    known = {header.strip() for header in headers}
    named = (h.strip() for h in headers)
    return list(dict.fromkeys(h for h in named if h + START in known and h + END in known))


def _real_steps(raw: Delimited, file: str) -> tuple[pd.DataFrame, list[Note]]:
    """Rows that are steps, `step` as a number."""
    table = raw.table[raw.table["step"].fillna("").str.strip() != AVERAGE_STEP]
    numbers = pd.to_numeric(table["step"], errors="coerce").astype("float64")
    table = table.assign(step=numbers.where(numbers == numbers.round()).astype("Int64"))
    empty = (table["start"].fillna(-1) == 0) & (table["step_us"].fillna(-1) == 0)
    notes = []
    if empty.any():
        problem = f"{int(empty.sum())} rows hold zeros only: the profiler recorded no such step."
        fix = "nothing to do; profile more steps if these are needed"
        notes.append(Note(file=file, where="column total", problem=problem, lost="those steps", fix=fix))
    return table[~empty].reset_index(drop=True), notes


def _collectives(steps: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """One row per step and collective, by step and start; `row` is the row of the step. Ticks are exact as float64."""
    start, end, ticks = (
        steps[[name + suffix for name in names]].to_numpy("float64", na_value=np.nan) for suffix in (START, END, "")
    )
    ran = ~np.isnan(start) & ~((start == 0) & (end == 0))
    row, column = np.nonzero(ran)
    written = pd.Series(pd.array(names, dtype="string"))
    short = written.str.replace(STREAM, "", regex=True)
    types = op_types(short).str.lower().mask(short.str.startswith("stream_"))
    long = pd.DataFrame({"row": row, "start": start[ran], "end": end[ran], "elapsed_us": ticks[ran] * US_PER_TICK})
    return long.assign(
        step=steps["step"].take(row).to_numpy(),
        name=short.take(column).to_numpy(),
        op_type=types.take(column).to_numpy(),
        is_p2p=types.isin(P2P).astype("boolean").mask(types.isna()).take(column).to_numpy(),
        start_ns=pd.array(long["start"].astype("int64") * NS_PER_TICK, dtype="Int64"),
    ).sort_values(["row", "start_ns"], kind="stable")


def _busy_us(collectives: pd.DataFrame, steps: int) -> np.ndarray:
    """Time covered by at least one collective, per step row; 0 where none ran."""
    known = collectives.dropna(subset=["end"])
    done = known.groupby("row")["end"].cummax().groupby(known["row"]).shift()
    uncovered = known["end"] - known["start"].clip(lower=done.fillna(-np.inf))
    busy = uncovered.clip(lower=0).groupby(known["row"]).sum()
    return busy.reindex(range(steps), fill_value=0).to_numpy() * US_PER_TICK


def sniff_cluster(path: Path, head: bytes) -> bool:
    """Header of ascend_cluster_analyse in pipeline-parallel or model-parallel mode."""
    return any(sniff_headers(head, (c, "communication_alone_time")) for c in ("computation_time", "computation"))


def read_cluster(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read ascend_cluster_analyse: ms; one row per step, numbered from 1, for the file has no step numbers.

    The last row is the average, which is not marked: the last of several rows is left out, a single row is kept.
    """
    raw = read_delimited(path, context, columns=CLUSTER_COLUMNS)
    return _cluster_reading(raw, raw.table * US_PER_MS, path, context)


def sniff_data_parallel(path: Path, head: bytes) -> bool:
    """Header of ascend_cluster_analyse in data-parallel mode."""
    return sniff_headers(head, ("iteration_interval", "fp_and_bp", "tail"), none_of=("step_num", "start_point"))


def read_data_parallel(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read ascend_cluster_analyse of data-parallel runs: ticks of 10 ns, rows as in the other modes."""
    raw = read_delimited(path, context, columns=DATA_PARALLEL_COLUMNS)
    table = raw.table * US_PER_TICK
    table["step_us"] = table.sum(axis=1, skipna=False)
    return _cluster_reading(raw, table, path, context)


def _cluster_reading(raw: Delimited, table: pd.DataFrame, path: Path, context: FileContext) -> dict[str, Reading]:
    single = len(table) == 1
    table = table if single else table.iloc[:-1]
    notes = [*raw.notes, _single_row_note(context.name(path))] if single else raw.notes
    unknown = {name: np.nan for name in UNKNOWN if name not in table}
    place = {"rank_id": context.rank_id, "window": context.window}
    checked = STEP_TIME.check(table.assign(step=range(1, len(table) + 1), **unknown, **place))
    return {"step_time": Reading(checked, notes)}


def _single_row_note(file: str) -> Note:
    return Note(
        file=file,
        where="line 2",
        problem="There is one row only, which may be the average over the steps.",
        lost="nothing",
        fix="read it as an average; the file of a whole run has a row per step",
    )


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="step_trace_raw",
        meaning="step_trace_raw: steps and their collectives, ticks of 10 ns",
        tables=("step_time", "collectives"),
        sniff=or_named(sniff_step_trace, r"step_trace_raw_\d+_detail_time\.csv"),
        read=filled(read_step_trace),
    ),
    FileKind(
        name="cluster_analyse",
        meaning="ascend_cluster_analyse: computing and communication per step",
        tables=("step_time",),
        sniff=or_named(sniff_cluster, r"ascend_cluster_analyse_(pipeline|model)-parallel_\d+_\d+_\d+\.csv"),
        read=filled(read_cluster),
    ),
    FileKind(
        name="cluster_analyse_data_parallel",
        meaning="ascend_cluster_analyse of a data-parallel run: parts of the steps, ticks of 10 ns",
        tables=("step_time",),
        sniff=or_named(sniff_data_parallel, r"ascend_cluster_analyse_data-parallel_\d+_\d+_\d+\.csv"),
        read=filled(read_data_parallel),
    ),
)
