"""Blocks of a rank and a change to some of them -> the peak and the pool that the change would have given."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from workbench.analyses.allocator import ALIGN_BYTES, GROW_BYTES, replay, replay_blocks
from workbench.analyses.blocks import births_and_deaths, main_pool
from workbench.analyses.lifetimes import operator_stem, peak_parts
from workbench.errors import UnknownParameterError
from workbench.tables import TENSOR_LIFETIMES

Change = Literal["free_at_last_use", "recompute", "offload"]
COLUMNS = ["part", "change", "blocks", "size_bytes", "peak_allocated_bytes", "saved_allocated_bytes",
           "peak_reserved_bytes", "saved_reserved_bytes", "moved_bytes"]  # fmt: skip


def what_if(
    lifetimes: pd.DataFrame,
    part: str,
    change: Change,
    *,
    last_used_at: pd.Series | None = None,
    align_bytes: int = ALIGN_BYTES,
    grow_bytes: int = GROW_BYTES,
) -> pd.DataFrame:
    """Peak and pool if the blocks of one operator were freed at their last use, recomputed, or offloaded.

    - free_at_last_use: each block ends at the time `last_used_at` says (never later than it ended); one without such a
      time stays as it is.
    - recompute, offload: each block is there from its birth to the next event of the pool, and again from the last
      event before its death to its death. No record tells when a block is read, so this is the most that can be saved.
      Recomputing costs the operator's time once more; offloading moves each block out and in: moved_bytes.

    Args:
        lifetimes: rows of one pool, as `main_pools` gives.
        part: an `operator_stem`.
        change: what to do with its blocks.
        last_used_at: time of the last use by label of `lifetimes`; by default the column of that name.
        align_bytes: see `replay`.
        grow_bytes: see `replay`.

    Returns:
        One row: part, change, blocks, size_bytes (of the blocks changed), peak_allocated_bytes and peak_reserved_bytes
        after the change, what each saves against the unchanged replay, moved_bytes.

    Raises:
        UnknownParameterError: no block of that name, an unknown change, or no times of last use.
    """
    before = replay(lifetimes, align_bytes=align_bytes, grow_bytes=grow_bytes)
    blocks = before.blocks
    chosen = (operator_stem(blocks["name"]) == part).fillna(False).to_numpy(bool) & blocks["listed"].to_numpy(bool)
    if not chosen.any():
        raise UnknownParameterError(f"No block belongs to {part!r}.", fix="use a part that peak_parts names")
    if change == "free_at_last_use":
        changed = _freed_earlier(lifetimes, part, last_used_at, blocks)
    elif change in ("recompute", "offload"):
        changed = absent_between_uses(blocks, chosen)
    else:
        raise UnknownParameterError(f"{change!r} is no change.", fix="use free_at_last_use, recompute or offload")
    curve, _ = replay_blocks(changed, align_bytes=align_bytes, grow_bytes=grow_bytes)
    size = float(blocks.loc[chosen, "size_bytes"].sum())
    peak, pool = float(curve["allocated_bytes"].max()), float(curve["reserved_bytes"].max())
    row = (part, change, int(chosen.sum()), size, peak, before.peak_allocated_bytes - peak, pool,
           before.peak_reserved_bytes - pool, 2 * size if change == "offload" else 0.0)  # fmt: skip
    return pd.DataFrame([row], columns=COLUMNS)


def recompute_savings(tensor_lifetimes: pd.DataFrame, *, parts: int = 5) -> pd.DataFrame:
    """What recomputing each of the largest operators at the peak would save, of the rank with the highest peak.

    Returns:
        `what_if` rows for the `parts` largest listed parts of that rank's peak with its rank_id, most saved first.
        Empty where no block is listed.
    """
    return _savings(tensor_lifetimes, "recompute", parts)


def last_use_savings(tensor_lifetimes: pd.DataFrame, *, parts: int = 5) -> pd.DataFrame:
    """What freeing the blocks of each of the largest operators at their last use would save.

    Returns:
        As `recompute_savings`, of blocks with a known last use. Empty where no last use is recorded.
    """
    rows = TENSOR_LIFETIMES.check(tensor_lifetimes)
    return _savings(rows, "free_at_last_use", parts) if rows["last_used_at"].notna().any() else _nothing()


def _nothing() -> pd.DataFrame:
    return pd.DataFrame(columns=["rank_id", *COLUMNS])


def _savings(tensor_lifetimes: pd.DataFrame, change: Change, parts: int) -> pd.DataFrame:
    found = peak_parts(tensor_lifetimes)
    listed = found[found["listed"].astype(bool)]
    if listed.empty:
        return _nothing()
    rank_id = int(listed.loc[listed["peak_bytes"].idxmax(), "rank_id"])
    rows = main_pool(tensor_lifetimes, rank_id)
    here = peak_parts(rows)
    names = here.loc[here["listed"].astype(bool), "part"].head(parts)
    table = pd.concat([what_if(rows, str(name), change) for name in names], ignore_index=True)
    table.insert(0, "rank_id", rank_id)
    return table.sort_values("saved_allocated_bytes", ascending=False, kind="stable", ignore_index=True)


def absent_between_uses(blocks: pd.DataFrame, chosen: np.ndarray) -> pd.DataFrame:
    """Blocks with each chosen one cut in two: alive only next to its birth and next to its death.

    A block is cut where at least two further events of the pool lie inside its life; one that is never freed stays as
    it is. Shorter ones stay, too.
    """
    begin, end = births_and_deaths(blocks)
    dies = end < np.iinfo(np.int64).max
    times = np.unique(np.concatenate([begin, end[dies]]))
    leave = times[np.minimum(np.searchsorted(times, begin, side="right"), len(times) - 1)]
    back = times[np.maximum(np.searchsorted(times, np.where(dies, end, times[0]), side="left") - 1, 0)]
    cut = chosen & dies & (leave < back)
    first = blocks[cut].assign(freed_at=pd.array(leave[cut], dtype="Int64"))
    second = blocks[cut].assign(allocated_at=pd.array(back[cut], dtype="Int64"))
    return pd.concat([blocks[~cut], first, second], ignore_index=True)


def _freed_earlier(
    lifetimes: pd.DataFrame, part: str, last_used_at: pd.Series | None, blocks: pd.DataFrame
) -> pd.DataFrame:
    if last_used_at is None and "last_used_at" in lifetimes and lifetimes["last_used_at"].notna().any():
        last_used_at = lifetimes["last_used_at"]
    if last_used_at is None:
        raise UnknownParameterError(
            "Nothing tells when the blocks were last used.",
            fix="give last_used_at: a Series of times by row label of the lifetimes",
        )
    rows = lifetimes[(operator_stem(lifetimes["name"]) == part).fillna(False)]
    wanted = last_used_at.reindex(rows.index).astype("Int64")
    dead = rows["freed_at"].astype("Int64")
    earlier = wanted.where(dead.isna() | (wanted < dead), dead)
    others = blocks[~((operator_stem(blocks["name"]) == part).fillna(False) & blocks["listed"])]
    columns = ["name", "size_bytes", "allocated_at", "freed_at"]
    changed = rows.assign(freed_at=earlier.fillna(dead) if len(earlier) else dead)[columns].assign(listed=True)
    return pd.concat([others, changed.dropna(subset=["size_bytes", "allocated_at"])], ignore_index=True)
