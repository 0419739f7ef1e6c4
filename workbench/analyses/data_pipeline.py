"""A recorded data pipeline -> its operators with what they wait for, and the one that holds it back. Pure.

Definition: an operator holds a pipeline back if its input is ready (the queue in front of it is full, or it is a
source) and its output is not taken from a full queue (the queue behind it is empty) while training waits for batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.analyses.downsample import downsample
from workbench.tables import DATA_BATCHES, DATA_OPS, DATA_QUEUE_SAMPLES

WAIT_SHARE_LEAST = 0.05  # of the time between batches: below it, the pipeline keeps up
BUSY_PER_WORKER_LEAST = 0.5  # cores: a worker above it computes, below it waits
ONE_CORE = (0.5, 1.2)  # what all workers together use if they take turns with one lock
IDLE_SHARE_LEAST = 0.15  # of the host: with less idle, the machine is full and no lock can be told
EMPTY_SHARE_STEADY = 0.5  # of the batches taken from an empty queue: below it, training waits now and then only
LOCK_HOLDER_LEAST = 0.6  # cores: what another operator waits for if they share the interpreter's lock
ABOUT_OPERATOR = ["name", "op_id", "op_type", "input_fill_share", "output_fill_share", "cpu_cores", "num_workers"]
PYTHON_TYPES = frozenset({"Map", "Batch", "Generator", "Filter"})  # operators that may call Python
REASONS = {
    "keeps_up": "the pipeline keeps up",
    "cpu": "computes all the time",
    "gil": "its workers take turns with Python's interpreter lock",
    "waiting": "waits for input and output, a lock or a sleep",
    "bursts": "keeps up on the mean, but now and then takes longer than the queues last",
    "unknown": "is slow for a reason that is not known, its use of the processor was not recorded",
}


def operator_names(types: Sequence[str]) -> list[str]:
    """A name for each operator: its type, with "#2" and so on where there are several, in the given order.

    >>> operator_names(["Generator", "Map", "Map", "Batch"])
    ['Generator', 'Map#1', 'Map#2', 'Batch']
    """
    total, seen = Counter(types), Counter[str]()
    names = []
    for kind in types:
        seen[kind] += 1
        names.append(f"{kind}#{seen[kind]}" if total[kind] > 1 else kind)
    return names


def batch_waits(data_batches: pd.DataFrame) -> pd.DataFrame:
    """How long training waited for its batches, per rank and pipeline, the first batch left out (it fills the queues).

    Args:
        data_batches: table `data_batches`.

    Returns:
        One row per rank_id: batches, wait_share (of the time from first to last batch, in [0, 1]), mean_wait_us,
        median_wait_us, period_us (time between batches), empty_share (of batches taken from an empty queue). Where the
        device's own wait is recorded it stands for the caller's; a batch that was taken from a queue with batches in it
        was not waited for.
    """
    rows = DATA_BATCHES.check(data_batches)
    made = []
    for rank, of_rank in rows.groupby("rank_id"):
        called = of_rank["pipeline_us"].where(~(of_rank["queue_size"] > 0), 0.0)  # a batch was ready: a slow call only
        waited = of_rank["device_wait_us"].fillna(called.where(of_rank["pipeline_us"].notna()))
        later = of_rank.assign(wait_us=waited).dropna(subset=["wait_us"]).sort_values("batch").iloc[1:]
        if later.empty:
            continue
        span_us = float(later["time_us"].max() - later["time_us"].min()) if later["time_us"].notna().all() else np.nan
        total_us = float(later["wait_us"].iloc[1:].sum())
        queue = later["device_queue_size"].fillna(later["queue_size"])
        made.append(
            {
                "rank_id": rank,
                "batches": len(later),
                "wait_share": min(total_us / span_us, 1.0) if span_us > 0 else np.nan,
                "mean_wait_us": float(later["wait_us"].mean()),
                "median_wait_us": float(later["wait_us"].median()),
                "period_us": span_us / (len(later) - 1) if len(later) > 1 else np.nan,
                "empty_share": float((queue.dropna() == 0).mean()) if queue.notna().any() else np.nan,
            }
        )
    columns = [
        "rank_id", "batches", "wait_share", "mean_wait_us", "median_wait_us", "period_us", "empty_share",
    ]  # fmt: skip
    return pd.DataFrame(made, columns=columns)


def wait_curve(data_batches: pd.DataFrame, *, rank_id: int | None = None) -> pd.DataFrame:
    """Waits of one rank's batches for a chart: as many rows as fit, extremes kept.

    Args:
        data_batches: table `data_batches`.
        rank_id: rank, the first one by default.

    Returns:
        batch, wait_us (how long the caller waited, the first batch included), queue_size.
    """
    rows = DATA_BATCHES.check(data_batches).dropna(subset=["pipeline_us"])
    if rows.empty:
        return pd.DataFrame(columns=["batch", "wait_us", "queue_size"])
    mine = rows[rows["rank_id"] == (rows["rank_id"].iloc[0] if rank_id is None else rank_id)].sort_values("batch")
    curve = mine.assign(step=mine["batch"].astype("int64"), wait_us=mine["pipeline_us"])
    few = downsample(curve[["step", "wait_us", "queue_size"]], ["wait_us"])
    return few.rename(columns={"step": "batch"}).reset_index(drop=True)


def pipeline_operators(
    data_ops: pd.DataFrame,
    data_queue_samples: pd.DataFrame | None = None,
    data_batches: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The operators of each rank's pipeline, sources first, with the queues in front of and behind them.

    Where samples and batches have times, the queues are those of the moments in which training waited; a queue that is
    full while nobody waits says nothing.

    Args:
        data_ops: table `data_ops`.
        data_queue_samples: table of that name, or None.
        data_batches: table of that name, or None.

    Returns:
        One row per (rank_id, op_id): name, op_type, parent_id, num_workers, input_fill_share and output_fill_share in
        [0, 1] (a source's input counts as full; missing for an operator without a queue), held_back_share = input
        less output, cpu_cores, cpu_per_worker, is_source.
    """
    ops = DATA_OPS.check(data_ops)
    waiting = _fill_while_waiting(data_queue_samples, data_batches)
    return (
        pd.concat([_of_rank(o, waiting.get(r)) for r, o in ops.groupby("rank_id")], ignore_index=True)
        if len(ops)
        else _of_rank(ops, None)
    )


