"""Communication tables -> links compared with their peers, and how much of the time is fixed cost per operation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.collective_waits import collective_waits, group_members, pipeline_stages
from workbench.analyses.intervals import covered_before, merge
from workbench.analyses.kernels import compute_kernels
from workbench.tables import COLLECTIVES, LINKS

LARGE_BYTES = 1 << 20  # below a megabyte an operation's time is its latency and says nothing about the link
SMALL_BYTES = 64 << 10  # so small that the transfer itself takes no time: what is left is the latency


def link_bandwidths(links: pd.DataFrame, collectives: pd.DataFrame | None = None) -> pd.DataFrame:
    """Bandwidth of each link in each step, against the links of the same transport and kind of operation.

    Args:
        links: table `links`; totals per operation type, or single operations where there are no totals.
        collectives: table `collectives`: turns numbers in a group into ranks of the job, where all of its ranks are
        known.

    Returns:
        One row per (window, step, src_rank, dst_rank, transport, op_type): is_global (the numbers are ranks of the
        job), group_id (<NA> where global), size_bytes, transit_us, bandwidth_bytes_per_s (size over time),
        peer_bandwidth_bytes_per_s (median over links of this step, transport and operation type), ratio (peers over
        own: 2 is half as fast), excess_us (time above the peers'). Transfers inside a card and links that moved less
        than 1 MiB per step are left out.
    """
    rows = LINKS.check(links)
    rows = rows[rows["statistic"].isin(["total", "op"]) & (rows["transport"].fillna("") != "LOCAL")]
    rows = rows[(rows["src_rank"] != rows["dst_rank"]) & (rows["transit_us"] > 0)]
    rows = rows.assign(op_type=rows["op_type"].fillna("unknown"), transport=rows["transport"].fillna("unknown"))
    rows = _global(rows, {} if collectives is None else group_members(collectives))
    key = ["window", "step", "src_rank", "dst_rank", "is_global", "group_id", "transport", "op_type"]
    # Both ends of a link may write the same transfer: the mean of their rows is one of them, the sum would be two.
    by_rank = rows.groupby([*key, "rank_id"], dropna=False)[["size_bytes", "transit_us"]].sum().reset_index()
    totals = by_rank.groupby(key, dropna=False)[["size_bytes", "transit_us"]].mean().reset_index()
    totals = totals[totals["size_bytes"] >= LARGE_BYTES]
    speed = totals["size_bytes"] / (totals["transit_us"] / 1e6)
    peers = speed.groupby([totals[c] for c in ("window", "step", "transport", "op_type")], dropna=False).transform(
        "median"
    )
    ratio = peers / speed
    return totals.assign(
        bandwidth_bytes_per_s=speed,
        peer_bandwidth_bytes_per_s=peers,
        ratio=ratio,
        excess_us=totals["transit_us"] * (1 - 1 / ratio),
    ).reset_index(drop=True)


def link_summary(bandwidths: pd.DataFrame) -> pd.DataFrame:
    """Each link over all steps: the median step decides, so that single stalls are not taken for a slow link.

    Args:
        bandwidths: as `link_bandwidths` returns.

    Returns:
        One row per (src_rank, dst_rank, is_global, group_id, transport): link ("src-dst"), steps, ratio and excess_us
        (medians over steps; the excess summed over operation types), bandwidth_bytes_per_s, peer_bandwidth_bytes_per_s,
        size_bytes (medians). Slowest first.
    """
    key = ["src_rank", "dst_rank", "is_global", "group_id", "transport"]
    weighted = bandwidths.assign(peer_us=bandwidths["transit_us"] / bandwidths["ratio"])
    per_step = (
        weighted.groupby([*key, "window", "step"], dropna=False)[["size_bytes", "transit_us", "peer_us", "excess_us"]]
        .sum()
        .reset_index()
    )
    per_step["ratio"] = per_step["transit_us"] / per_step["peer_us"]
    per_step["bandwidth_bytes_per_s"] = per_step["size_bytes"] / per_step["transit_us"] * 1e6
    per_step["peer_bandwidth_bytes_per_s"] = per_step["size_bytes"] / per_step["peer_us"] * 1e6
    grouped = per_step.groupby(key, dropna=False)
    columns = ["ratio", "excess_us", "bandwidth_bytes_per_s", "peer_bandwidth_bytes_per_s", "size_bytes"]
    summary = grouped[columns].median().assign(steps=grouped.size()).reset_index()
    summary["link"] = summary["src_rank"].astype(str) + "-" + summary["dst_rank"].astype(str)
    return summary.sort_values("ratio", ascending=False, ignore_index=True)


def latency_share(collectives: pd.DataFrame) -> pd.DataFrame:
    """How much of the transfer time of collectives is a fixed cost per operation, under time = alpha + bytes * beta.

    alpha is the median time of operations below 64 KiB; those of other types where this type has none. The idle time
    that files state is no latency: it holds launches and whole stalls. Waiting for late ranks is taken out first
    (`collective_waits`). The transfer time is that of the rank which waits least in each operation.

    Args:
        collectives: table `collectives`.

    Returns:
        One row per op_type (sends and receives left out): per_step (operations a step), bytes_per_op (median),
        alpha_us, transfer_us_per_step, latency_us_per_step (alpha times the operations), share of the two in [0, 1]
        (NaN without an alpha). Empty in, empty out.

    Source: the alpha-beta model of message passing (Hockney, Parallel Computing 20, 1994).
    """
    waits = collective_waits(collectives)
    waits = waits[~waits["is_p2p"]]
    any_small = waits.loc[waits["size_bytes"] < SMALL_BYTES, "transfer_us"]
    rows = []
    for op_type, of_type in waits.groupby("op_type"):
        steps = max(int(of_type.groupby("rank_id")["step"].nunique().max()), 1)
        ranks = of_type["rank_id"].nunique()
        small = of_type.loc[of_type["size_bytes"] < SMALL_BYTES, "transfer_us"]
        alpha = float((small if len(small) else any_small).median())
        large = of_type[of_type["size_bytes"] >= SMALL_BYTES]
        count = len(large) / steps / ranks
        transfer = float(large["transfer_us"].sum()) / steps / ranks
        latency = min(count * alpha, transfer) if np.isfinite(alpha) else float("nan")
        rows.append((op_type, count, float(large["size_bytes"].median()), alpha, transfer, latency,
                     latency / transfer if transfer > 0 else float("nan")))  # fmt: skip
    columns = [
        "op_type",
        "per_step",
        "bytes_per_op",
        "alpha_us",
        "transfer_us_per_step",
        "latency_us_per_step",
        "share",
    ]
    return pd.DataFrame(rows, columns=columns)


def collective_overlap(kernels: pd.DataFrame, collectives: pd.DataFrame) -> pd.DataFrame:
    """How much of the transfer of each step's large collectives runs while the device computes.

    Sends, receives and operations below 1 MiB are left out: the former are not gradients, the latter cost no bandwidth.

    Returns:
        One row per (rank_id, step): operations, transfer_us (their sum, waits for late ranks taken out), overlapped_us
        (of it while computing). Steps without such operations are left out. Empty in, empty out.
    """
    waits = collective_waits(collectives)
    waits = waits[~waits["is_p2p"] & (waits["size_bytes"] >= LARGE_BYTES)]
    compute = compute_kernels(kernels)[["rank_id", "start_ns", "duration_us"]].dropna(subset=["start_ns"])
    of_rank = dict(list(compute.groupby("rank_id")))
    rows = []
    for rank_id, rank in waits.groupby("rank_id"):
        own = of_rank.get(rank_id, compute.iloc[:0])
        start = own["start_ns"].to_numpy(dtype=np.int64)
        busy = merge(start, start + (own["duration_us"].to_numpy() * 1e3).round().astype(np.int64))
        begin = rank["start_ns"].to_numpy(dtype=np.int64) + (rank["wait_us"].to_numpy() * 1e3).astype(np.int64)
        end = begin + (rank["transfer_us"].to_numpy() * 1e3).astype(np.int64)
        hidden = (covered_before(busy, end) - covered_before(busy, begin)) / 1e3
        rows.append(rank[["rank_id", "step", "transfer_us"]].assign(overlapped_us=hidden))
    if not rows:
        return pd.DataFrame(columns=["rank_id", "step", "operations", "transfer_us", "overlapped_us"])
    grouped = pd.concat(rows).groupby(["rank_id", "step"])
    totals = grouped[["transfer_us", "overlapped_us"]].sum()
    return totals.assign(operations=grouped.size()).reset_index()


def micro_batches(collectives: pd.DataFrame) -> int | None:
    """Micro-batches per step, from what neighbouring pipeline stages exchange; None if unknown.

    A rank receives once per micro-batch from one neighbour. Where sends and receives go out in batches, the link from
    stage i of p runs `m + p - 1 - i` of them under 1F1B: the sends of the warm-up have no receive beside them.
    """
    rows = COLLECTIVES.check(collectives)
    key = ["rank_id", "window", "step", "group_id"]
    received = rows[rows["op_type"].isin(["receive", "recv"])]
    if len(received):
        return int(received.groupby(key, dropna=False).size().median())
    batches = rows[rows["op_type"] == "batchsendrecv"]
    stages = pipeline_stages(collectives).set_index("rank_id")["stage"]
    if batches.empty or stages.max() < 1:
        return None
    lower = batches["rank_id"].map(stages).groupby(batches["group_id"]).transform("min")
    counts = batches.assign(ahead=int(stages.max()) - lower).groupby([*key, "ahead"], dropna=False).size()
    found = int((counts - counts.index.get_level_values("ahead")).median())
    return found if found > 0 else None


def _global(rows: pd.DataFrame, members: dict[str, list[int]]) -> pd.DataFrame:
    """Numbers in a group as ranks of the job, where every number that occurs in the group has a known rank."""
    known = rows["is_global"].fillna(False).astype(bool)
    highest = rows[["src_rank", "dst_rank"]].max(axis=1).groupby(rows["group_id"]).transform("max")
    size = rows["group_id"].map({g: len(m) for g, m in members.items()}).fillna(0)
    can = ~known & (highest < size).fillna(False).astype(bool)  # a transfer without a group has no highest number
    lookup = {(g, n): rank for g, m in members.items() for n, rank in enumerate(m)}
    columns = {}
    for column in ("src_rank", "dst_rank"):
        pairs = zip(rows["group_id"], rows[column], strict=True)
        mapped = [lookup.get((g, int(n)), n) if c else n for (g, n), c in zip(pairs, can, strict=True)]
        columns[column] = pd.array(mapped, dtype="Int64")
    is_global = known | can
    return rows.assign(**columns, is_global=is_global, group_id=rows["group_id"].where(~is_global))
