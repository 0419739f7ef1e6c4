"""Telemetry of one rank over time beside the range of all other ranks, reduced for a chart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.analyses.telemetry import CONTEXT, SIGNS, with_ranks
from workbench.tables import TELEMETRY

BUCKETS = 120
METRICS = tuple(dict.fromkeys(m for s in SIGNS for m in (s.metric, *CONTEXT.get(s.reason, ()))))
COURSE = ["metric", "who", "at", "axis", "low", "median", "high"]
S_PER_NS = 1e-9


def telemetry_course(
    telemetry: pd.DataFrame, rank_id: int, *, metrics: Sequence[str] = METRICS, buckets: int = BUCKETS
) -> pd.DataFrame:
    """Range and median per bucket of time, of one rank and of all others together.

    Args:
        telemetry: table `telemetry`.
        rank_id: the rank to look at.
        metrics: metrics to show, in this order; by default those that can be the reason of a slow rank.
        buckets: how many buckets the time is cut into.

    Returns:
        One row per metric, who ("rank 3", "other ranks") and bucket with a sample: at (seconds since the first sample
        of the metrics, or the step where samples have no time), axis ("time (s)" or "step"), low, median, high. Metrics
        that the rank does not have, or that never differ from 0, are left out. Empty in, empty out.

    Raises:
        MissingColumnsError: a column is missing.
    """
    rows = with_ranks(TELEMETRY.check(telemetry).dropna(subset=["value"]))
    rows = rows[rows["metric"].isin(metrics)]
    timed = rows["time_ns"].notna().any()
    at = rows["time_ns"] if timed else rows["step"]
    rows = rows.assign(at=at).dropna(subset=["at"])
    own = rows[rows["rank_id"] == rank_id]
    shown = [m for m in metrics if own.loc[own["metric"] == m, "value"].ne(0).any()]
    rows = rows[rows["metric"].isin(shown)]
    if rows.empty:
        return pd.DataFrame(columns=COURSE)
    place = rows["at"].astype("int64")
    first, last = int(place.min()), int(place.max())
    width = max((last - first) / buckets, 1.0)
    bucket = np.minimum((place - first) // width, buckets - 1)
    middle = first + (bucket + 0.5) * width if timed and width > 1 else place
    who = np.where(rows["rank_id"] == rank_id, f"rank {rank_id}", "other ranks")
    x = (middle - first) * S_PER_NS if timed else middle
    groups = rows.assign(who=who, at=x.astype("float64")).groupby(["metric", "who", "at"])["value"]
    course = groups.agg(low="min", median="median", high="max").reset_index()
    order = {metric: i for i, metric in enumerate(shown)}
    course = course.assign(axis="time (s)" if timed else "step", place=course["metric"].map(order))
    return course.sort_values(["place", "who", "at"], ignore_index=True)[COURSE]