def bottleneck(
    operators: pd.DataFrame, waits: pd.DataFrame | None = None, *, host_idle_share: float = np.nan
) -> pd.DataFrame:
    """The operator that holds each rank's pipeline back, or that it keeps up.

    Args:
        operators: as `pipeline_operators` returns.
        waits: as `batch_waits` returns; None or a missing wait_share: the queue at the end of the pipeline decides.
        host_idle_share: mean idle share of the host's cores, missing if unknown; tells a lock from a full machine.

    Returns:
        One row per rank_id: keeps_up, name (missing where it keeps up), op_id, reason (a word of REASONS), wait_share,
        input_fill_share, output_fill_share, cpu_cores, num_workers.
    """
    by_rank = {} if waits is None else dict(iter(waits.set_index("rank_id").iterrows()))
    rows = [_verdict(of_rank, by_rank.get(rank), host_idle_share) for rank, of_rank in operators.groupby("rank_id")]
    return pd.DataFrame(rows, columns=["rank_id", "keeps_up", "wait_share", "reason", *ABOUT_OPERATOR])


def _of_rank(ops: pd.DataFrame, fill: pd.Series | None) -> pd.DataFrame:
    order = _sources_first(ops)
    rows = ops.set_index("op_id").loc[order].reset_index()
    output = rows["queue_fill_share"] if fill is None else rows["op_id"].map(fill).fillna(rows["queue_fill_share"])
    fills = dict(zip(rows["op_id"], output.astype("float64"), strict=True))
    children = {op: list(rows.loc[rows["parent_id"] == op, "op_id"]) for op in rows["op_id"]}
    inputs = [_input_fill(op, children, fills) for op in rows["op_id"]]
    made = rows[["rank_id", "op_id", "op_type", "parent_id", "num_workers"]].assign(
        name=operator_names(list(rows["op_type"].astype(str))),
        is_source=[not children[op] for op in rows["op_id"]],
        input_fill_share=np.array(inputs, dtype="float64"),
        output_fill_share=output.to_numpy("float64"),
        cpu_cores=rows["cpu_share"].to_numpy("float64"),
    )
    workers = made["num_workers"].astype("float64").fillna(1.0).clip(lower=1.0)
    return made.assign(
        held_back_share=made["input_fill_share"] - made["output_fill_share"],
        cpu_per_worker=made["cpu_cores"] / workers,
    )


def _sources_first(ops: pd.DataFrame) -> list[int]:
    """Operator ids, children before parents, siblings by id."""
    known = set(ops["op_id"])
    children: dict[object, list[int]] = {}
    for op, parent in zip(ops["op_id"], ops["parent_id"], strict=True):
        children.setdefault(None if pd.isna(parent) or parent not in known else int(parent), []).append(int(op))
    order: list[int] = []
    stack: list[tuple[int, bool]] = [(root, False) for root in sorted(children.get(None, ()), reverse=True)]
    while stack:
        op, is_done = stack.pop()
        if is_done:
            order.append(op)
            continue
        stack.append((op, True))
        stack += [(child, False) for child in sorted(children.get(op, ()), reverse=True)]
    return order


