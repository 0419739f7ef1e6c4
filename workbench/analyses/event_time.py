"""Which recorded step each event falls into, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.tables import EVENTS


def event_time(timed: pd.DataFrame, events: pd.DataFrame | None, kinds: Sequence[str]) -> pd.DataFrame:
    """Microseconds of each kind of event within each step's wall time.

    A step's wall time ends at `time_ns` and begins `wall_us` earlier: what ran after the step before (saving,
    evaluating) belongs to it, as `callbacks_us` does. An event over several steps (a profile window) counts in each
    with its overlap. In a rank without times of day an event belongs to the step after the one that it names.

    Args:
        timed: rank_id, step, time_ns, wall_us; as `step_time.timed_steps` returns it.
        events: table `events`, or None. Open events (no duration) are left out.
        kinds: kinds of events to count.

    Returns:
        One column per kind, index and row order of `timed`; 0 where there is none.
    """
    found = pd.DataFrame(0.0, index=timed.index, columns=list(kinds))
    if events is None or timed.empty:
        return found
    known = EVENTS.check(events).dropna(subset=["duration_us", "start_ns"])
    known = known[known["kind"].isin(kinds)]
    for rank_id, rank_events in known.groupby("rank_id"):
        rows = timed[timed["rank_id"] == rank_id].sort_values("step")
        if rows.empty:
            continue
        overlaps = _by_time(rows, rank_events) if rows["time_ns"].notna().all() else _by_step(rows, rank_events)
        for kind, part in overlaps.groupby("kind"):
            totals = part.groupby("row")["duration_us"].sum()
            found.loc[totals.index, str(kind)] += totals
    return found


def _by_time(rows: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    base = int(rows["time_ns"].iloc[0])
    end = (rows["time_ns"].to_numpy(dtype="int64") - base) / 1e3
    begin = end - rows["wall_us"].fillna(0.0).to_numpy()
    event_begin = (events["start_ns"].to_numpy(dtype="int64") - base) / 1e3
    event_end = event_begin + events["duration_us"].to_numpy()
    first = np.searchsorted(end, event_begin, side="right")
    last = np.minimum(np.searchsorted(end, event_end, side="left"), len(rows) - 1)
    count = np.maximum(last - first + 1, 0)
    event = np.repeat(np.arange(len(events)), count)
    row = np.arange(len(event)) - np.repeat(np.cumsum(count) - count, count) + first[event]
    overlap = np.minimum(event_end[event], end[row]) - np.maximum(event_begin[event], begin[row])
    return pd.DataFrame(
        {
            "kind": events["kind"].to_numpy(dtype=str)[event],
            "row": rows.index.to_numpy()[row],
            "duration_us": np.maximum(overlap, 0.0),
        }
    )


def _by_step(rows: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    index_of_step = pd.Series(rows.index, index=rows["step"].to_numpy(dtype="int64"))
    named = events.dropna(subset=["step"])
    row = (named["step"].astype("int64") + 1).map(index_of_step)
    return named.assign(row=row).dropna(subset=["row"])[["kind", "row", "duration_us"]]
