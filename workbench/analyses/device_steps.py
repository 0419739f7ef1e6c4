"""Device tables of a profile -> where each step's time went, per rank: parts that sum to its wall time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.collective_waits import collective_waits, pipeline_stages
from workbench.analyses.intervals import Spans, Times, covered_before, gaps, merge, union
from workbench.analyses.kernels import MEDIAN_EFFICIENCY
from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.tables import EVENTS, HOST_OPS, KERNELS, STEP_TIME

LAUNCH_GAP_LONGEST_NS = 1_000_000  # launching a kernel takes 5 to 50 us; an idle millisecond has another reason
PARTS = ("computing_us", "transfer_us", "late_rank_us", "pipeline_wait_us", "data_wait_us", "compile_us",
         "checkpoint_us", "evaluation_us", "launch_gap_us", "unknown_us")  # fmt: skip
EXPOSED_PARTS = ("late_rank_us", "pipeline_wait_us")  # the rest of the exposed communication is transfer_us
FREE_PARTS = ("data_wait_us", "compile_us", "checkpoint_us", "evaluation_us", "launch_gap_us")  # the rest is unknown_us
_KEY = ["rank_id", "window", "step"]
_EVENT_PARTS = {
    "data_wait": "data_wait_us",
    "compile": "compile_us",
    "checkpoint": "checkpoint_us",
    "eval": "evaluation_us",
}
_MEASURED = ["computing_us", "exposed_us", "overlapped_us", "free_us", "leading_us"]
_COLUMNS = [*_KEY, "wall_us", *PARTS, "overlapped_us", "leading_us"]


def device_steps(
    *,
    step_time: pd.DataFrame | None = None,
    kernels: pd.DataFrame | None = None,
    collectives: pd.DataFrame | None = None,
    host_ops: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Where the time of each profiled step went.

    computing, exposed communication, overlapped and free are those of table `step_time` for the steps that it has, else
    measured on the device tasks, where a step ends with its last task and begins with the end of the step before. The
    writer does not count the time before the first task of a window as free; it is added here. Exposed communication is
    split into waiting for a late rank (`late_rank_us`), for another pipeline stage (`pipeline_wait_us`) and the rest,
    `transfer_us`; free time into its causes. Where no wait for a stage was measured, the time in receives that the file
    states stands for it (the transfer of what is received is then part of it). A cause takes at most what the ones
    before it left, in the order of PARTS, so that the parts sum to the wall time whatever the files say.

    data_wait_us is the idle time in which the host waits for the data pipeline's GetNext, of ranks whose `events` say
    when that was (`trace_steps.device_tables`). Of other ranks it is the mean time of GetNext (tables of totals know no
    single steps) within the idle time before the step's first task. launch_gap_us are idle times of less than 1 ms
    between tasks.

    Args:
        step_time: table `step_time`, or None.
        kernels: table `kernels`, or None; tasks without step or start are left out.
        collectives: table `collectives`, or None: without it all exposed communication is transfer.
        host_ops: table `host_ops`, or None: without it there is no data wait.
        events: table `events` on the clock of the tasks, or None: data_wait, compile, checkpoint and eval within free
        time.

    Returns:
        One row per (rank_id, window, step): wall_us, the PARTS, overlapped_us (communication hidden by computing, part
        of computing_us), leading_us (idle before the first task). Sorted. Empty in, empty out.

    Source: MindSpore profiler guide (step_trace_time.csv); the split is ours.
    """
    measured = _measured(kernels, collectives, events)
    steps = _written(step_time, measured, computes=kernels is not None)
    if steps.empty:
        return pd.DataFrame(columns=_COLUMNS)
    mean_wait = steps["rank_id"].map(_data_wait(host_ops, steps)).fillna(0.0).clip(upper=steps["leading_us"])
    seen = steps["rank_id"].isin(_marked_ranks(events)) & steps["data_wait_us"].notna()
    steps["data_wait_us"] = steps["data_wait_us"].where(seen, mean_wait)
    left = steps["exposed_us"].clip(lower=0.0)
    for part in EXPOSED_PARTS:
        steps[part] = steps[part].fillna(0.0).clip(lower=0.0, upper=left)
        left = left - steps[part]
    steps["transfer_us"] = left
    left = steps["free_us"].clip(lower=0.0)
    for part in FREE_PARTS:
        steps[part] = steps[part].fillna(0.0).clip(lower=0.0, upper=left)
        left = left - steps[part]
    steps["unknown_us"] = left
    steps["wall_us"] = steps[list(PARTS)].sum(axis=1)
    return steps.sort_values(_KEY, ignore_index=True)[_COLUMNS]


