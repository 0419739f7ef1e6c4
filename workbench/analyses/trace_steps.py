"""Traces and tasks without step numbers -> tasks with steps, collectives, and the host's marks (data wait, compile)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyses.intervals import Times
from workbench.tables import EVENTS, KERNELS, TRACE_EVENTS, TRAINING_STEPS

STEP_PATTERN = r"ProfilerStep#(\d+)"
MARK_PATTERNS = {"data_wait": r"^Dataset::.*GetNext", "compile": r"^\w+::\w*Compile\w*(?:::|$)"}
TASK_LAYERS = ("CPU OP", "Overlap Analysis")  # where a trace states what a device computes, without guessing by name
MARKS_SQL = (
    "SELECT * FROM trace_events WHERE regexp_matches(name, '"
    + "|".join([STEP_PATTERN, *MARK_PATTERNS.values()]).replace("?:", "")
    + "')"
)
TASKS_SQL = f"{MARKS_SQL} OR layer IN ('{TASK_LAYERS[0]}', '{TASK_LAYERS[1]}')"
REGULAR_SHARE = 0.1  # iterations of one program differ in their number of tasks by less
_PLACE = ["rank_id", "window"]
_COMMUNICATION = r"^(?:AllReduce|AllGather|ReduceScatter|AlltoAll|Broadcast|Send|Receive|hcom_)"


def device_tables(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables that `device_steps` takes, completed from the trace and from what tasks show of their own.

    Kernels come from the trace where there is no kernel table; those without a step are numbered by iteration;
    collectives of a CPU profile come from its operators; `events` gets the marks of data wait and compiling, and
    the Recorder's data wait of ranks whose trace has none.

    Args:
        tables: tables of a run by name; of `trace_events` the rows of `MARKS_SQL` (`TASKS_SQL` without kernels) do.

    Returns:
        Those of step_time, kernels, collectives, host_ops and events that there are.
    """
    found = {n: tables[n] for n in ("step_time", "kernels", "collectives", "host_ops", "events") if n in tables}
    trace, events, steps = (tables.get(n) for n in ("trace_events", "events", "training_steps"))
    marks = [] if events is None else [EVENTS.check(events)]
    if trace is not None:
        marks.append(trace_marks(trace))
        found |= {} if "kernels" in found else {"kernels": trace_tasks(trace)}
    if steps is not None:
        told = {rank for m in marks for rank in m.loc[m["kind"] == "data_wait", "rank_id"]}
        marks.append(recorded_waits(steps[~steps["rank_id"].isin(told)]))
    if any(len(m) for m in marks):
        found["events"] = pd.concat([m for m in marks if len(m)], ignore_index=True)
    if "kernels" in found:
        found["kernels"] = with_steps(found["kernels"], events)
        made = None if "collectives" in found else collectives_of_tasks(found["kernels"])
        found |= {} if made is None else {"collectives": made}
    return {name: table for name, table in found.items() if len(table)}


def trace_marks(trace_events: pd.DataFrame) -> pd.DataFrame:
    """What the host did around the steps: waiting for the data pipeline (GetNext) and compiling graphs.

    Args:
        trace_events: table `trace_events`, or the rows of it that `MARKS_SQL` selects.

    Returns:
        Rows of table `events`: rank_id, kind (data_wait or compile), start_ns, duration_us, name. Empty in, empty out.
    """
    rows = TRACE_EVENTS.check(trace_events)
    parts = []
    for kind, pattern in MARK_PATTERNS.items():
        found = rows[rows["name"].str.contains(pattern, regex=True, na=False)]
        parts.append(found[["rank_id", "start_ns", "name"]].assign(kind=kind, duration_us=found["duration_ns"] / 1e3))
    return EVENTS.check(pd.concat(parts, ignore_index=True).reindex(columns=[c.name for c in EVENTS.columns]))


def recorded_waits(training_steps: pd.DataFrame) -> pd.DataFrame:
    """When each rank waited for its batch, as the Recorder measured it: at the begin of each step.

    Returns:
        Rows of table `events` of kind data_wait. Steps without time or wait are left out. Empty in, empty out.
    """
    rows = TRAINING_STEPS.check(training_steps).dropna(subset=["time_ns", "step_us", "data_wait_us"])
    wall_us = rows["step_us"] + rows["callbacks_us"].fillna(0.0)
    waits = rows[["rank_id", "step"]].assign(
        kind="data_wait",
        name="wait for the batch",
        start_ns=rows["time_ns"].astype("Int64") - (wall_us * 1e3).round().astype("Int64"),
        duration_us=rows["data_wait_us"],
    )
    return EVENTS.check(waits.reindex(columns=[c.name for c in EVENTS.columns]))


