"""Device tasks -> bars of a timeline, at most a given number: DuckDB joins what the eye could not tell apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

STEPS_MOST = 5  # more steps than this are too narrow to tell their tasks apart
BARS_MOST = 2500
PIXELS = 1400  # gaps of less than half a pixel of the plot are not shown
SEEN_SHARE = 1e-4  # tasks that cover less of the time than this cannot be seen: their clocks differ, or steps lack
COMPUTING, COMMUNICATION, IDLE = "computing", "communication", "idle"

_BUSY = f"CASE WHEN coalesce(is_communication, FALSE) THEN '{COMMUNICATION}' ELSE '{COMPUTING}' END"
_STREAM = (
    f"CASE WHEN coalesce(is_communication, FALSE) AND stream_id IS NULL THEN '{COMMUNICATION}' "
    "WHEN stream_id IS NULL THEN 'tasks' ELSE 'stream ' || stream_id END"
)
_TASKS = """
WITH tasks AS (
    SELECT rank_id, step, coalesce("window", 0) AS "window", {lane} AS lane, name, op_type,
        start_ns - {ahead_ns} AS start_ns, start_ns - {ahead_ns} + CAST(duration_us * 1000 AS BIGINT) AS end_ns
    FROM kernels
    WHERE start_ns IS NOT NULL AND duration_us > 0 AND rank_id IN ({ranks}) AND {steps}
)
"""
_SPANS = """
SELECT step, "window", count(*) AS tasks, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
    CAST(sum(end_ns - start_ns) AS BIGINT) / 1e3 AS busy_us
FROM tasks GROUP BY step, "window" ORDER BY "window", step
"""
_AGGREGATES = """
    count(*) AS tasks, arg_max(name, end_ns - start_ns) AS name, arg_max(op_type, end_ns - start_ns) AS op_type,
    min(start_ns) AS start_ns, max(end_ns) AS end_ns, CAST(sum(end_ns - start_ns) AS BIGINT) / 1e3 AS busy_us
