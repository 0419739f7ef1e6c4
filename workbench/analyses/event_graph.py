"""Edges between events -> the time of every event, where an event waits for the last of those that it needs.

Most events of a profile need one other event: a kernel its queue. Such chains are added up at once; only where several
needs meet is a maximum taken, wave by wave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.analyses.statistics import FloatArray
from workbench.errors import UnknownContentError

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class _Level:
    """Meetings that need only meetings of earlier levels: edges sorted by target, and where each target's begin."""

    edges: IntArray
    first: IntArray
    targets: IntArray


@dataclass(frozen=True)
class EventGraph:
    """A graph that was made ready by `event_graph`; `times` may be asked as often as wanted."""

    _sources: IntArray
    _only: IntArray  # edge that leads to each event with a single need, -1: events that meet or need none
    _jumps: tuple[NDArray[np.int32], ...]  # event that is 1, 2, 4, ... single needs before each event
    _root: IntArray  # last event before each event, or itself, that has not a single need
    _levels: tuple[_Level, ...]

    def times(self, weight: FloatArray) -> FloatArray:
        """Time of every event: 0 without needs, else the last of (time of a need + weight of the edge from it).

        Args:
            weight: one number per edge.
        """
        along = np.append(weight, 0.0)[self._only]
        for jump in self._jumps:
            along = along + along[jump]
        weight = weight + along[self._sources]
        root = self._root[self._sources]
        time = np.zeros(len(self._only))
        for level in self._levels:
            arrival = time[root[level.edges]] + weight[level.edges]
            time[level.targets] = np.maximum.reduceat(arrival, level.first)
        times: FloatArray = time[self._root] + along
        return times


def event_graph(sources: IntArray, targets: IntArray, events: int) -> EventGraph:
    """Make a graph ready.

    Args:
        sources: event that each edge comes from, 0 ... events - 1.
        targets: event that needs it.
        events: how many there are.

    Raises:
        UnknownContentError: events need each other in a circle.
    """
    needs = np.bincount(targets, minlength=events)
    single = needs[targets] == 1
    only = np.full(events, -1, dtype=np.int64)
    only[targets[single]] = np.flatnonzero(single)
    parent = np.where(only >= 0, np.append(sources, 0)[only], np.arange(events)).astype(np.int32)
    jumps = [parent]
    while (only[jumps[-1]] >= 0).any():
        if len(jumps) > events.bit_length():
            raise _circle(int((only[jumps[-1]] >= 0).sum()))
        jumps.append(jumps[-1][jumps[-1]])
    root = jumps[-1].astype(np.int64)
    return EventGraph(sources, only, tuple(jumps), root, _levels(root[sources], targets, only >= 0))


def _levels(sources: IntArray, targets: IntArray, is_single: NDArray[np.bool_]) -> tuple[_Level, ...]:
    """Meetings in waves: one belongs to the wave after the last of those that it needs. Sources are roots."""
    events = len(is_single)
    edges = np.flatnonzero(~is_single[targets])
    by_source = edges[np.argsort(sources[edges], kind="stable")]
    offsets = np.searchsorted(sources[by_source], np.arange(events + 1))
    by_target = edges[np.argsort(targets[edges], kind="stable")]
    target_offsets = np.searchsorted(targets[by_target], np.arange(events + 1))
    open_needs = np.diff(target_offsets)
    wave = np.flatnonzero((open_needs == 0) & ~is_single)
    levels, done = [], 0
    while len(wave):
        done += len(wave)
        reached, counts = np.unique(targets[by_source[_ranges(offsets[wave], offsets[wave + 1])]], return_counts=True)
        open_needs[reached] -= counts
        wave = reached[open_needs[reached] == 0]
        if len(wave):
            size = target_offsets[wave + 1] - target_offsets[wave]
            incoming = by_target[_ranges(target_offsets[wave], target_offsets[wave + 1])]
            levels.append(_Level(incoming, np.cumsum(size) - size, wave))
    if done < int((~is_single).sum()):
        raise _circle(int((~is_single).sum()) - done)
    return tuple(levels)


def _ranges(first: IntArray, end: IntArray) -> IntArray:
    """All numbers of the ranges first[i] ... end[i] - 1, one range after the other."""
    size = end - first
    within = np.arange(int(size.sum()), dtype=np.int64)
    numbers: IntArray = np.add(np.repeat(first - (np.cumsum(size) - size), size), within)
    return numbers


def _circle(events: int) -> UnknownContentError:
    return UnknownContentError(
        f"{events} operations of the step need each other in a circle.",
        fix="give complete steps: the order of operations cannot be told from a part of one",
    )
