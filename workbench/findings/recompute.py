"""Rules on recomputation: it costs a material part of the step, and the memory that it saves is not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from workbench.analyses.device_steps import device_steps
from workbench.analyses.kernels import on_host
from workbench.analyses.log_memory import FAILURES
from workbench.analyses.memory_room import TABLES as MEMORY_TABLES
from workbench.analyses.memory_room import memory_room
from workbench.analyses.recompute import recompute_shares, recomputed_operators, recomputed_parts, worth_keeping
from workbench.analyses.trace_steps import device_tables
from workbench.findings.finding import Confidence, Culprit, Evidence, Finding
from workbench.findings.kernels import severity_of
from workbench.findings.rule import Rule, Tables
from workbench.findings.stage_memory import NEAR_SHARE

# Of computing: a full recomputation takes a fifth to a quarter; below this, the risk is not worth it.
COST_SHARE_LEAST = 0.05
ROOM_TIMES_PEAK = 1.0  # free, where sizes of outputs are not known: as much again as the whole peak
SHOWN_PARTS = 3
GIB = 2**30
STEP_TABLES = ("step_time", "collectives", "host_ops", "events", "trace_events", "training_steps")
HOW = (
    "in MindFormers lower recompute_config.recompute (layers per stage), or name these operators in "
    "recompute_config.select_recompute_exclude; in other code call recompute() on fewer cells"
)
MISSING = {  # column of `memory_room` -> what it is, and how to have it
    "limit_bytes": ("the limit of a device's memory", "set max_device_memory, or add the log or telemetry of the card"),
    "peak_bytes": ("the peak of a device's memory", "profile on the device with profile_memory=True"),
}
SOURCE = (
    "copies of forward operators in marked scopes (MindSpore's recomputation guide), outputs against the limit less a "
    "tenth; thresholds ours"
)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One rank: its row of `recompute_shares` and of `memory_room`, and what fits.

    Attributes:
        kept: as `worth_keeping` returns; None where the sizes of outputs are not known.
        saved_us: compute time per step that is saved by keeping what fits.
        is_room_known: whether both peak and limit are known.
    """

    share: pd.Series
    room: pd.Series
    kept: pd.DataFrame | None
    saved_us: float
    is_room_known: bool


def find_recompute_overhead(tables: Tables) -> list[Finding]:
    """One finding if recomputation costs a material share of the step and memory has room for what it does not keep.

    Silent where memory is nearly full, and after a failed allocation: there recomputation pays its way. Where no limit
    or no peak is known, it is only told (info), with what is missing. The job gains what its longest computing rank
    gets shorter, because the others wait for that.

    Args:
        tables: `kernels`, and of STEP_TABLES and MEMORY_TABLES those that there are.
    """
    messages = tables.get("log_messages")
    if messages is not None and messages["kind"].isin(FAILURES).any():
        return []
    kernels = tables["kernels"]
    copies = recomputed_operators(kernels)
    shares = recompute_shares(kernels, copies)
    costly = shares[shares["share"] >= COST_SHARE_LEAST]
    if costly.empty:
        return []
    room = memory_room({} if on_host(kernels) else tables, costly["rank_id"].tolist()).set_index("rank_id")
    parts = recomputed_parts(kernels, copies)
    ranks = [
        _judged(row, room.loc[row["rank_id"]], parts[parts["rank_id"] == row["rank_id"]])
        for _, row in costly.iterrows()
    ]
    steps = device_steps(**device_tables({n: t for n, t in tables.items() if n in ("kernels", *STEP_TABLES)}))
    wall_us = float(steps["wall_us"].median()) if len(steps) else float(costly["compute_us"].median())
    if not all(r.is_room_known for r in ranks):
        return [_untold(max(ranks, key=lambda r: float(r.share["share"])), parts, len(ranks), wall_us)]
    gain_us = _gain_us(shares, ranks)
    if gain_us < COST_SHARE_LEAST * float(shares["compute_us"].max()):
        return []
    return [_overhead(min(ranks, key=lambda r: r.saved_us), gain_us, parts, len(ranks), wall_us)]


def _gain_us(shares: pd.DataFrame, ranks: Sequence[_Judged]) -> float:
    """How much shorter the longest computing of a rank gets; ranks that are not judged stay as they are."""
    saved = {int(r.share["rank_id"]): r.saved_us for r in ranks}
    after = shares["compute_us"] - shares["rank_id"].map(saved).fillna(0.0)
    return float(shares["compute_us"].max() - after.max())


def _judged(share: pd.Series, room: pd.Series, parts: pd.DataFrame) -> _Judged:
    """What of a rank's recomputation its room makes needless."""
    free = NEAR_SHARE * float(room["limit_bytes"]) - float(room["peak_bytes"])
    is_known = not pd.isna(free)
    if pd.isna(share["kept_bytes"]):
        fits = is_known and free >= ROOM_TIMES_PEAK * float(room["peak_bytes"])
        saved_us = float(share["recomputed_us"]) if fits else 0.0
        return _Judged(share=share, room=room, kept=None, saved_us=saved_us, is_room_known=is_known)
    kept = worth_keeping(parts, free if is_known else 0.0)
    return _Judged(share=share, room=room, kept=kept, saved_us=float(kept["saved_us"].sum()), is_room_known=is_known)


