"""Fewer rows for a chart, without losing what the eye looks for: extremes, and points that are not numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import UnknownParameterError

MAX_POINTS = 1500


def downsample(df: pd.DataFrame, columns: list[str], *, max_points: int = MAX_POINTS) -> pd.DataFrame:
    """Keep about `max_points` of the rows, in their order: per bucket the rows of each column's minimum and maximum.

    The first and the last row are kept, and (up to `max_points`, evenly chosen) the rows in which one of `columns` is
    missing or infinite, so that a NaN loss stays in sight.

    Args:
        df: rows in the order of the chart's x axis.
        columns: numeric columns that the chart shows.
        max_points: about how many rows to keep; fewer rows are returned as they are.

    Source: min-max aggregation, Jugel et al., "M4", VLDB 2014, without its first and last of each bucket.
    """
    if missing := [c for c in columns if c not in df]:
        raise UnknownParameterError(f"There is no column {missing}.", fix=f"use some of {list(df)}")
    if len(df) <= max_points or not columns:
        return df.copy()
    buckets = max(max_points // (2 * len(columns)), 1)
    bucket = np.arange(len(df)) * buckets // len(df)
    keep = np.zeros(len(df), dtype=bool)
    keep[[0, -1]] = True
    for column in columns:
        values = df[column].astype("float64").replace([np.inf, -np.inf], np.nan).reset_index(drop=True)
        by_bucket = values.dropna().groupby(bucket[values.notna()])
        keep[by_bucket.idxmin().to_numpy()] = True
        keep[by_bucket.idxmax().to_numpy()] = True
        broken = np.flatnonzero(values.isna())
        keep[broken[:: max(1, -(-len(broken) // max_points))]] = True
    return df[keep]
