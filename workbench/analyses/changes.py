"""A replayed step and one cause -> delays and work of its operations without the cause.

Each change takes what earlier changes left, and compares with peers as recorded (other steps: as they now are).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyses.gradients import gradients_ready
from workbench.analyses.kernels import common_ratio
from workbench.analyses.pipeline_schedule import passes_by_stage, pipeline_step_us
from workbench.analyses.statistics import FloatArray
from workbench.analyses.step_model import Durations, StepModel
from workbench.errors import UnknownContentError, UnknownParameterError
from workbench.tables import LINKS

SMALL_US = 10.0  # a launch takes the host about 25 us: kernels below leave the device idle, however fast they are
Mask = NDArray[np.bool_]


def as_rank_peers(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """Kernels and launch gaps of `rank_id` (or of `ranks`) as those of other ranks; of `op_type` only, if given.

    Kernels that no other rank runs (the loss, on the last stage) change by the factor of those that have peers. Of an
    `op_type` that part of the excess stays which all other types of the rank share: that is the device.
    """
    table = model.recorded.operations
    ranks = arguments.get("ranks", [arguments.get("rank_id")])
    all_mine = _kernels_of(table, ranks)
    peer = _peers(table, ~_same_ranks(table, ranks), "work_us", all_mine)
    factor = _device_factor(table, peer, all_mine)
    if "op_type" in arguments:
        mine = all_mine & (table["op_type"] == arguments["op_type"]).fillna(False).to_numpy(dtype=bool)
        wanted = _replaced(table["work_us"].to_numpy(), mine, peer * np.maximum(factor, 1.0))
        scale = wanted / np.where(table["work_us"] > 0, table["work_us"], 1.0)
        return replace(durations, work_us=np.where(mine, durations.work_us * scale, durations.work_us))
    work = np.where(all_mine, durations.work_us / factor, durations.work_us)
    return _with_gaps_of_peers(model, replace(durations, work_us=_replaced(work, all_mine, peer)), ranks)


def as_device_peers(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """The device of `rank_id` (or of `ranks`) as fast as others: the factor is gone that its operators share.

    What single operators are slower beyond it stays.
    """
    table = model.recorded.operations
    ranks = arguments.get("ranks", [arguments.get("rank_id")])
    mine = _kernels_of(table, ranks)
    factor = _device_factor(table, _peers(table, ~_same_ranks(table, ranks), "work_us", mine), mine)
    work = np.where(mine, durations.work_us / np.maximum(factor, 1.0), durations.work_us)
    return _with_gaps_of_peers(model, replace(durations, work_us=work), ranks)


def all_as_peers(model: StepModel, durations: Durations) -> Durations:
    """No rank later than another: kernels and delays as on the median rank of the program in the step."""
    table = model.recorded.operations
    compute, changed = (table["role"] == "compute").to_numpy(), {}
    for column, now in (("work_us", durations.work_us), ("delay_us", durations.delay_us)):
        keys = [table["program"], table["step"], table["lane"], table["ordinal"]]
        median = pd.Series(now, table.index).groupby(keys).transform("median").to_numpy()
        changed[column] = np.where(compute | (column == "delay_us"), median, now)
    return replace(durations, work_us=changed["work_us"], delay_us=changed["delay_us"])


def as_other_links(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """Communication over the link `src_rank` to `dst_rank` as if it were as fast as the median of its peers."""
    table, src, dst = model.recorded.operations, int(arguments["src_rank"]), int(arguments["dst_rank"])
    excess = _link_excess(model, src, dst)
    label = table["group_id"].str.split(" ").str[0]
    key = pd.MultiIndex.from_arrays([table["step"], label])
    share = pd.Series(excess.reindex(key).to_numpy(), index=table.index).fillna(0.0).to_numpy()
    waits = (table["role"] != "compute").to_numpy() & (table["size_bytes"] > 0).fillna(False).to_numpy(dtype=bool)
    return replace(durations, work_us=np.where(waits, durations.work_us * (1 - share), durations.work_us))


def as_other_steps(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """Everything in `steps` as in the other steps: the median of the same operation on the same rank."""
    table = model.recorded.operations
    mine = table["step"].isin([int(s) for s in arguments["steps"]]).to_numpy()
    key = ["rank_id", "lane", "ordinal"]
    changed: dict[str, Any] = {}
    for column, now in (("work_us", durations.work_us), ("delay_us", durations.delay_us)):
        median = table.assign(peer=now)[~mine].groupby(key)["peer"].median()
        peer = table[key].join(median, on=key)["peer"].to_numpy()
        changed[column] = np.where(mine & np.isfinite(peer) & (peer < now), peer, now)
    return replace(durations, **changed)


def without_data_wait(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """No wait at the begin of steps; of `rank_id`, if given, only as long as on the other ranks.

    In `steps`, which something else holds up at their begin, only what the rank waits in the others.
    """
    table = model.recorded.operations
    heads = _heads(table)
    wait = table["head_us"].fillna(table["delay_us"])
    aside = heads & table["step"].isin(arguments.get("steps", ())).to_numpy()
    usual = table["rank_id"].map(wait[heads & ~aside].groupby(table["rank_id"]).median()).fillna(0.0)
    wait = wait.where(~aside, np.minimum(wait, usual))
    if "rank_id" in arguments:
        mine = heads & (table["rank_id"] == int(arguments["rank_id"])).to_numpy()
        others = wait[heads & ~mine].groupby(table["step"]).median()
        heads, wait = mine, np.maximum(wait - table["step"].map(others).fillna(0.0), 0.0)
    left = np.maximum(durations.delay_us - wait.to_numpy(dtype=np.float64), 0.0)
    return replace(durations, delay_us=np.where(heads, left, durations.delay_us))


def with_overlap(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """Gradient collectives start as soon as their gradients are there."""
    ready = gradients_ready(model.recorded.operations).index
    delay = durations.delay_us.copy()
    delay[ready] = 0.0
    return replace(durations, delay_us=delay, overlapped=True)


def with_fusion(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """One gradient collective per layer: the fixed time is paid once, and data moves once the layer is complete."""
    table, work = model.recorded.operations, durations.work_us.copy()
    ready = gradients_ready(table)
    keys = [table["rank_id"].reindex(ready.index), table["step"].reindex(ready.index), ready["bucket"]]
    fixed = table["latency_us"].reindex(ready.index).fillna(0.0).to_numpy()
    moving = np.maximum(work[ready.index] - fixed, 0.0)
    is_last = ~ready.assign(rank_id=keys[0], step=keys[1]).duplicated(["rank_id", "step", "bucket"], keep="last")
    total = pd.Series(moving, ready.index).groupby(keys).transform("sum")
    once = pd.Series(fixed, ready.index).groupby(keys).transform("median")
    work[ready.index] = np.where(is_last, total + once, 0.0)
    return replace(durations, work_us=work)


def without_small_ops(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """No kernels shorter than `SMALL_US` (those of `op_type` only, if given), nor the launch gaps at and after them."""
    table = model.recorded.operations
    small = (table["role"] == "compute").to_numpy() & (table["duration_us"] < SMALL_US).to_numpy()
    if "op_type" in arguments:
        small &= (table["op_type"] == arguments["op_type"]).fillna(False).to_numpy(dtype=bool)
    after = pd.Series(small, table.index).groupby([table["rank_id"], table["step"], table["lane"]]).shift()
    gaps = (small | after.fillna(False).to_numpy(dtype=bool)) & ~_heads(table)
    return replace(
        durations,
        work_us=np.where(small, 0.0, durations.work_us),
        delay_us=np.where(gaps, 0.0, durations.delay_us),
    )


def with_micro_batches(model: StepModel, durations: Durations, arguments: Mapping[str, Any]) -> Durations:
    """The same batch cut into `micro_batches`: passes and transfers shrink, and so does the time that stages wait.

    Both counts are scheduled (1F1B) and only their difference is applied to the replay.
    """
    passes = passes_by_stage(model.recorded.operations, durations.work_us)
    if passes is None:
        raise UnknownContentError(
            "The profile shows no pipeline: no receives, or no kernels whose names say that they are of backward.",
            fix="ask for micro_batches of a pipeline-parallel job that was profiled in graph mode",
        )
    now = int(passes["micro_batches"].iloc[0])
    lengths = [pipeline_step_us(passes, count) for count in (now, int(arguments["micro_batches"]))]
    return replace(durations, shift_us=durations.shift_us + lengths[1] - lengths[0])


CHANGES: dict[str, Callable[[StepModel, Durations, Mapping[str, Any]], Durations]] = {
    "rank": as_rank_peers,
    "stage": as_rank_peers,
    "device": as_device_peers,
    "op_type": as_rank_peers,
    "link": as_other_links,
    "steps": as_other_steps,
    "data_wait": without_data_wait,
    "overlap": with_overlap,
    "fusion": with_fusion,
    "small_ops": without_small_ops,
    "micro_batches": with_micro_batches,
}


def _same_ranks(table: pd.DataFrame, ranks: Any) -> Mask:
    return table["rank_id"].isin([int(r) for r in ranks]).to_numpy()


def _heads(table: pd.DataFrame) -> Mask:
    """First operation of each rank and step: its delay holds what the host did before the step's first launch."""
    return ~table.duplicated(["rank_id", "step"]).to_numpy()