def trace_tasks(trace_events: pd.DataFrame) -> pd.DataFrame:
    """Tasks of a profile that has no kernel table, from its trace: CPU operators, or the busy times of the device.

    Returns:
        Rows of table `kernels`: rank_id, window, step (of the `ProfilerStep` mark in which they start, else missing),
        name, op_type, start_ns, duration_us, is_communication. Empty in, empty out.
    """
    rows = TRACE_EVENTS.check(trace_events)
    cpu = rows[rows["layer"] == "CPU OP"]
    busy = rows[(rows["layer"] == "Overlap Analysis") & rows["track"].isin(["Computing", "Communication"])]
    tasks = pd.concat([cpu, busy], ignore_index=True)
    kind = tasks["name"].str.replace(r"(?s)^.*/", "", regex=True).str.replace(r"-op\d+$", "", regex=True)
    columns = {c.name: tasks[c.name] for c in KERNELS.columns if c.name in tasks}
    frame = pd.DataFrame(columns).reindex(columns=[c.name for c in KERNELS.columns])
    return KERNELS.check(
        frame.assign(
            op_type=kind,
            duration_us=tasks["duration_ns"] / 1e3,
            is_communication=kind.str.contains(_COMMUNICATION, na=False) | (tasks["track"] == "Communication"),
            step=_marked_steps(tasks, rows),
            accelerator_core=np.where(tasks["layer"] == "CPU OP", "CPU", "unknown"),
        )
    )


def with_steps(kernels: pd.DataFrame, events: pd.DataFrame | None = None) -> pd.DataFrame:
    """Tasks without a step get the number of the iteration that they belong to, where tasks repeat regularly.

    An iteration begins with the task that comes back after the longest typical pause, if all iterations that it marks
    have about the same number of tasks and the same kinds of them. A task before the first such mark is of an iteration
    that began earlier: it stays without a step. Iterations count from 1, or from the first step that a `profile` event
    of `events` names.

    Args:
        kernels: table `kernels`.
        events: table `events`, or None.

    Returns:
        A copy. Ranks and windows with a step anywhere, without starts, or without a regular course are unchanged.
    """
    rows = KERNELS.check(kernels)
    parts = []
    for (rank_id, _), own in rows.groupby(_PLACE, dropna=False, sort=False):
        timed = own.dropna(subset=["start_ns", "duration_us"])
        if own["step"].isna().all() and len(timed):
            timed = timed.sort_values("start_ns")
            numbers = _iterations(timed)
            step = pd.Series(numbers, timed.index, dtype="Int64").where(numbers > 0)
            own = own.assign(step=step.reindex(own.index) + _first_step(events, rank_id, timed) - 1)
        parts.append(own)
    return pd.concat(parts).sort_index() if parts else rows


def collectives_of_tasks(kernels: pd.DataFrame) -> pd.DataFrame | None:
    """Collectives from a CPU profile's operators, which MindSpore runs over all ranks: those of one name meet.

    Args:
        kernels: table `kernels` with steps (`with_steps`).

    Returns:
        Rows of table `collectives` (name with its count within the step, group "all"; waits and sizes missing), or None
        where fewer than two ranks have such operators.
    """
    rows = KERNELS.check(kernels)
    own = rows[rows["is_communication"].fillna(False) & rows["accelerator_core"].eq("CPU").fillna(False)]
    own = own.dropna(subset=["step", "start_ns", "duration_us"]).sort_values("start_ns")
    if own["rank_id"].nunique() < 2:
        return None
    count = own.groupby([*_PLACE, "step", "name"], dropna=False).cumcount().astype(str)
    return pd.DataFrame(
        {
            **{c: own[c] for c in (*_PLACE, "step", "start_ns")},
            "name": own["name"] + " " + count,
            "op_type": own["op_type"].str.lower(),
            "group_id": "all",
            "is_p2p": own["op_type"].isin(["Send", "Receive"]),
            "elapsed_us": own["duration_us"],
        }
    ).reset_index(drop=True)