def _input_fill(op: int, children: dict[int, list[int]], fills: dict[int, float]) -> float:
    """Fill of the emptiest queue in front of an operator; operators without a queue are looked through."""
    if not children[op]:
        return 1.0
    found = [fills[c] if np.isfinite(fills[c]) else _input_fill(c, children, fills) for c in children[op]]
    return float(min(found))


def _fill_while_waiting(samples: pd.DataFrame | None, batches: pd.DataFrame | None) -> dict[int, pd.Series]:
    """Mean queue size over capacity by operator, per rank, of the samples taken while training waited."""
    if samples is None or batches is None or samples.empty or batches.empty:
        return {}
    taken = DATA_BATCHES.check(batches).dropna(subset=["time_us", "pipeline_us"])
    seen = DATA_QUEUE_SAMPLES.check(samples).dropna(subset=["time_us", "queue_size"])
    found = {}
    for rank, of_rank in seen.groupby("rank_id"):
        mine = taken[taken["rank_id"] == rank].sort_values("time_us").iloc[1:]
        waits = mine[mine["pipeline_us"] > 0]
        if waits.empty:
            continue
        end = waits["time_us"].to_numpy()
        start = end - waits["pipeline_us"].to_numpy()
        at = of_rank["time_us"].to_numpy()
        place = np.searchsorted(end, at)
        inside = (place < len(end)) & (at >= start[np.minimum(place, len(end) - 1)])
        if inside.sum() >= 3:
            capacity = mine["queue_capacity"].median()
            found[int(rank)] = (of_rank[inside].groupby("op_id")["queue_size"].mean() / capacity).clip(upper=1.0)
    return found


def _verdict(ops: pd.DataFrame, waits: pd.Series | None, idle_share: float) -> dict[str, object]:
    share = float("nan") if waits is None else float(waits["wait_share"])
    base = {"rank_id": int(ops["rank_id"].iloc[0]), "wait_share": share}
    if _keeps_up(ops, share):
        return base | {"keeps_up": True, "name": None, "reason": "keeps_up"}
    candidates = ops.dropna(subset=["held_back_share"])
    if candidates.empty:
        return base | {"keeps_up": False, "name": None, "reason": "unknown"}
    in_bursts = waits is not None and float(waits["empty_share"]) < EMPTY_SHARE_STEADY
    shuffles = ops[ops["op_type"] == "Shuffle"]
    worst = candidates.loc[candidates["held_back_share"].idxmax()]
    if in_bursts and len(shuffles):
        worst = shuffles.iloc[-1]
    reason = "bursts" if in_bursts else _reason(worst, idle_share)
    holder = _lock_holder(ops, worst) if reason == "waiting" else None
    if holder is not None:
        worst, reason = holder, "gil"
    return base | worst[ABOUT_OPERATOR].to_dict() | {"keeps_up": False, "reason": reason}


def _lock_holder(ops: pd.DataFrame, waiting: pd.Series) -> pd.Series | None:
    """The other operator that computes nearly all the time, if both may run Python: `waiting` may wait for its lock."""
    if waiting["op_type"] not in PYTHON_TYPES:
        return None
    busy = ops[ops["op_type"].isin(PYTHON_TYPES) & (ops["cpu_per_worker"] >= LOCK_HOLDER_LEAST)]
    busy = busy[busy["op_id"] != waiting["op_id"]]
    return busy.loc[busy["cpu_per_worker"].idxmax()] if len(busy) else None


def _keeps_up(ops: pd.DataFrame, wait_share: float) -> bool:
    if np.isfinite(wait_share):
        return wait_share < WAIT_SHARE_LEAST
    ends = ops.dropna(subset=["output_fill_share"])
    return bool(len(ends)) and float(ends["output_fill_share"].iloc[-1]) >= 0.5


def _reason(worst: pd.Series, idle_share: float) -> str:
    cores, per_worker = float(worst["cpu_cores"]), float(worst["cpu_per_worker"])
    if not np.isfinite(cores):
        return "unknown"
    several = float(worst["num_workers"]) >= 2 if pd.notna(worst["num_workers"]) else False
    takes_turns = ONE_CORE[0] <= cores <= ONE_CORE[1] and not idle_share < IDLE_SHARE_LEAST
    if several and takes_turns and worst["op_type"] in PYTHON_TYPES:
        return "gil"
    return "cpu" if per_worker >= BUSY_PER_WORKER_LEAST or (several and cores >= ONE_CORE[0]) else "waiting"