"""
_ISLANDS = """,
reached AS (
    SELECT *, max(end_ns) OVER before AS reached_ns, lag(step) OVER in_order AS step_before
    FROM tasks WHERE "window" = {window}
    WINDOW in_order AS (PARTITION BY rank_id, lane ORDER BY start_ns, end_ns),
        before AS (PARTITION BY rank_id, lane ORDER BY start_ns, end_ns
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
numbered AS (
    SELECT *, count(*) FILTER (
        reached_ns IS NULL OR start_ns > reached_ns + {gap_ns} OR step IS DISTINCT FROM step_before
    ) OVER (PARTITION BY rank_id, lane ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
    FROM reached
)
SELECT rank_id, lane, step, {aggregates} FROM numbered
GROUP BY rank_id, lane, step, island ORDER BY rank_id, lane, start_ns
"""
_BINS = """
SELECT rank_id, lane, step, {aggregates} FROM tasks WHERE "window" = {window}
GROUP BY rank_id, lane, step, end_ns - start_ns >= {gap_ns},
    CASE WHEN end_ns - start_ns >= {gap_ns} THEN start_ns ELSE start_ns // {gap_ns} END
ORDER BY rank_id, lane, start_ns
"""


@dataclass(frozen=True)
class Tasks:
    """Where the tasks are, and which of them are drawn.

    Attributes:
        query: runs SQL over table `kernels` (`run.sql`).
        ranks: ranks to take.
        ahead_us: what the clock of a rank is ahead of the others' (`collective_waits.clock_offsets`), where known.
    """

    query: Callable[[str], pd.DataFrame]
    ranks: tuple[int, ...]
    ahead_us: Mapping[int, float] = field(default_factory=dict)

    def ask(self, statement: str, *, lane: str, steps: str) -> pd.DataFrame:
        """Result of a statement that goes on after the tasks of these ranks and steps."""
        known = {r: round(self.ahead_us.get(r, 0.0) * 1e3) for r in self.ranks}
        cases = " ".join(f"WHEN {r} THEN {ns}" for r, ns in known.items() if ns)
        ahead = f"(CASE rank_id {cases} ELSE 0 END)" if cases else "0"
        ranks = ", ".join(map(str, self.ranks)) or "NULL"
        return self.query(_TASKS.format(lane=lane, ahead_ns=ahead, ranks=ranks, steps=steps) + statement)


def shown_steps(tasks: Tasks, steps: tuple[int, int], *, steps_most: int = STEPS_MOST) -> pd.DataFrame:
    """The first steps within the range that have tasks with a start, of the earliest profile window.

    Args:
        tasks: the tasks.
        steps: first and last step; tasks without a step are taken only where no task within the range has one.
        steps_most: how many steps to take.

    Returns:
        One row per step: step, window, tasks (number), start_ns and end_ns over the ranks, busy_us (sum of the tasks).
        Empty where no task has a start.
    """
    found = tasks.ask(_SPANS, lane="''", steps=f"step BETWEEN {steps[0]} AND {steps[1]}")
    if found.empty:
        found = tasks.ask(_SPANS, lane="''", steps="step IS NULL")
    return found[found["window"] == found["window"].min()].head(steps_most).reset_index(drop=True)


def can_be_seen(shown: pd.DataFrame) -> bool:
    """Whether the tasks of `shown_steps` cover a visible part of the time that they span."""
    span_us = (shown["end_ns"].max() - shown["start_ns"].min()) / 1e3
    return bool(shown["busy_us"].sum() >= SEEN_SHARE * span_us)


def rank_bars(tasks: Tasks, shown: pd.DataFrame, *, bars_most: int = BARS_MOST) -> pd.DataFrame:
    """When each rank computes, communicates and stands idle.

    Tasks of one kind that touch, or whose gap is under half a pixel, are one bar. Where that leaves more than
    `bars_most` bars of tasks, wider gaps are closed, too.

    Args:
        tasks: the tasks.
        shown: as `shown_steps` returns, not empty.
        bars_most: bars of tasks at most.

    Returns:
        Sorted rows: rank_id, lane (computing, communication, idle), step (missing for idle), tasks (in the bar), name
        and op_type (of its longest task), start_ns, end_ns, busy_us (sum of the tasks). Idle is what no task of the
        rank covers between the first begin and the last end of `shown`.
    """
    bars, gap_ns = _fitting(tasks, _ISLANDS, _BUSY, shown, bars_most, first_gap_ns=_pixel_ns(shown))
    rows = pd.concat([bars, _idle(bars, int(shown["start_ns"].min()), int(shown["end_ns"].max()), gap_ns)])
    return rows.sort_values(["rank_id", "start_ns", "lane"], ignore_index=True)


def stream_bars(tasks: Tasks, shown: pd.DataFrame, *, bars_most: int = BARS_MOST) -> pd.DataFrame:
    """Each task by its stream; where there are more than `bars_most`, short neighbours are one bar.

    Args:
        tasks: the tasks.
        shown: as `shown_steps` returns, not empty.
        bars_most: bars at most.

    Returns:
        Sorted rows as of `rank_bars`; lane is the stream.
    """
    return _fitting(tasks, _BINS, _STREAM, shown, bars_most, first_gap_ns=1)[0]


def _fitting(
    tasks: Tasks, grouping: str, lane: str, shown: pd.DataFrame, bars_most: int, *, first_gap_ns: int
) -> tuple[pd.DataFrame, int]:
    """The finest bars that are no more than `bars_most`, and the longest gap that they hide."""
    known = shown["step"].dropna()
    steps = f"step BETWEEN {int(known.min())} AND {int(known.max())}" if len(known) else "step IS NULL"
    longest_ns, gap_ns = int(shown["end_ns"].max() - shown["start_ns"].min()), first_gap_ns
    while True:
        words = grouping.format(aggregates=_AGGREGATES, gap_ns=gap_ns, window=int(shown["window"].iloc[0]))
        bars = tasks.ask(words, lane=lane, steps=steps)
        if len(bars) <= bars_most or gap_ns > longest_ns:
            return bars, gap_ns
        gap_ns = max(gap_ns * 2, _pixel_ns(shown))


def _pixel_ns(shown: pd.DataFrame) -> int:
    return max(int(shown["end_ns"].max() - shown["start_ns"].min()) // PIXELS, 1)


def _idle(bars: pd.DataFrame, first_ns: int, last_ns: int, shortest_ns: int) -> pd.DataFrame:
    """What the bars of each rank leave uncovered between two times, if longer than `shortest_ns`."""
    rows = []
    for rank_id, own in bars.sort_values("start_ns").groupby("rank_id"):
        reached = own["end_ns"].cummax().tolist()
        begins, ends = [first_ns, *reached], [*own["start_ns"], last_ns]
        rows += [(rank_id, a, b) for a, b in zip(begins, ends, strict=True) if b - a > shortest_ns]
    frame = pd.DataFrame(rows, columns=["rank_id", "start_ns", "end_ns"]).astype("int64")
    return frame.assign(lane=IDLE, tasks=0, name=None, op_type=None, busy_us=0.0)
