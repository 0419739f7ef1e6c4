"""Operations and what each of them needs -> length of every step, as recorded or with other durations.

A step is a graph. An operation starts `delay_us` after the last operation that it needs has ended; operations of one
group move data only when the last of them has started. Durations are therefore split: `work_us` is an operation's own
time (of a group: from its last start on), and waiting for others is not work but follows from the replay.

Source of the model: Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis (OSDI 2025).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyses.event_graph import EventGraph, IntArray, event_graph
from workbench.analyses.statistics import FloatArray
from workbench.errors import UnknownContentError
from workbench.tables import OPERATIONS


@dataclass(frozen=True)
class Replay:
    """A graph that was made ready by `prepare`; `step_us` may be asked as often as wanted.

    Attributes:
        operations: the operations with `delay_us` and `work_us`, index 0, 1, ...
        steps: number and label of each step, in order.
        chained: steps follow each other: a step's length is the gap between its last end and that of the step before.
    """

    operations: pd.DataFrame
    steps: pd.Index
    chained: bool
    _graph: EventGraph
    _edge_op: IntArray  # operation whose delay or work is the edge's weight
    _edge_part: IntArray  # bit 1: its delay counts, bit 2: its work counts
    _step_of: IntArray

    def ends(self, delay_us: FloatArray | None = None, work_us: FloatArray | None = None) -> FloatArray:
        """End of every operation, us: since its step's begin, or since the first step's where steps are chained.

        Args:
            delay_us: one per operation, instead of the recorded ones.
            work_us: likewise.
        """
        delay = self.operations["delay_us"].to_numpy() if delay_us is None else delay_us
        work = self.operations["work_us"].to_numpy() if work_us is None else work_us
        weight = np.where(self._edge_part & 1, delay[self._edge_op], 0.0)
        weight += np.where(self._edge_part & 2, work[self._edge_op], 0.0)
        return self._graph.times(weight)[: len(self.operations)]

    def step_us(self, delay_us: FloatArray | None = None, work_us: FloatArray | None = None) -> pd.Series:
        """Length of each step, us, indexed by step; arguments as those of `ends`."""
        last = np.full(len(self.steps), -np.inf)
        np.maximum.at(last, self._step_of, self.ends(delay_us, work_us))
        length = np.diff(last, prepend=0.0) if self.chained else last
        return pd.Series(length, index=self.steps, name="step_us")


def prepare(operations: pd.DataFrame, dependencies: pd.DataFrame, *, chained: bool = False) -> Replay:
    """Make a replay of operations and their dependencies.

    Args:
        operations: table `operations` and, where already known, `waits` (False: a group member that ends without
            waiting for the others, such as a buffered send; it still is one that the others wait for) and `origin_ns`
            (begin of its step; by default the step's first start).
        dependencies: one row per need: operation, needs (both positions in `operations`).
        chained: the steps follow each other without gap, and dependencies lead from step to step.

    Returns:
        The replay. With its own delays and works it gives the recorded step times, as far as the recorded times keep
        the dependencies; a start before the end of a needed operation counts as delay 0.

    Raises:
        UnknownContentError: no operations, or the dependencies form a circle.
    """
    table = OPERATIONS.check(operations)
    if table.empty:
        raise UnknownContentError("There are no operations to replay.", fix=OPERATIONS.fix)
    table["waits"] = operations["waits"].to_numpy() if "waits" in operations else True
    start, end = _times(table, operations)
    needs = dependencies[["operation", "needs"]].to_numpy(dtype=np.int64)
    group = table["step"].astype("string") + "|" + table["group_id"]
    number = pd.factorize(group)[0].astype(np.int64)  # -1: no group
    table["delay_us"] = _delays(start, end, needs)
    table["work_us"] = _works(start, end, number, table["waits"].to_numpy(dtype=bool))
    step_of, steps = pd.factorize(table["step"], sort=True)
    sources, targets, edge_op, part, events = _edges(number, needs, table["waits"].to_numpy(dtype=bool))
    return Replay(
        operations=table, steps=pd.Index(steps, name="step"), chained=chained,
        _graph=event_graph(sources, targets, events), _edge_op=edge_op, _edge_part=part,
        _step_of=step_of.astype(np.int64),
    )  # fmt: skip


def lane_order(operations: pd.DataFrame) -> pd.DataFrame:
    """Dependencies of each operation on the one before it in its rank's queue, step by step.

    Returns:
        operation, needs: positions in `operations`.
    """
    position = np.arange(len(operations))
    order = operations.assign(position=position).sort_values(["rank_id", "step", "lane", "start_ns", "duration_us"])
    before = order.groupby(["rank_id", "step", "lane"])["position"].shift()
    known = before.notna().to_numpy()
    return pd.DataFrame(
        {"operation": order["position"].to_numpy()[known], "needs": before.to_numpy()[known].astype(np.int64)}
    )


def _times(table: pd.DataFrame, operations: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    """Starts and ends, us since the begin of the step (or since `origin_ns`)."""
    if "origin_ns" in operations:
        origin = operations["origin_ns"].to_numpy(dtype=np.int64)
    else:
        origin = table.groupby("step")["start_ns"].transform("min").to_numpy(dtype=np.int64)
    start = (table["start_ns"].to_numpy(dtype=np.int64) - origin) / 1e3
    return start, start + table["duration_us"].to_numpy()


def _delays(start: FloatArray, end: FloatArray, needs: IntArray) -> FloatArray:
    ready = np.full(len(start), -np.inf)
    np.maximum.at(ready, needs[:, 0], end[needs[:, 1]])
    return np.maximum(start - np.where(np.isfinite(ready), ready, 0.0), 0.0)


def _works(start: FloatArray, end: FloatArray, group: IntArray, waits: NDArray[np.bool_]) -> FloatArray:
    last = np.full(int(group.max(initial=-1)) + 1, -np.inf)
    grouped = group >= 0
    np.maximum.at(last, group[grouped], start[grouped])
    begin = start.copy()
    together = grouped & waits
    begin[together] = last[group[together]]
    return np.maximum(end - begin, 0.0)


def _edges(
    group: IntArray, needs: IntArray, waits: NDArray[np.bool_]
) -> tuple[IntArray, IntArray, IntArray, IntArray, int]:
    """Edges between events. Events 0 ... n-1 are ends of operations, then come the groups' starts, then the begin."""
    n = len(group)
    events = n + int(group.max(initial=-1)) + 2
    begin = events - 1
    free = np.setdiff1d(np.arange(n), needs[:, 0])
    need = np.concatenate([needs, np.column_stack([free, np.full(len(free), begin)])])
    op, source = need[:, 0], need[:, 1]
    grouped, own = group[op] >= 0, (group[op] < 0) | ~waits[op]
    members = np.flatnonzero((group >= 0) & waits)
    parts = (
        (source[grouped], n + group[op[grouped]], op[grouped], 1),  # ready: the group may start
        (source[own], op[own], op[own], 3),
        (n + group[members], members, members, 2),
    )
    sources, targets, edge_op = (np.concatenate([part[i] for part in parts]).astype(np.int64) for i in range(3))
    kind = np.concatenate([np.full(len(part[0]), part[3]) for part in parts])
    return sources, targets, edge_op, kind, events