def _peers(table: pd.DataFrame, peers: Mask, column: str, mine: Mask) -> FloatArray:
    """Median of `column` over peers: the same operation and step of the program, else the same place in a layer."""
    values = table[peers & (table["role"] == "compute").to_numpy()]
    found = np.full(len(table), np.nan)
    for key in (["program", "step", "ordinal"], ["site", "op_type"]):
        median = values.groupby(key)[column].median().rename("peer")
        peer = table[key].join(median, on=key)["peer"].to_numpy()
        found = np.where(np.isnan(found), peer, found)
    return np.where(mine, found, np.nan)


def _kernels_of(table: pd.DataFrame, ranks: Any) -> Mask:
    return _same_ranks(table, ranks) & (table["role"] == "compute").to_numpy()


def _with_gaps_of_peers(model: StepModel, durations: Durations, ranks: Any) -> Durations:
    table = model.recorded.operations
    gaps = _kernels_of(table, ranks) & ~_heads(table)
    peer = _peers(table, ~_same_ranks(table, ranks), "delay_us", gaps)
    return replace(durations, delay_us=_replaced(durations.delay_us, gaps, peer))


def _device_factor(table: pd.DataFrame, peer: FloatArray, mine: Mask) -> FloatArray:
    """Own time over the peers' that a rank's operator types share (`common_ratio`); 1 where none has peers."""
    both = mine & np.isfinite(peer) & (peer > 0)
    keys = [table["rank_id"][both], table["op_type"].fillna("")[both]]
    sums = pd.DataFrame({"own": table["work_us"].to_numpy(), "peer": peer}, table.index)[both].groupby(keys).sum()
    types = pd.DataFrame({"ratio": sums["own"] / sums["peer"], "total_us_per_step": sums["own"]})
    types = types[types["total_us_per_step"] > 0]
    factor = {rank: common_ratio(of_rank) for rank, of_rank in types.groupby(level=0)}
    found: FloatArray = table["rank_id"].map(factor).fillna(1.0).to_numpy(dtype=np.float64)
    return found