def _overhead(rank: _Judged, gain_us: float, parts: pd.DataFrame, ranks: int, wall_us: float) -> Finding:
    confidence: Confidence = "medium" if rank.kept is None else "high"
    number, room_bytes = int(rank.share["rank_id"]), float(rank.room["room_bytes"])
    spent_us = float(rank.share["recomputed_us"])
    part = "it" if gain_us >= 0.995 * spent_us else f"{gain_us / 1e3:,.3g} ms of it"
    return Finding(
        cause="recompute_overhead",
        playbook="T9",
        severity=severity_of(gain_us, wall_us),
        confidence=confidence,
        title=f"Recomputing takes {spent_us / 1e3:,.3g} ms ({rank.share['share']:.0%} of computing) of each step; "
        f"{room_bytes / GIB:,.1f} GiB of {rank.room['limit_bytes'] / GIB:,.1f} GiB are never used, so {part} is "
        "needless.",
        fix=f"Keep the outputs of {_names(rank, parts)} instead: {HOW}; expect {(wall_us - gain_us) / 1e3:,.4g} "
        f"instead of {wall_us / 1e3:,.4g} ms per step, and watch the peak.",
        source=SOURCE,
        saves_us_per_step=gain_us,
        culprit=Culprit(op=_names(rank, parts, shown=1)),
        evidence=(*_cost_facts(rank, parts, ranks), *_room_facts(rank, number)),
    )


def _untold(rank: _Judged, parts: pd.DataFrame, ranks: int, wall_us: float) -> Finding:
    """The cost alone: without a limit and a peak nobody can say whether it is needless."""
    missing = [f"not known: {what}; {how}" for column, (what, how) in MISSING.items() if pd.isna(rank.room[column])]
    spent_us = float(rank.share["recomputed_us"])
    return Finding(
        cause="recompute_overhead",
        playbook="T9",
        severity="info",
        confidence="medium",
        title=f"Recomputing takes {spent_us / 1e3:,.3g} ms ({rank.share['share']:.0%} of computing) of each step; "
        "whether memory has room for less of it is not known.",
        fix=f"Compare the peak with the limit; where there is room, keep the outputs of {_names(rank, parts)}: {HOW}.",
        source=SOURCE,
        saves_us_per_step=None,
        culprit=Culprit(op=_names(rank, parts, shown=1)),
        evidence=(
            *_cost_facts(rank, parts, ranks),
            Evidence(fact="at most, with nothing recomputed", value=spent_us / wall_us, unit="share of the step"),
            *(Evidence(fact=fact) for fact in missing),
        ),
    )


def _names(rank: _Judged, parts: pd.DataFrame, *, shown: int = SHOWN_PARTS) -> str:
    """Operators that are worth keeping, most time first; those of one layer in so far as they fit."""
    own = parts[parts["rank_id"] == rank.share["rank_id"]]
    rows = own if rank.kept is None or rank.kept.empty else rank.kept
    column = "saved_us" if "saved_us" in rows else "us_per_step"
    top = rows.sort_values(column, ascending=False, kind="stable").head(shown)
    return ", ".join(f"{row.op_type} in {row.part}" for row in top.itertuples())


def _cost_facts(rank: _Judged, parts: pd.DataFrame, ranks: int) -> tuple[Evidence, ...]:
    share, number = rank.share, int(rank.share["rank_id"])
    own = parts[parts["rank_id"] == number].sort_values("us_per_step", ascending=False, kind="stable")
    where = f"rank {number}, {int(share['steps'])} steps"
    facts = [
        Evidence(fact="time in recomputed operators, at least", value=float(share["recomputed_us"]),
                 unit="us per step", table="kernels", where=where),
        Evidence(fact="share of computing", value=float(share["share"]), unit="share", table="kernels", where=where),
        Evidence(fact="recomputed operators", value=float(share["recomputed_per_step"]), unit="per step",
                 table="kernels", where=where),
        Evidence(fact="ranks that show it", value=ranks, unit="ranks"),
    ]  # fmt: skip
    facts += [
        Evidence(fact=f"recomputed {row.op_type} in {row.part}", value=float(row.us_per_step), unit="us per step",
                 table="kernels", where=f"{row.per_step:.0f} per step")
        for row in own.head(SHOWN_PARTS).itertuples()
    ]  # fmt: skip
    return tuple(facts)


def _room_facts(rank: _Judged, number: int) -> tuple[Evidence, ...]:
    room = rank.room
    facts = [
        Evidence(fact="highest memory", value=float(room["peak_bytes"]) / GIB, unit="GiB",
                 table=str(room["peak_from"]), where=f"rank {number}"),
        Evidence(fact="limit of the memory", value=float(room["limit_bytes"]) / GIB, unit="GiB",
                 where=str(room["limit_from"])),
    ]  # fmt: skip
    if rank.kept is None:
        how = "profile at Level1, which records shapes"
        return (*facts, Evidence(fact=f"not known: the size of what would be kept; {how}"))
    held = float(rank.kept["held_bytes"].sum())
    return (
        *facts,
        Evidence(fact="outputs of all recomputed operators, at most", value=float(rank.share["kept_bytes"]) / GIB,
                 unit="GiB", table="kernels"),
        Evidence(fact="of them kept in the room", value=held / GIB, unit="GiB"),
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("recompute_overhead",),
        needs=("kernels",),
        uses=(*STEP_TABLES, *(t for t in MEMORY_TABLES if t not in STEP_TABLES)),
        find=find_recompute_overhead,
    ),
)
