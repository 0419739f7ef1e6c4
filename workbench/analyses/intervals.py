"""Time intervals as pairs of integer arrays: their union, and how much of it lies before a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


class Spans(NamedTuple):
    """Disjoint intervals in ascending order, nanoseconds; `end` is not part of its interval."""

    start: Times
    end: Times


def merge(start: Times, end: Times) -> Spans:
    """Union of intervals in any order; empty and backward ones are dropped.

    Source: the sweep over sorted starts; the test counts each nanosecond instead.
    """
    kept = end > start
    start, end = start[kept].astype(np.int64), end[kept].astype(np.int64)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(order) else end[order]
    is_first = np.ones(len(start), dtype=bool)
    is_first[1:] = start[1:] > end[:-1]
    return Spans(start[is_first], end[np.append(is_first[1:], True)[: len(end)]])


def union(*several: Spans) -> Spans:
    """Union of several sets of intervals."""
    return merge(np.concatenate([s.start for s in several]), np.concatenate([s.end for s in several]))


def covered_before(spans: Spans, at: Times) -> Times:
    """Nanoseconds that `spans` cover before each time: the cover of [a, b) is the difference of its values."""
    lengths = np.concatenate([[0], np.cumsum(spans.end - spans.start)]).astype(np.int64)
    number = np.searchsorted(spans.start, at, side="right")
    if not len(spans.start):
        return np.zeros(len(at), dtype=np.int64)
    beyond = np.where(number > 0, np.maximum(spans.end[np.maximum(number - 1, 0)] - at, 0), 0)
    return np.asarray(lengths[number] - beyond, dtype=np.int64)


def gaps(spans: Spans) -> Spans:
    """The intervals between neighbouring spans."""
    return Spans(spans.end[:-1], spans.start[1:])
