"""Collectives and settings -> what each communication group is for, and what it costs: wait, transfer, exposed time."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from workbench.analyses.collective_waits import collective_waits, pipeline_stages
from workbench.analyses.intervals import covered_before, merge
from workbench.analyses.kernels import compute_kernels
from workbench.tables import SETTINGS

KINDS = ("data", "tensor", "context", "expert", "pipeline", "embedding", "world", "within a stage", "unknown")
_WORDS = (  # part of a group's name in Megatron's and MindSpore's files -> what it is for; the first that fits
    ("tp", "tensor"), ("dp", "data"), ("ep", "expert"), ("exp", "expert"), ("embd", "embedding"), ("cp", "context"),
    ("pp", "pipeline"), ("stage", "pipeline"), ("mp", "tensor"), ("default", "world"), ("world", "world"),
)  # fmt: skip
_COLUMNS = ["group_id", "kind", "ranks", "operations_per_step", "bytes_per_step", "elapsed_us", "wait_us",
            "transfer_us", "exposed_us", "share"]  # fmt: skip
_GROUP = ["group_id", "is_p2p"]
_COSTS = ["elapsed_us", "wait_us", "transfer_us", "exposed_us"]


def communication_groups(
    collectives: pd.DataFrame, *, kernels: pd.DataFrame | None = None, settings: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Cost of each communication group per step, and what kind of parallelism it serves.

    The kind is the name that the profiler's metadata give to a group of these ranks. Without it: sends and receives
    are pipeline; a group over several pipeline stages is world; of groups inside a stage those of neighbouring ranks
    are tensor and those of ranks further apart are data, where both exist, else "within a stage", as collectives alone
    do not say more.

    Args:
        collectives: table `collectives`.
        kernels: table `kernels`, or None: tells what runs while the device computes.
        settings: table `settings`, or None: holds the metadata (`parallel_group_info`).

    Returns:
        One row per group_id: kind (one of KINDS), ranks (known members, ascending tuple), operations_per_step and
        bytes_per_step of a rank; means over ranks and steps of elapsed_us, wait_us, transfer_us (their sum is
        elapsed_us) and exposed_us (not hidden by computing; over the ranks whose kernels are known, NaN without any);
        share in [0, 1] of all groups' elapsed_us. Groups that run at the same time are each counted whole. Largest
        first. Sends and receives of a group stand apart from its collectives; operations that name no group are group
        <NA>. Empty in, empty out.

    Source: rank order of Megatron-LM's parallel groups (tensor innermost), which MindSpore shares.
    """
    rows = collective_waits(collectives)
    if rows.empty:
        return pd.DataFrame(columns=_COLUMNS)
    rows = rows.assign(exposed_us=_exposed(rows, kernels))
    steps_of = rows[["rank_id", "window", "step"]].drop_duplicates().groupby("rank_id").size()
    grouped = rows.groupby(_GROUP, dropna=False)
    members = grouped["rank_id"].agg(lambda ranks: tuple(sorted({int(r) for r in ranks})))
    steps = members.map(lambda ranks: float(steps_of[list(ranks)].sum()))
    computing = rows[rows["exposed_us"].notna()].groupby(_GROUP, dropna=False)
    seen = computing["rank_id"].agg(lambda ranks: float(steps_of[ranks.unique()].sum()))
    costs = grouped[_COSTS].sum().div(steps, axis=0).assign(exposed_us=computing["exposed_us"].sum() / seen)
    table = costs.assign(
        ranks=members,
        kind=_kinds(collectives, members, settings),
        operations_per_step=grouped.size() / steps,
        bytes_per_step=grouped["size_bytes"].sum() / steps,
        share=grouped["elapsed_us"].sum() / rows["elapsed_us"].sum(),
    ).reset_index()
    return table.sort_values("share", ascending=False, ignore_index=True)[_COLUMNS]


