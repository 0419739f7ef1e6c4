"""Blocks and their lives -> who holds the peak, which pin which holes, which live longer than their peers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.allocator import GROW_BYTES
from workbench.analyses.blocks import BEFORE, alive_at, allocated_curve, births_and_deaths, blocks_of, main_pools
from workbench.analyses.statistics import MAD_TO_SIGMA
from workbench.tables import TENSOR_LIFETIMES

PEERS_LEAST = 5  # blocks of one operator and size that say what is usual
LATE_SIGMAS = 8.0  # as for stalled steps: only what cannot be noise
LATE_SHARE = 0.5  # ... and at least this share of the usual life, for lives without any spread
BETWEEN = "allocated without a row"
PARTS = ["rank_id", "window", "peak_at", "peak_bytes", "part", "listed", "blocks", "size_bytes", "share"]


def operator_stem(names: pd.Series) -> pd.Series:
    """Operator names with every number as `#`, so that layers, steps and copies of one operator are one."""
    return names.astype("string").str.replace(r"\d+", "#", regex=True)


def peak_parts(tensor_lifetimes: pd.DataFrame) -> pd.DataFrame:
    """Who holds the memory at the peak of each rank: its parts sum to the peak.

    The peak is the largest sum of all blocks alive, those included that have no row of their own and that only the
    record's running total tells of: `BEFORE` (held since before the capture) and `BETWEEN` (came later).

    Args:
        tensor_lifetimes: table `tensor_lifetimes`; of each rank its main pool counts.

    Returns:
        One row per (rank_id, window, part): peak_at (in the clock of the rows), peak_bytes, part (an `operator_stem`,
        `BEFORE` or `BETWEEN`), listed, blocks, size_bytes, share in [0, 1]. Largest first within a rank. The parts of a
        rank sum to its peak_bytes, their shares to 1. Empty in, empty out.

    Raises:
        MissingColumnsError: a column is missing.
    """
    frames = [
        _parts(rows).assign(rank_id=rank_id, window=window) for rank_id, window, rows in main_pools(tensor_lifetimes)
    ]
    return pd.concat(frames, ignore_index=True)[PARTS] if frames else pd.DataFrame(columns=PARTS)


def holes(blocks: pd.DataFrame, at: int, *, largest_bytes: int = GROW_BYTES) -> pd.DataFrame:
    """Free pieces between blocks at a time, and the neighbour that pins each: the one that is freed last.

    Args:
        blocks: with name, size_bytes, allocated_at, freed_at and address (bytes): of a `replay`, or as
            `recorded_places` gives.
        at: time.
        largest_bytes: a gap beyond this lies between growth blocks and is none.

    Returns:
        One row per hole, largest first: start, size_bytes, pinned_by, pin_bytes, pinned_until (missing = to the end).
    """
    live = alive_at(blocks, at)
    address = live["address"].to_numpy(np.int64)
    order = np.argsort(address, kind="stable")
    live, start = live.iloc[order], address[order]
    end = start + live["size_bytes"].to_numpy(np.int64)
    gap = start[1:] - end[:-1]
    at_gap = np.flatnonzero((gap > 0) & (gap <= largest_bytes))
    death = births_and_deaths(live)[1]
    pin = np.where(death[at_gap + 1] > death[at_gap], at_gap + 1, at_gap) if len(at_gap) else at_gap
    pins = live.iloc[pin]
    found = pd.DataFrame(
        {
            "start": end[at_gap],
            "size_bytes": gap[at_gap],
            "pinned_by": pins["name"].array,
            "pin_bytes": pins["size_bytes"].to_numpy(float),
            "pinned_until": pins["freed_at"].array,
        }
    )
    return found.sort_values(["size_bytes", "start"], ascending=[False, True], ignore_index=True)


def recorded_places(lifetimes: pd.DataFrame) -> pd.DataFrame:
    """The blocks whose addresses are recorded, counted in bytes from the lowest one.

    Args:
        lifetimes: rows of one pool, as `main_pools` gives.

    Returns:
        name, size_bytes, allocated_at, freed_at, address. Empty where no address is recorded.
    """
    known = lifetimes[lifetimes["address"].notna()]
    numbers = [int(str(a), 0) for a in known["address"].tolist()]
    lowest = min(numbers, default=0)
    columns = ["name", "size_bytes", "allocated_at", "freed_at"]
    return known[columns].assign(address=np.array([n - lowest for n in numbers], dtype=np.int64))


def long_lives(tensor_lifetimes: pd.DataFrame) -> pd.DataFrame:
    """Blocks that live far longer than others of the same operator and size: allocated too early or freed too late.

    A life is long when it exceeds the median of at least `PEERS_LEAST` peers (same rank, `operator_stem`, size) by
    `LATE_SIGMAS` times 1.4826 MAD and by `LATE_SHARE` of the median.

    Returns:
        One row per such block: rank_id, window, name, size_bytes, allocated_at, freed_at, life, usual_life, excess (in
        units of the rows' clock), peers. Largest size x excess first.
    """
    rows = TENSOR_LIFETIMES.check(tensor_lifetimes).dropna(subset=["allocated_at", "freed_at", "size_bytes"])
    life = (rows["freed_at"] - rows["allocated_at"]).astype("float64")
    known = rows.assign(life=life, stem=operator_stem(rows["name"]))
    peers = known.groupby(["rank_id", "window", "clock", "stem", "size_bytes"], dropna=False)["life"]
    usual = peers.transform("median")
    spread = (life - usual).abs().groupby([known[c] for c in ("rank_id", "stem", "size_bytes")]).transform("median")
    known = known.assign(usual_life=usual, excess=life - usual, peers=peers.transform("size"))
    late = (known["excess"] > LATE_SIGMAS * MAD_TO_SIGMA * spread) & (known["excess"] > LATE_SHARE * usual)
    found = known[late & (known["peers"] >= PEERS_LEAST)]
    columns = ["rank_id", "window", "name", "size_bytes", "allocated_at", "freed_at", "life", "usual_life", "excess",
               "peers"]  # fmt: skip
    weight = found["size_bytes"] * found["excess"]
    return found.assign(weight=weight).sort_values("weight", ascending=False, ignore_index=True)[columns]


def unfreed_growth(tensor_lifetimes: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Operators that leave a block behind again and again: never freed, and allocated in several steps.

    Args:
        tensor_lifetimes: table `tensor_lifetimes`, on the clock of `steps` (rows of clock `ns`).
        steps: as `step_starts` returns.

    Returns:
        One row per (rank_id, part): blocks, size_bytes, steps (with such a block), steps_seen, bytes_per_step. Blocks
        of the last step are left out, they may still be freed. Largest first. Empty in, empty out.
    """
    rows = TENSOR_LIFETIMES.check(tensor_lifetimes)
    kept = rows[rows["freed_at"].isna() & rows["allocated_at"].notna() & (rows["clock"] == "ns")]
    frames = [
        _unfreed(kept[(kept["rank_id"] == rank_id)], one.sort_values("start_ns")).assign(rank_id=rank_id)
        for rank_id, one in steps.groupby("rank_id")
    ]
    columns = ["rank_id", "part", "blocks", "size_bytes", "steps", "steps_seen", "bytes_per_step"]
    if not frames:
        return pd.DataFrame(columns=columns)
    found = pd.concat(frames, ignore_index=True)
    return found.sort_values(["size_bytes", "rank_id"], ascending=[False, True], ignore_index=True)[columns]


def _unfreed(kept: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    borders = steps["start_ns"].to_numpy(np.int64)
    place = np.searchsorted(borders, kept["allocated_at"].to_numpy(np.int64), side="right") - 1
    inside = (place >= 0) & (place < len(borders) - 1)
    blocks = kept.assign(part=operator_stem(kept["name"]), place=place)[inside]
    groups = blocks.groupby("part")
    found = pd.DataFrame(
        {"blocks": groups.size(), "size_bytes": groups["size_bytes"].sum(), "steps": groups["place"].nunique()}
    )
    seen = max(len(borders) - 1, 0)
    return found.assign(steps_seen=seen, bytes_per_step=found["size_bytes"] / max(seen, 1)).reset_index()


def _parts(rows: pd.DataFrame) -> pd.DataFrame:
    blocks = blocks_of(rows)
    curve = allocated_curve(blocks)
    peak = curve.loc[curve["allocated_bytes"].idxmax()]
    alive = alive_at(blocks, int(peak["at"]))
    unlisted = alive["name"].where(alive["name"] == BEFORE, BETWEEN)
    groups = alive.assign(part=operator_stem(alive["name"]).where(alive["listed"], unlisted)).groupby(
        ["part", "listed"]
    )
    parts = pd.DataFrame({"blocks": groups.size(), "size_bytes": groups["size_bytes"].sum()}).reset_index()
    total = float(parts["size_bytes"].sum())
    parts = parts.sort_values(["size_bytes", "part"], ascending=[False, True], ignore_index=True)
    return parts.assign(peak_at=int(peak["at"]), peak_bytes=total, share=parts["size_bytes"] / total)
