"""Collectives of several ranks -> who arrived last, who waited, how long the transfer itself took; pipeline stages."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.tables import COLLECTIVES

RESOLVED_SHARE = 0.1  # of an operation: clocks that leave more than this open do not tell who was late for it
SKEW_ROUNDS = 10  # offsets of ranks that meet only through a third rank need as many rounds as there are links between
_OPERATION = ["window", "step", "group_id", "name"]
_WAIT_COLUMNS = ["rank_id", "window", "step", "group_id", "name", "op_type", "is_p2p", "start_ns", "elapsed_us",
                 "size_bytes", "ranks", "last_rank", "late_us", "wait_us", "transfer_us", "group_ranks"]  # fmt: skip


def collective_waits(collectives: pd.DataFrame) -> pd.DataFrame:
    """Wait and transfer of each operation, from the times at which its ranks started it.

    A collective moves data only when its last rank is there: each rank's wait is the time from its own start to the
    last rank's, at most its whole length; the rest is the transfer. Start times are compared after taking out each
    rank's clock offset (`clock_offsets`). A batch of sends and receives is one operation on both ends and meets in the
    same way; its file often says that it waited 0. Single sends and receives, operations of which one rank
    alone is known, operations without a group (nothing says that two of one name belong together), and operations that
    are too short for what the clocks leave open (`RESOLVED_SHARE`) keep the file's wait; who was last is then unknown.

    Args:
        collectives: table `collectives`.

    Returns:
        One row per (rank_id, window, step, group_id, name): op_type, is_p2p, start_ns (as recorded), elapsed_us,
        size_bytes, ranks (how many ranks are known of this operation), group_ranks (of its group), last_rank (<NA>
        where unknown), late_us (own start after the median start of the operation's ranks, may be negative), wait_us,
        transfer_us = elapsed_us - wait_us. Empty in, empty out.

    Raises:
        MissingColumnsError: `collectives` lacks a column.
    """
    rows = COLLECTIVES.check(collectives).dropna(subset=["start_ns", "elapsed_us"]).reset_index(drop=True)
    clocks = clock_offsets(collectives).set_index("rank_id")
    offsets = clocks["offset_us"]
    rows["is_p2p"] = rows["is_p2p"].fillna(False).astype(bool)
    base = int(rows["start_ns"].min()) if len(rows) else 0
    aligned = (rows["start_ns"] - base).astype("float64") / 1e3 - rows["rank_id"].map(offsets).fillna(0.0)
    key = rows.groupby(_OPERATION, dropna=False, sort=False).ngroup()
    grouped = aligned.groupby(key)
    rows["ranks"] = grouped.transform("size")
    rows["group_ranks"] = rows.groupby("group_id", dropna=False)["rank_id"].transform("nunique")
    last = grouped.transform("max")
    rows["ranks"] = rows["ranks"].where(rows["group_id"].notna(), 1)
    is_batch = rows["op_type"].eq("batchsendrecv").fillna(False).astype(bool)
    open_us = rows["rank_id"].map(clocks["spread_us"]).fillna(0.0).groupby(key).transform("max")
    is_clear = open_us <= RESOLVED_SHARE * rows["elapsed_us"].groupby(key).transform("max")
    meets = (rows["ranks"] > 1) & (is_batch | ~rows["is_p2p"]) & is_clear
    waited = (last - aligned).clip(lower=0.0)
    rows["wait_us"] = waited.where(meets, rows["wait_us"].fillna(0.0)).clip(upper=rows["elapsed_us"])
    rows["transfer_us"] = rows["elapsed_us"] - rows["wait_us"]
    rows["late_us"] = (aligned - grouped.transform("median")).where(meets, 0.0)
    at_last = rows["rank_id"].where(meets & (aligned == last)).groupby(key).transform("min")
    return rows.assign(last_rank=at_last.astype("Int64"))[_WAIT_COLUMNS]


def clock_offsets(collectives: pd.DataFrame) -> pd.DataFrame:
    """Offset of each rank's clock, estimated from collectives, which all ranks leave at about the same time.

    Returns:
        One row per rank_id: offset_us (its clock minus the ranks' median clock), spread_us (1.4826 MAD of the ends
        after taking the offset out: what comparisons of start times cannot resolve), operations (how many were used;
        with 0 the offset is 0 and the spread NaN). Empty in, empty out.

    Source: as in tracing tools that align hosts at barriers; medians, so that single odd operations do not matter.
    """
    rows = COLLECTIVES.check(collectives).dropna(subset=["start_ns", "elapsed_us"])
    ranks = sorted(rows["rank_id"].unique())
    rows = rows[~rows["is_p2p"].fillna(False).astype(bool) & rows["group_id"].notna()].reset_index(drop=True)
    base = int(rows["start_ns"].min()) if len(rows) else 0
    end = (rows["start_ns"] - base).astype("float64") / 1e3 + rows["elapsed_us"]
    key = rows.groupby(_OPERATION, dropna=False, sort=False).ngroup()
    known = key.groupby(key).transform("size") > 1
    end, key, rank = end[known], key[known], rows.loc[known, "rank_id"]
    offset = pd.Series(0.0, index=ranks)
    for _ in range(SKEW_ROUNDS):
        left = end - rank.map(offset)
        step = (left - left.groupby(key).transform("median")).groupby(rank).median()
        if not (step.abs() > 0).any():
            break
        offset = offset.add(step, fill_value=0.0)
    left = end - rank.map(offset)
    spread = (left - left.groupby(key).transform("median")).groupby(rank).agg(mad) * MAD_TO_SIGMA
    used = rank.value_counts().reindex(ranks).fillna(0).astype(int)
    centred = offset - (offset.median() if len(offset) else 0.0)
    return pd.DataFrame(
        {"rank_id": ranks, "offset_us": centred.to_numpy(), "spread_us": spread.reindex(ranks).to_numpy(dtype=float),
         "operations": used.to_numpy()}
    )  # fmt: skip


def unclear_clocks(collectives: pd.DataFrame) -> pd.DataFrame:
    """Ranks whose clock cannot be compared with the others', because its offset changes too much.

    Returns:
        One row per such rank_id: offset_us, spread_us, limit_us (`RESOLVED_SHARE` of the operation in which half of the
        time of collectives is reached, from the short to the long ones). Empty where all clocks can be compared.
    """
    rows = COLLECTIVES.check(collectives).dropna(subset=["elapsed_us"])
    elapsed = np.sort(rows.loc[~rows["is_p2p"].fillna(False).astype(bool), "elapsed_us"].to_numpy(dtype=float))
    reached = np.cumsum(elapsed)
    typical = elapsed[np.searchsorted(reached, reached[-1] / 2)] if len(elapsed) else np.nan
    clocks = clock_offsets(collectives).assign(limit_us=RESOLVED_SHARE * typical)
    unclear = clocks[clocks["spread_us"] > clocks["limit_us"]]
    return unclear[["rank_id", "offset_us", "spread_us", "limit_us"]].reset_index(drop=True)


def pipeline_stages(collectives: pd.DataFrame) -> pd.DataFrame:
    """Pipeline stage of each rank, from who sends to whom and who shares a collective.

    Ranks joined by sends and receives are in different stages. Ranks that share a collective are in one stage, unless
    the group also holds two ranks that send to each other (the world's group). Stages are numbered by their lowest
    rank, the order in which MindSpore and Megatron place them.

    Returns:
        One row per rank_id: stage. Without sends and receives between known ranks all are stage 0. Empty in, empty out.
    """
    rows = COLLECTIVES.check(collectives)
    p2p = rows["is_p2p"].fillna(False).astype(bool)
    members = {g: sorted(r.unique()) for g, r in rows.groupby("group_id")["rank_id"]}
    pairs = {tuple(m) for g, m in members.items() if g in set(rows.loc[p2p, "group_id"]) and len(m) == 2}
    stage_of = {int(rank): int(rank) for rank in rows["rank_id"].unique()}
    if not pairs:
        return pd.DataFrame({"rank_id": sorted(stage_of), "stage": 0})
    for group in sorted(set(rows.loc[~p2p, "group_id"].dropna())):
        inside = set(members[group])
        if any(a in inside and b in inside for a, b in pairs):
            continue
        low = min(stage_of[r] for r in inside)
        merged = {stage_of[r] for r in inside}
        stage_of = {r: low if s in merged else s for r, s in stage_of.items()}
    numbers = {first: n for n, first in enumerate(sorted(set(stage_of.values())))}
    ordered = sorted(stage_of)
    return pd.DataFrame({"rank_id": ordered, "stage": [numbers[stage_of[r]] for r in ordered]})


def known_stages(steps: pd.DataFrame, collectives: pd.DataFrame | None = None) -> pd.DataFrame:
    """Pipeline stage of every rank of `steps`: as `pipeline_stages` tells, 0 for ranks without collectives.

    Args:
        steps: any table with a column rank_id, such as `device_steps`.
        collectives: table `collectives`, or None.

    Returns:
        One row per rank_id of `steps`: stage.
    """
    ranks = pd.DataFrame({"rank_id": sorted(steps["rank_id"].unique())})
    told = {} if collectives is None else pipeline_stages(collectives).set_index("rank_id")["stage"].to_dict()
    return ranks.assign(stage=[told.get(rank, 0) for rank in ranks["rank_id"]])


def group_members(collectives: pd.DataFrame) -> dict[str, list[int]]:
    """Ranks of each communication group, ascending: the n-th is number n of the group where all ranks are known."""
    rows = COLLECTIVES.check(collectives).dropna(subset=["group_id"])
    return {
        str(group): sorted(int(r) for r in np.unique(ranks)) for group, ranks in rows.groupby("group_id")["rank_id"]
    }


def late_rank_losses(waits: pd.DataFrame) -> pd.DataFrame:
    """How long the others wait for each rank: the rank that starts an operation last is charged with their median wait.

    Args:
        waits: as `collective_waits` returns.

    Returns:
        One row per rank_id that takes part in collectives of several known ranks: operations, last (in how many of
        them it started last), lost_us_per_step (median wait of the operation's other ranks, summed over these; waits
        hidden by computing included), wait_us_per_step and transfer_us_per_step (its own). Most costly first. Empty
        in, empty out.
    """
    rows = waits[(waits["ranks"] > 1) & ~waits["is_p2p"]].assign(last_rank=lambda w: w["last_rank"].astype("Int64"))
    steps = max(int(rows["step"].nunique()), 1)
    is_last = rows["rank_id"].eq(rows["last_rank"]).fillna(False).astype(bool)
    lost = rows[~is_last].groupby([*_OPERATION, "last_rank"], dropna=False)["wait_us"].median()
    charged = lost.groupby("last_rank").sum()
    grouped = rows.groupby("rank_id")
    losses = grouped.agg(operations=("name", "size"), wait_us=("wait_us", "sum"), transfer_us=("transfer_us", "sum"))
    losses = losses.assign(
        last=is_last.groupby(rows["rank_id"]).sum(), lost_us=charged.reindex(losses.index).fillna(0.0)
    )
    columns = {c: f"{c}_per_step" for c in ("lost_us", "wait_us", "transfer_us")}
    losses = losses.assign(**{c: losses[c].astype(float) / steps for c in columns}).rename(columns=columns)
    return losses.sort_values("lost_us_per_step", ascending=False).reset_index()
