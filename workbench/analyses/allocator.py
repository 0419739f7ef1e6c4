"""Allocations with their births and deaths -> what a best-fit memory pool does with them: addresses, peak, growth.

The pool is the one that MindSpore describes for its devices: requests are rounded up to `align_bytes`, the smallest
free piece that fits is taken (the lowest address among equals), what is left of it stays free, a freed block merges
with free neighbours, and a pool without a fitting piece grows by whole blocks, which never merge with each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyses.blocks import IntArray, births_and_deaths, blocks_of, events_in_order
from workbench.errors import UnknownParameterError

ALIGN_BYTES = 512  # MindSpore: what every block is rounded up to
GROW_BYTES = 1 << 30  # MindSpore: the device pool grows by 1 GiB
STALE_SIZES = 4096  # sizes without free pieces that the index may hold before it is built anew


class BestFitPool:
    """A memory pool; `allocate` gives an address, `free` takes it back. All sizes are bytes."""

    def __init__(self, *, align_bytes: int = ALIGN_BYTES, grow_bytes: int = GROW_BYTES) -> None:
        if align_bytes < 1 or grow_bytes < align_bytes:
            raise UnknownParameterError(
                f"A pool cannot grow by {grow_bytes} bytes in pieces of {align_bytes}.",
                fix="give align_bytes of at least 1 and grow_bytes of at least align_bytes",
            )
        self.align_bytes, self.grow_bytes = align_bytes, grow_bytes
        self.reserved_bytes = 0
        self._top = 0  # first address beyond the last growth block
        self._sizes: list[int] = []  # sizes in `_of_size`, sorted
        self._of_size: dict[int, list[int]] = {}  # size -> heap of starts; a start that is no longer free is stale
        self._free: dict[int, int] = {}  # start -> size of every free piece
        self._ends: dict[int, int] = {}  # end -> start of every free piece
        self._live: dict[int, int] = {}  # start -> size of every block in use

    def allocate(self, size_bytes: int) -> int:
        """Address of a new block of at least `size_bytes`."""
        size = max(-(-size_bytes // self.align_bytes), 1) * self.align_bytes
        start, found = self._take(size)
        if start < 0:
            start, found = self._grow(size)
        if found > size:
            self._add(start + size, found - size)
        self._live[start] = size
        return start

    def free(self, start: int) -> None:
        """Give the block at `start` back; it merges with free neighbours."""
        size = self._live.pop(start)
        end = start + size
        before = self._ends.pop(start, -1)
        if before >= 0:
            del self._free[before]
            start = before
        after = self._free.pop(end, 0)
        if after:
            end += after
        self._add(start, end - start)

    def _take(self, size: int) -> tuple[int, int]:
        """Start and size of the best free piece, taken out; start -1 where none fits."""
        sizes, free = self._sizes, self._free
        i = bisect_left(sizes, size)
        while i < len(sizes):
            found = sizes[i]
            starts = self._of_size[found]
            start = -1
            while starts and start < 0:
                start = heappop(starts)
                if free.get(start) != found:
                    start = -1
            if not starts:
                del sizes[i], self._of_size[found]
            if start >= 0:
                del free[start], self._ends[start + found]
                return start, found
        return -1, 0

    def _grow(self, size: int) -> tuple[int, int]:
        grown = -(-size // self.grow_bytes) * self.grow_bytes
        start = self._top
        self._top += grown + self.align_bytes  # a gap: growth blocks never merge
        self.reserved_bytes += grown
        return start, grown

    def _add(self, start: int, size: int) -> None:
        self._free[start] = size
        self._ends[start + size] = start
        starts = self._of_size.get(size)
        if starts is not None:
            heappush(starts, start)
            return
        if len(self._sizes) > STALE_SIZES + 4 * len(self._free):
            self._rebuild()
        else:
            self._of_size[size] = [start]
            insort(self._sizes, size)

    def _rebuild(self) -> None:
        self._of_size = {}
        for start, size in self._free.items():
            heappush(self._of_size.setdefault(size, []), start)
        self._sizes = sorted(self._of_size)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What a pool did with the allocations of one rank.

    Attributes:
        curve: one row per event in order of time: at, allocated_bytes (rounded up as the pool does), reserved_bytes.
        blocks: the blocks in order of time: name, size_bytes, allocated_at, freed_at (missing = to the end), address.
        untimed: rows without a size or an allocation time, which could not be replayed.
    """

    curve: pd.DataFrame
    blocks: pd.DataFrame
    untimed: int

    @property
    def peak_allocated_bytes(self) -> float:
        """Largest sum of blocks in use; 0 without events."""
        return float(self.curve["allocated_bytes"].max()) if len(self.curve) else 0.0

    @property
    def peak_reserved_bytes(self) -> float:
        """Largest size of the pool; 0 without events."""
        return float(self.curve["reserved_bytes"].max()) if len(self.curve) else 0.0

    @property
    def peak_at(self) -> int:
        """Time of the allocated peak, the first one."""
        return int(self.curve["at"].iloc[int(self.curve["allocated_bytes"].argmax())])