def own_time(steps: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """What each rank's own work took beyond its peers', step by step: who is late, and not who waits.

    Own work is all but exposed communication. Peers are the ranks of the same pipeline stage.

    Args:
        steps: as `device_steps` returns.
        stages: as `pipeline_stages` returns; ranks that it lacks are stage 0.

    Returns:
        One row per rank_id: steps, stage, and medians over steps of excess_us (own work above the peers' median) and of
        each own part's excess, named `<part>_excess_us`; error_us (standard error of excess_us, from the spread over
        steps; 0 with one step); seen_share (share of steps with a positive excess).
    """
    own = ["computing_us", *FREE_PARTS, "unknown_us"]
    rows = steps.assign(own_us=steps[own].sum(axis=1))
    rows["stage"] = rows["rank_id"].map(stages.set_index("rank_id")["stage"]).fillna(0).astype(int)
    peers = rows.groupby(["stage", "window", "step"], dropna=False)
    # The median of two is half-way between them: twice the distance compares a rank with the other one.
    both = np.where(peers["own_us"].transform("size") == 2, 2.0, 1.0)
    excess = pd.DataFrame(
        {f"{c.removesuffix('_us')}_excess_us": (rows[c] - peers[c].transform("median")) * both for c in own}
    )
    excess["excess_us"] = (rows["own_us"] - peers["own_us"].transform("median")) * both
    ranks = [rows["rank_id"], rows["stage"]]
    above = (excess["excess_us"] > 0).groupby(ranks)
    spread = excess["excess_us"].groupby(ranks).agg(mad) * MAD_TO_SIGMA
    error = MEDIAN_EFFICIENCY * spread / np.sqrt(above.size())
    return (
        excess.groupby(ranks).median().assign(error_us=error, steps=above.size(), seen_share=above.mean()).reset_index()
    )


def stage_bubbles(steps: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """How long each pipeline stage computes and how long it stands still for the others.

    Args:
        steps: as `device_steps` returns.
        stages: as `pipeline_stages` returns; ranks that it lacks are left out.

    Returns:
        One row per stage: ranks, and medians over its ranks and steps of computing_us, transfer_us, late_rank_us,
        pipeline_wait_us, idle_us (neither computing nor communicating), wall_us; bubble_share in [0, 1] (of the wall
        time, waiting for other stages). Empty in, empty out.
    """
    stage = steps["rank_id"].map(stages.set_index("rank_id")["stage"])
    parts = ["computing_us", "transfer_us", "late_rank_us", "pipeline_wait_us"]
    rows = steps.assign(stage=stage, idle_us=steps[[*FREE_PARTS, "unknown_us"]].sum(axis=1)).dropna(subset=["stage"])
    grouped = rows.astype({"stage": "int64"}).groupby("stage")
    table = grouped[[*parts, "idle_us", "wall_us"]].median()
    table["bubble_share"] = (table["pipeline_wait_us"] / table["wall_us"].where(table["wall_us"] > 0)).clip(0.0, 1.0)
    return table.assign(ranks=grouped["rank_id"].nunique()).reset_index()


def _written(step_time: pd.DataFrame | None, measured: pd.DataFrame, *, computes: bool) -> pd.DataFrame:
    """The steps of `step_time` with the measured splits beside them, and the measured steps that it lacks.

    Collectives alone (`computes` is False) split exposed time, but do not show where the device computes.
    """
    if step_time is None or step_time.empty:
        return measured if computes else measured.iloc[:0]
    rows = STEP_TIME.check(step_time).dropna(subset=["computing_us", "communication_not_overlapped_us", "free_us"])
    rows = rows.sort_values(_KEY, ignore_index=True)
    first = ~rows.duplicated(["rank_id", "window"])
    preparing = rows["preparing_us"].fillna(0.0)
    given = rows[_KEY].assign(
        computing_us=rows["computing_us"],
        exposed_us=rows["communication_not_overlapped_us"],
        overlapped_us=rows["overlapped_us"].fillna(0.0),
        free_us=rows["free_us"] + preparing.where(first, 0.0),
        preparing_us=rows["preparing_us"],
        received_us=rows["communication_not_overlapped_us"] - rows["communication_not_overlapped_exclude_receive_us"],
    )
    if not computes:
        measured = measured.assign(launch_gap_us=0.0, leading_us=0.0, data_wait_us=np.nan)
    splits = measured[[*_KEY, "leading_us", *EXPOSED_PARTS, *FREE_PARTS]]
    joined = given.merge(splits, on=_KEY, how="left")
    joined["leading_us"] = joined["preparing_us"].fillna(joined["leading_us"]).fillna(0.0)
    joined["pipeline_wait_us"] = joined["pipeline_wait_us"].where(joined["pipeline_wait_us"] > 0, joined["received_us"])
    if not computes:
        return joined
    lacking = measured.merge(given[_KEY], on=_KEY, how="left", indicator="source")
    lacking = lacking[lacking["source"] == "left_only"].drop(columns="source")
    return pd.concat([joined, lacking], ignore_index=True) if len(lacking) else joined


def _measured(
    kernels: pd.DataFrame | None, collectives: pd.DataFrame | None, events: pd.DataFrame | None
) -> pd.DataFrame:
    columns = [*_KEY, *_MEASURED, *EXPOSED_PARTS, *FREE_PARTS]
    tasks = _tasks(kernels, collectives)
    waits = _waits(collectives)
    known = None if events is None else EVENTS.check(events).dropna(subset=["start_ns", "duration_us"])
    rows = []
    for (rank_id, window), rank in tasks.groupby(["rank_id", "window"], dropna=False):
        of_rank = waits[
            (waits["rank_id"] == rank_id) & (waits["window"].fillna(-1) == (-1 if pd.isna(window) else window))
        ]
        marks = None if known is None else known[known["rank_id"] == rank_id]
        rows.append(_rank_steps(rank, of_rank, marks).assign(rank_id=rank_id, window=window))
    if not rows:
        return pd.DataFrame(columns=columns)
    return pd.concat(rows, ignore_index=True).astype({"window": "Int64", "step": "Int64"})[columns]


def _tasks(kernels: pd.DataFrame | None, collectives: pd.DataFrame | None) -> pd.DataFrame:
    """Device tasks that have a step and a start: rank_id, window, step, start, end (ns), is_communication."""
    columns = ["rank_id", "window", "step", "start_ns", "duration_us", "is_communication"]
    parts = [] if kernels is None else [KERNELS.check(kernels)[columns]]
    if collectives is not None:
        moves = collectives.rename(columns={"elapsed_us": "duration_us"}).assign(is_communication=True)
        parts.append(moves[columns])
    known = [p.dropna(subset=["step", "start_ns", "duration_us"]) for p in parts]
    known = [p for p in known if len(p)]
    if not known:
        return pd.DataFrame(columns=[*columns, "end_ns"])
    tasks = pd.concat(known, ignore_index=True)
    length = (tasks["duration_us"] * 1e3).round().astype("int64")
    return tasks.assign(
        start_ns=tasks["start_ns"].astype("int64"),
        end_ns=tasks["start_ns"].astype("int64") + length,
        is_communication=tasks["is_communication"].fillna(False).astype(bool),
    )


def _waits(collectives: pd.DataFrame | None) -> pd.DataFrame:
    """Intervals in which a rank waits inside a communication operation, and for what kind of peer."""
    columns = ["rank_id", "window", "start_ns", "end_ns", "is_pipeline"]
    if collectives is None or collectives.empty:
        return pd.DataFrame(columns=columns)
    waits = collective_waits(collectives)
    stages = pipeline_stages(collectives).set_index("rank_id")["stage"]
    spans = waits["rank_id"].map(stages).groupby(waits["group_id"]).transform("nunique") > 1
    start = waits["start_ns"].astype("int64")
    end = start + (waits["wait_us"] * 1e3).round().astype("int64")
    return waits.assign(start_ns=start, end_ns=end, is_pipeline=waits["is_p2p"] | spans)[columns]


def _rank_steps(tasks: pd.DataFrame, waits: pd.DataFrame, marks: pd.DataFrame | None) -> pd.DataFrame:
    """Steps of one rank and window, measured on its tasks."""
    by_step = tasks.groupby("step").agg(first=("start_ns", "min"), last=("end_ns", "max")).sort_values("last")
    end = np.maximum.accumulate(by_step["last"].to_numpy(dtype=np.int64))
    begin = np.concatenate([[_before(int(by_step["first"].iloc[0]), marks)], end[:-1]])
    first = np.clip(by_step["first"].to_numpy(dtype=np.int64), begin, end)

    def within(spans: Spans) -> Times:
        return covered_before(spans, end) - covered_before(spans, begin)

    computing, communicating = (_spans(tasks[tasks["is_communication"] == c]) for c in (False, True))
    busy = union(computing, communicating)
    late = union(computing, _spans(waits[~waits["is_pipeline"].astype(bool)]))
    waiting = union(late, _spans(waits[waits["is_pipeline"].astype(bool)]))
    idle = gaps(busy)
    is_launch = (idle.end - idle.start < LAUNCH_GAP_LONGEST_NS) & ~np.isin(idle.end, first)
    parts = {
        "computing_us": within(computing),
        "exposed_us": within(busy) - within(computing),
        "overlapped_us": within(computing) + within(communicating) - within(busy),
        "free_us": end - begin - within(busy),
        "leading_us": first - begin,
        "late_rank_us": within(late) - within(computing),
        "pipeline_wait_us": within(waiting) - within(late),
        "launch_gap_us": within(Spans(idle.start[is_launch], idle.end[is_launch])),
    }
    for kind, part in _EVENT_PARTS.items():
        event = merge(np.empty(0, np.int64), np.empty(0, np.int64)) if marks is None else _event_spans(marks, kind)
        parts[part] = within(union(busy, event)) - within(busy)
    frame = pd.DataFrame({name: ns / 1e3 for name, ns in parts.items()})
    return frame.assign(step=by_step.index.to_numpy())


def _before(first_ns: int, marks: pd.DataFrame | None) -> int:
    """Begin of a window's first step: its first task, or the data wait or compiling that led to it."""
    if marks is None:
        return first_ns
    leading = marks[marks["kind"].isin(["data_wait", "compile"])]
    start = leading["start_ns"].to_numpy(dtype=np.int64)
    end = start + (leading["duration_us"].to_numpy(dtype=float) * 1e3).astype(np.int64)
    for n in np.argsort(-end):
        if 0 <= first_ns - end[n] < LAUNCH_GAP_LONGEST_NS:
            first_ns = int(start[n])
    return first_ns


def _spans(rows: pd.DataFrame) -> Spans:
    return merge(rows["start_ns"].to_numpy(dtype=np.int64), rows["end_ns"].to_numpy(dtype=np.int64))


def _event_spans(marks: pd.DataFrame, kind: str) -> Spans:
    of_kind = marks[marks["kind"] == kind]
    start = of_kind["start_ns"].to_numpy(dtype=np.int64)
    return merge(start, start + (of_kind["duration_us"].to_numpy(dtype=float) * 1e3).astype(np.int64))


def _marked_ranks(events: pd.DataFrame | None) -> set[int]:
    """Ranks of which the events say when they waited for data."""
    return set() if events is None else set(events.loc[events["kind"] == "data_wait", "rank_id"])


def _data_wait(host_ops: pd.DataFrame | None, steps: pd.DataFrame) -> pd.Series:
    """Microseconds per step and rank in the data pipeline's GetNext."""
    if host_ops is None:
        return pd.Series(dtype="float64")
    rows = HOST_OPS.check(host_ops)
    rows = rows[rows["name"].str.contains("GetNext", na=False) & rows["level"].eq("dataset").fillna(False)]
    count = steps.groupby("rank_id").size()
    return rows.groupby("rank_id")["total_us"].sum() / count