def _marked_steps(tasks: pd.DataFrame, trace: pd.DataFrame) -> pd.Series:
    """Number of the ProfilerStep in which each task starts; missing outside of all."""
    number = trace["name"].str.extract(STEP_PATTERN)[0]
    marks = trace[number.notna()].assign(step=number.dropna().astype("int64")).sort_values("start_ns")
    step = pd.Series(pd.NA, tasks.index, dtype="Int64")
    for place, own in tasks.groupby(_PLACE, dropna=False):
        is_here = [marks[c].eq(v) if pd.notna(v) else marks[c].isna() for c, v in zip(_PLACE, place, strict=True)]
        of_rank = marks[is_here[0] & is_here[1]]
        if len(of_rank):
            start = own["start_ns"].to_numpy(dtype=np.int64)
            begin = of_rank["start_ns"].to_numpy(dtype=np.int64)
            at = np.searchsorted(begin, start, side="right") - 1
            end = begin + of_rank["duration_ns"].to_numpy(dtype=np.int64)
            inside = (at >= 0) & (start < end[at])
            found = of_rank["step"].to_numpy()[np.maximum(at, 0)]
            step[own.index] = pd.array(np.where(inside, found, -1), dtype="Int64")
    return step.where(step >= 0)


def _iterations(tasks: pd.DataFrame) -> NDArray[np.int64]:
    """Number of the iteration of each task in time order, 0 before the first; all 0 without a regular course."""
    codes, names = pd.factorize(tasks["name"])
    start = tasks["start_ns"].to_numpy(dtype=np.int64)
    end = start + (tasks["duration_us"].to_numpy(dtype=float) * 1e3).astype(np.int64)
    before = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    pause = np.maximum(start - before, 0)
    counts = np.bincount(codes, minlength=len(names))
    if counts.max() == 1:
        return np.ones(len(tasks), dtype=np.int64)
    typical = pd.Series(pause[1:]).groupby(codes[1:]).median().reindex(range(len(names))).fillna(-1.0)
    for name in typical[counts > 1].sort_values(ascending=False, kind="stable").index[:50]:
        marks = codes == name
        number = np.cumsum(marks).astype(np.int64)
        if _is_regular(np.flatnonzero(marks), len(tasks)) and _is_whole(number, codes, counts):
            return number
    return np.zeros(len(tasks), dtype=np.int64)


def _is_regular(places: NDArray[np.intp], count: int) -> bool:
    """Whether iterations that begin at `places` have about as many tasks; the first and last may be cut."""
    sizes: Times = np.diff(places)
    slack = max(1.0, REGULAR_SHARE * float(np.median(sizes)))
    typical = float(np.median(sizes))
    edges = (places[0], count - places[-1])
    return bool((np.abs(sizes - typical) <= slack).all() and max(edges) <= typical + slack)


def _is_whole(number: NDArray[np.int64], codes: NDArray[np.intp], counts: NDArray[np.intp]) -> bool:
    """Whether each iteration runs nearly all tasks that most iterations run; the first and last may be cut."""
    last = int(number[-1])
    common = counts >= last / 2
    seen = np.unique(np.stack([number, codes])[:, common[codes]], axis=1)
    kinds = np.bincount(seen[0], minlength=last + 1)[1 : max(last, 2)]
    covered = counts[common].sum() >= (1 - REGULAR_SHARE) * len(codes)
    return bool(covered and (kinds >= (1 - REGULAR_SHARE) * common.sum()).all())


def _first_step(events: pd.DataFrame | None, rank_id: object, tasks: pd.DataFrame) -> int:
    """First step of the profile window in which the tasks ran, as its event says; 1 without one."""
    if events is None:
        return 1
    rows = EVENTS.check(events).dropna(subset=["start_ns", "duration_us", "detail"])
    rows = rows[(rows["kind"] == "profile") & (rows["rank_id"] == rank_id)]
    at = int(tasks["start_ns"].iloc[0])
    end = rows["start_ns"] + (rows["duration_us"] * 1e3).round().astype("Int64")
    inside = rows[(rows["start_ns"] <= at) & (end >= at)]
    if inside.empty:
        return 1
    return int(json.loads(str(inside["detail"].iloc[0])).get("first_step", 1))