def communication_kinds(groups: pd.DataFrame) -> pd.DataFrame:
    """Groups of a kind together: what a rank spends per step for data, tensor, pipeline, ... parallelism.

    Args:
        groups: as `communication_groups` returns.

    Returns:
        One row per kind: groups, operations_per_step, bytes_per_step, elapsed_us, wait_us, transfer_us, exposed_us (of
        the mean rank that takes part in the kind), share. Largest first. Empty in, empty out.
    """
    amounts = ["operations_per_step", "bytes_per_step", *_COSTS]
    rows = groups.assign(members=groups["ranks"].map(len))
    table = rows.groupby("kind").agg(groups=("kind", "size"), share=("share", "sum"))
    for amount in amounts:
        known = rows[rows[amount].notna()]
        ranks = known.groupby("kind")["ranks"].agg(lambda sets: len(set().union(*sets)))
        table[amount] = (known[amount] * known["members"]).groupby(known["kind"]).sum() / ranks
    table = table.reset_index().sort_values("share", ascending=False, ignore_index=True)
    return table[["kind", "groups", *amounts, "share"]]


def _exposed(rows: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.Series:
    """Length of each operation that no computing of its rank covers; NaN where the rank's kernels are unknown."""
    exposed = pd.Series(np.nan, index=rows.index)
    if kernels is None:
        return exposed
    compute = compute_kernels(kernels).dropna(subset=["start_ns"])
    for rank_id, own in compute.groupby("rank_id"):
        mine = rows["rank_id"] == rank_id
        start = own["start_ns"].to_numpy(dtype=np.int64)
        busy = merge(start, start + (own["duration_us"].to_numpy() * 1e3).round().astype(np.int64))
        begin = rows.loc[mine, "start_ns"].to_numpy(dtype=np.int64)
        end = begin + (rows.loc[mine, "elapsed_us"].to_numpy() * 1e3).round().astype(np.int64)
        hidden = covered_before(busy, end) - covered_before(busy, begin)
        exposed[mine] = (end - begin - hidden) / 1e3
    return exposed


def _kinds(collectives: pd.DataFrame, members: pd.Series, settings: pd.DataFrame | None) -> pd.Series:
    stage_of = pipeline_stages(collectives).set_index("rank_id")["stage"]
    named = _named_groups(settings)
    within = {ranks for (_, p2p), ranks in members.items() if not p2p and len(ranks) > 1}
    within = {ranks for ranks in within if len(set(stage_of[list(ranks)])) == 1}
    near = {ranks for ranks in within if ranks[-1] - ranks[0] == len(ranks) - 1}
    both = bool(near) and bool(within - near)

    def kind(group: object, p2p: bool, ranks: tuple[int, ...]) -> str:
        if p2p or ranks in named:
            return "pipeline" if p2p else named[ranks]
        if pd.isna(group) or len(ranks) < 2:
            return "unknown"
        if ranks not in within:
            return "world"
        return ("tensor" if ranks in near else "data") if both else "within a stage"

    return pd.Series([kind(group, p2p, ranks) for (group, p2p), ranks in members.items()], index=members.index)


def _named_groups(settings: pd.DataFrame | None) -> dict[tuple[int, ...], str]:
    """Ranks of the groups in the profiler's metadata -> what they are for. Of several names the first of _WORDS."""
    if settings is None:
        return {}
    rows = SETTINGS.check(settings)
    parts = rows["name"].str.extract(r"^parallel_group_info\.(?P<group>.+)\.(?P<field>group_name|global_ranks)$")
    known = rows.assign(**parts).dropna(subset=["field"])
    found: dict[tuple[int, ...], int] = {}
    for _, of_group in known.groupby(["rank_id", "group"], dropna=False):
        fields = dict(zip(of_group["field"], of_group["value"], strict=True))
        ranks = _ranks(fields.get("global_ranks"))
        label = str(fields.get("group_name", "")).lower()
        places = [n for n, (word, kind) in enumerate(_WORDS) if word in label and kind != "pipeline"]
        if len(ranks) > 1 and places:
            found[ranks] = min(places[0], found.get(ranks, len(_WORDS)))
    return {ranks: _WORDS[place][1] for ranks, place in found.items()}


def _ranks(text: object) -> tuple[int, ...]:
    try:
        return tuple(sorted(int(r) for r in json.loads(str(text))))
    except (ValueError, TypeError):  # not a list of numbers: the metadata name no ranks
        return ()