def _replaced(now: FloatArray, mine: Mask, peer: FloatArray) -> FloatArray:
    return np.where(mine & np.isfinite(peer), peer, now)


def _link_excess(model: StepModel, src: int, dst: int) -> pd.Series:
    """Share of the communication time of each (step, group) that the link takes beyond its peers.

    Links of one transport are used at the same time, transports one after the other. Peers: the slowest other link of
    the group and transport; where a group has no other, the median speed of that transport in the step.
    """
    if model.links is None:
        raise UnknownContentError("Without table `links` no link can be compared with others.", fix=LINKS.fix)
    table = model.recorded.operations
    groups = table[table["role"] != "compute"].assign(group_id=table["group_id"].str.split(" ").str[0])
    links = _global_links(model.links, groups)
    key = ["step", "group_id", "transport"]
    is_mine = (links["src_rank"] == src) & (links["dst_rank"] == dst)
    others = links[~is_mine].groupby(key)["transit_us"].max().rename("others_us")
    speed = links["size_bytes"] / links["transit_us"]
    usual = speed[~is_mine].groupby([links["step"], links["transport"]]).median().rename("usual")
    mine = links[is_mine].groupby(key).agg(transit_us=("transit_us", "max"), size_bytes=("size_bytes", "max"))
    mine = mine.join(others).join(usual, on=["step", "transport"])
    mine["others_us"] = mine["others_us"].fillna(mine["size_bytes"] / mine["usual"])
    if not mine["others_us"].notna().any():
        raise UnknownParameterError(
            f"Table `links` has no link {src}-{dst} that has peers of its transport.",
            fix="give src_rank and dst_rank of a link between cards: ranks of the job, in the direction of the data",
        )
    excess = (mine["transit_us"] - mine["others_us"]).clip(lower=0.0).groupby(["step", "group_id"]).sum()
    per_rank = groups.groupby(["step", "group_id", "rank_id"])["work_us"].sum()
    return (excess / per_rank.groupby(["step", "group_id"]).max()).dropna().clip(upper=1.0)


def _global_links(links: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """Totals per link between cards, with ranks of the job: numbers inside a group are looked up in its members."""
    kept = links[(links["statistic"] == "total") & (links["transport"] != "LOCAL") & (links["transit_us"] > 0)]
    members = {group: np.sort(part["rank_id"].unique()) for group, part in groups.groupby("group_id")}
    kept = kept[kept["is_global"].fillna(False) | kept["group_id"].isin(members)].copy()
    for column in ("src_rank", "dst_rank"):
        numbers = zip(kept[column], kept["group_id"], kept["is_global"].fillna(False), strict=True)
        kept[column] = [
            int(n) if is_global else int(members[group][n]) if n < len(members[group]) else -1
            for n, group, is_global in numbers
        ]
    return kept.drop_duplicates(["step", "group_id", "src_rank", "dst_rank", "op_type"])
