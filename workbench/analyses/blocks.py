"""Table `tensor_lifetimes`, or a curve of a pool -> blocks with their births and deaths; sums of what is alive."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import UnknownParameterError
from workbench.tables import TENSOR_LIFETIMES

BEFORE = "allocated before the capture"

IntArray = NDArray[np.int64]


def main_pools(tensor_lifetimes: pd.DataFrame) -> list[tuple[int, int | None, pd.DataFrame]]:
    """Rows with size and time of each rank and window, of its main pool: the card, clock and pool with most bytes.

    A graph engine keeps a pool of its own beside the framework's, with its own running total. Its rows have no stream
    where those of the framework have one: that tells the two apart.

    Raises:
        MissingColumnsError: `tensor_lifetimes` lacks a column.
    """
    rows = TENSOR_LIFETIMES.check(tensor_lifetimes)
    timed = rows[rows["allocated_at"].notna() & rows["size_bytes"].notna()]
    found = []
    for (rank_id, window), one in timed.groupby(["rank_id", "window"], dropna=False, sort=True):
        place = one.groupby(["device_id", "clock", one["stream_id"].notna()], dropna=False).ngroup()
        top = one["allocated_total_bytes"].fillna(one["size_bytes"]).groupby(place).max()
        found.append((int(rank_id), None if pd.isna(window) else int(window), one[place == top.idxmax()]))
    return found


def main_pool(tensor_lifetimes: pd.DataFrame, rank_id: int) -> pd.DataFrame:
    """Rows of the main pool of one rank, of its window with most rows; without rows if the rank has none."""
    pools = [rows for rank, _, rows in main_pools(tensor_lifetimes) if rank == rank_id]
    return max(pools, key=len, default=TENSOR_LIFETIMES.empty())


def blocks_of(lifetimes: pd.DataFrame) -> pd.DataFrame:
    """All blocks of one pool: those with a row, and those that the record's running total tells of.

    Args:
        lifetimes: rows of one pool, as `main_pools` gives. Rows without size or time are left out.

    Returns:
        One row per block: name, size_bytes, allocated_at, freed_at (missing = to the end), and listed (has a row).

    Raises:
        MissingColumnsError: `lifetimes` lacks a column.
        UnknownParameterError: rows of several ranks, windows, cards or clocks.
    """
    rows = TENSOR_LIFETIMES.check(lifetimes)
    places = rows[["rank_id", "window", "device_id", "clock"]].drop_duplicates()
    if len(places) > 1:
        raise UnknownParameterError(
            f"Blocks of one rank, window, card and clock are needed; the rows are of {len(places)}.",
            fix="choose the rows of one, e.g. lifetimes[lifetimes.rank_id == 0]",
        )
    known = rows[rows["size_bytes"].notna() & rows["allocated_at"].notna()]
    listed = known[["name", "size_bytes", "allocated_at", "freed_at"]].assign(listed=True)
    unlisted = blocks_from_curve(unlisted_bytes(known)).assign(listed=False)
    earlier = unlisted["allocated_at"] - (unlisted["name"] == BEFORE).astype("int64")  # before the first row's block
    unlisted = unlisted.assign(allocated_at=earlier)
    return pd.concat([unlisted, listed], ignore_index=True) if len(unlisted) else listed.reset_index(drop=True)


def allocated_curve(blocks: pd.DataFrame) -> pd.DataFrame:
    """Sum of the blocks alive after each birth and death, in order of time: at, allocated_bytes (not rounded up)."""
    size = blocks["size_bytes"].to_numpy(np.int64)
    row, at, is_birth = events_in_order(size, *births_and_deaths(blocks))
    return pd.DataFrame({"at": at, "allocated_bytes": np.cumsum(np.where(is_birth, size[row], -size[row]))})


def alive_at(blocks: pd.DataFrame, at: int) -> pd.DataFrame:
    """The blocks alive at the fullest moment of time `at`: after its births, before what was just born dies again."""
    begin, end = births_and_deaths(blocks)
    return blocks[(begin <= at) & ((end > at) | (begin == at))]


def unlisted_bytes(lifetimes: pd.DataFrame) -> pd.DataFrame:
    """What the pool holds that the record has no row for: recorded total minus the rows alive, at each allocation.

    Args:
        lifetimes: table `tensor_lifetimes` of one rank.

    Returns:
        One row per time of an allocation with a recorded total: at, allocated_bytes (at least 0), the last of a time.
    """
    known = lifetimes[lifetimes["size_bytes"].notna() & lifetimes["allocated_at"].notna()]
    told = known[known["allocated_total_bytes"].notna()]
    if told.empty:
        return pd.DataFrame({"at": pd.Series(dtype="int64"), "allocated_bytes": pd.Series(dtype="float64")})
    begin, end = births_and_deaths(known)
    size = known["size_bytes"].to_numpy(float)
    total = told.groupby(told["allocated_at"].astype("int64"))["allocated_total_bytes"].max()
    at = total.index.to_numpy(np.int64)
    rest = total.to_numpy(float) - (summed_until(begin, size, at) - summed_until(end, size, at))
    return pd.DataFrame({"at": at, "allocated_bytes": np.maximum(rest, 0.0)})


def blocks_from_curve(curve: pd.DataFrame) -> pd.DataFrame:
    """Blocks that explain a curve of allocated bytes: a rise is a block, a fall frees the newest blocks.

    A fall frees the newest block of just that size if there is one; else the newest blocks, the last of them in part.

    Args:
        curve: at, allocated_bytes; in any order.

    Returns:
        One row per block: name (`BEFORE` for the first, else "allocated at <time>"), size_bytes, allocated_at,
        freed_at.
    """
    known = curve.dropna(subset=["at", "allocated_bytes"]).sort_values(["at", "allocated_bytes"], kind="stable")
    last = known.drop_duplicates("at", keep="last") if known["at"].duplicated().any() else known
    levels = np.rint(last["allocated_bytes"].to_numpy(float)).astype(np.int64)
    times = last["at"].to_numpy(np.int64)
    done: list[tuple[int, int, int | None]] = []
    alive: list[tuple[int, int]] = []  # (size, born)
    for at, change in zip(times.tolist(), np.diff(levels, prepend=0).tolist(), strict=True):
        if change > 0:
            alive.append((change, at))
        elif change < 0:
            _release(alive, done, -change, at)
    done += [(size, born, None) for size, born in alive]
    first = int(times[0]) if len(times) else 0
    frame = pd.DataFrame(done, columns=["size_bytes", "allocated_at", "freed_at"]).sort_values("allocated_at")
    names = [BEFORE if born == first else f"allocated at {born}" for born in frame["allocated_at"]]
    return frame.assign(name=pd.array(names, dtype="string"), freed_at=frame["freed_at"].astype("Int64"))


def births_and_deaths(blocks: pd.DataFrame) -> tuple[IntArray, IntArray]:
    """Times of birth and death; a block that was never freed dies after all others, none before its birth."""
    begin = blocks["allocated_at"].to_numpy(np.int64)
    end = blocks["freed_at"].astype("Int64").fillna(np.iinfo(np.int64).max).to_numpy(np.int64)
    return begin, np.maximum(begin, end)


def summed_until(times: IntArray, sizes: NDArray[np.float64], at: IntArray) -> NDArray[np.float64]:
    """Sum of the sizes whose time is at or before each `at`."""
    order = np.argsort(times, kind="stable")
    totals = np.concatenate([[0.0], np.cumsum(sizes[order])])
    return totals[np.searchsorted(times[order], at, side="right")]


def events_in_order(size: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Row, time and kind of each event in order: at one time deaths, births, deaths of blocks just born."""
    rows = np.arange(len(size))
    dies = end < np.iinfo(np.int64).max
    row = np.concatenate([rows[dies], rows])
    at = np.concatenate([end[dies], begin])
    kind = np.concatenate([np.where(end[dies] > begin[dies], 0, 2), np.ones(len(rows), np.int64)])
    order = np.argsort(at, kind="stable")  # deaths first
    if len(at) and (np.diff(at[order]) == 0).any():  # full ties are the same block: row order cannot matter
        order = np.lexsort((end[row], begin[row], size[row], kind, at))
    return row[order], at[order], kind[order] == 1


def _release(alive: list[tuple[int, int]], done: list[tuple[int, int, int | None]], size: int, at: int) -> None:
    for i in range(len(alive) - 1, -1, -1):
        if alive[i][0] == size:
            done.append((size, alive.pop(i)[1], at))
            return
    while size > 0:
        newest, born = alive.pop()
        freed = min(newest, size)
        done.append((freed, born, at))
        size -= freed
        if newest > freed:
            alive.append((newest - freed, born))