def replay(lifetimes: pd.DataFrame, *, align_bytes: int = ALIGN_BYTES, grow_bytes: int = GROW_BYTES) -> Replay:
    """Replay the allocations of one rank and window through a best-fit pool.

    What the record tells of blocks that it has no row for (its running total minus the rows alive) is replayed, too, as
    blocks named `BEFORE`. At one time, releases come before allocations. The result does not depend on row order.

    Args:
        lifetimes: table `tensor_lifetimes` of one rank and window.
        align_bytes: what sizes are rounded up to.
        grow_bytes: unit by which the pool grows.

    Raises:
        MissingColumnsError: `lifetimes` lacks a column.
        UnknownParameterError: rows of several ranks, or an impossible pool.

    Source: MindSpore's dynamic memory pool (best fit, 512 bytes, 1 GiB); `set_memory` changes the growth unit.
    """
    blocks = blocks_of(lifetimes)
    curve, ordered = replay_blocks(blocks, align_bytes=align_bytes, grow_bytes=grow_bytes)
    return Replay(curve=curve, blocks=ordered, untimed=len(lifetimes) - int(blocks["listed"].sum()))


def replay_blocks(
    blocks: pd.DataFrame, *, align_bytes: int = ALIGN_BYTES, grow_bytes: int = GROW_BYTES
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curve and addressed blocks, as in `Replay`, of blocks with size_bytes, allocated_at and freed_at."""
    size = blocks["size_bytes"].to_numpy(np.int64)
    begin, end = births_and_deaths(blocks)
    row, at, is_birth = events_in_order(size, begin, end)
    pool = BestFitPool(align_bytes=align_bytes, grow_bytes=grow_bytes)
    address, reserved = _run(pool, size, row, is_birth)
    padded = np.maximum(-(-size // align_bytes), 1) * align_bytes
    allocated = np.cumsum(np.where(is_birth, padded[row], -padded[row]))
    curve = pd.DataFrame({"at": at, "allocated_bytes": allocated, "reserved_bytes": reserved})
    ordered = blocks.assign(address=address).iloc[row[is_birth]].reset_index(drop=True)
    return curve, ordered


def _run(pool: BestFitPool, size: IntArray, row: IntArray, is_birth: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Address of each block, and the pool's size after each event."""
    address, sizes = [0] * len(size), size.tolist()
    reserved = np.zeros(len(row), np.int64)
    allocate, free, last = pool.allocate, pool.free, 0
    for event, (block, born) in enumerate(zip(row.tolist(), is_birth.tolist(), strict=True)):
        if born:
            address[block] = allocate(sizes[block])
            if pool.reserved_bytes != last:
                last = reserved[event] = pool.reserved_bytes
        else:
            free(address[block])
    return np.array(address, np.int64), np.maximum.accumulate(reserved)
