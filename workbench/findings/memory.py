"""Memory curves and allocations of a profile -> findings on fragmentation, leaks and uneven pipeline stages."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.allocator import GROW_BYTES, replay
from workbench.analyses.blocks import main_pools
from workbench.analyses.lifetimes import peak_parts, unfreed_growth
from workbench.analyses.memory import (
    floor_growth,
    memory_peaks,
    pipeline_stages,
    stage_peaks,
    step_floors,
    step_starts,
)
from workbench.findings.finding import Culprit, Evidence, Finding, Severity, Steps
from workbench.findings.rule import Rule

UNUSED_SHARE_WARNING = 0.15  # of the pool beyond what a pool of whole growth blocks needs; growth alone gives below 0.1
UNUSED_SHARE_CRITICAL = 0.4
LEAK_STEPS_LEAST = 4  # three rises in a row by chance: 1 in 24; the size of each must be alike, too
LEAK_SHARE_OF_MEAN = 0.25  # each step's rise is at least this part of the mean rise: a cache that fills up slows down
LEAK_SHARE_WARNING = 1e-3  # of the memory in use, per 10 steps: a card fills up within 10,000 steps
STAGE_SPREAD_WARNING = 0.2  # a fifth of the fullest stage's memory lies idle on another stage
MIB, GIB = 2**20, 2**30


def find_fragmentation(memory_timeline: pd.DataFrame, tensor_lifetimes: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if pools hold far more than their blocks need, on the rank where it is worst.

    What a pool needs is what a fresh best-fit pool takes for the same allocations (replayed where they are recorded),
    and at least the allocated peak and one growth block. A pool that did not grow while it was recorded may have needed
    its size before: that is said, with medium confidence.
    """
    peaks = memory_peaks(memory_timeline).dropna(subset=["peak_allocated_bytes", "peak_reserved_bytes"])
    if peaks.empty:
        return []
    excess = peaks["peak_reserved_bytes"] - peaks["peak_allocated_bytes"] - GROW_BYTES
    suspects = peaks[excess >= UNUSED_SHARE_WARNING * peaks["peak_reserved_bytes"]]
    if suspects.empty:
        return []
    worst = suspects.loc[(suspects["peak_reserved_bytes"] - suspects["peak_allocated_bytes"]).idxmax()]
    replayed = _replayed_bytes(tensor_lifetimes, int(worst["rank_id"]))
    need = max(float(worst["peak_allocated_bytes"]) + GROW_BYTES, replayed or 0.0)
    lost = float(worst["peak_reserved_bytes"]) - need
    if lost < UNUSED_SHARE_WARNING * float(worst["peak_reserved_bytes"]):
        return []
    return [_fragmentation(worst, lost, replayed, len(suspects), len(peaks))]


def find_memory_leak(
    memory_timeline: pd.DataFrame, kernels: pd.DataFrame, tensor_lifetimes: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding if what the steps leave behind grows at every profiled step, on the rank where it grows most.

    Compared are the lowest points of the steps, so that what a step takes and gives back does not count. With fewer
    than `LEAK_STEPS_LEAST` profiled steps a steady growth is only told (info), with what to profile to be sure.
    """
    steps = step_starts(kernels)
    floors = step_floors(memory_timeline, steps)
    growth = floor_growth(floors)
    if len(growth) and growth["steps"].max() < LEAK_STEPS_LEAST:
        return _too_few_steps(_rising(growth, floors))
    leaks = _rising(growth[growth["steps"] >= LEAK_STEPS_LEAST], floors)
    if leaks.empty:
        return []
    worst = leaks.loc[leaks["growth_bytes_per_step"].idxmax()]
    kept = None if tensor_lifetimes is None else unfreed_growth(tensor_lifetimes, steps)
    return [_leak(worst, kept, len(leaks), len(growth))]


def _rising(growth: pd.DataFrame, floors: pd.DataFrame) -> pd.DataFrame:
    """Ranks whose memory floor rises at every step, by amounts alike, and by what matters."""
    smallest = floors.sort_values(["rank_id", "step"]).groupby("rank_id")["floor_bytes"].agg(lambda f: f.diff().min())
    mean = (growth["last_bytes"] - growth["first_bytes"]) / (growth["steps"] - 1)
    steady = growth["rank_id"].map(smallest) >= LEAK_SHARE_OF_MEAN * mean
    large = 10 * growth["growth_bytes_per_step"] >= LEAK_SHARE_WARNING * growth["first_bytes"]
    return growth[steady & large & (growth["low_bytes_per_step"] > 0)]


def _too_few_steps(rising: pd.DataFrame) -> list[Finding]:
    """Growth over fewer steps than can prove a leak: what was seen, and what would show it."""
    if rising.empty:
        return []
    worst = rising.loc[rising["growth_bytes_per_step"].idxmax()]
    per_step, steps = float(worst["growth_bytes_per_step"]) / MIB, int(worst["steps"])
    return [
        Finding(
            cause="memory_leak",
            playbook="T3",
            severity="info",
            confidence="low",
            title=f"The device memory of rank {int(worst['rank_id'])} grows by {per_step:.1f} MiB per step over "
            f"{steps} profiled steps: too few to call it a leak.",
            fix=f"Profile {LEAK_STEPS_LEAST + 2} steps or more with profile_memory=True to see whether it goes on.",
            source="Theil-Sen slope over the lowest points of the steps, each step rising; thresholds ours",
            culprit=Culprit(rank=int(worst["rank_id"])),
            steps=Steps(first=int(worst["first_step"]), last=int(worst["last_step"])),
            evidence=(
                *_growth_facts(worst),
                Evidence(fact="profiled steps", value=steps, unit=f"of {LEAK_STEPS_LEAST} that a leak takes to show"),
            ),
        )
    ]


def find_stage_imbalance(
    memory_timeline: pd.DataFrame,
    settings: pd.DataFrame | None = None,
    tensor_lifetimes: pd.DataFrame | None = None,
) -> list[Finding]:
    """One finding if pipeline stages hold uneven memory.

    In 1F1B order earlier stages keep more micro-batches; a spread that falls from stage to stage is that and only said.
    """
    peaks = memory_peaks(memory_timeline)
    world_size = int(peaks["rank_id"].max()) + 1 if len(peaks) else 0
    stages = pipeline_stages(settings, world_size)
    if stages is None or stages < 2:
        return []
    held = stage_peaks(peaks, stages, world_size).dropna(subset=["peak_allocated_bytes"])
    if len(held) < 2:
        return []
    level = held["peak_allocated_bytes"]
    spread = float(level.max() - level.min())
    if spread < STAGE_SPREAD_WARNING * float(level.max()):
        return []
    return [_imbalance(held, spread, peaks, world_size // stages, tensor_lifetimes)]


def _replayed_bytes(tensor_lifetimes: pd.DataFrame | None, rank_id: int) -> float | None:
    """Size of a fresh pool for the recorded allocations of a rank; None without them."""
    if tensor_lifetimes is None:
        return None
    rows = tensor_lifetimes[tensor_lifetimes["rank_id"] == rank_id]
    sizes = [replay(pool).peak_reserved_bytes for _, _, pool in main_pools(rows)]
    return max(sizes, default=None)


def _fragmentation(worst: pd.Series, excess: float, replayed: float | None, ranks: int, all_ranks: int) -> Finding:
    rank_id, reserved = int(worst["rank_id"]), float(worst["peak_reserved_bytes"])
    allocated = float(worst["peak_allocated_bytes"])
    where = f"rank {rank_id}, component {worst['component']}"
    severity: Severity = "critical" if excess >= UNUSED_SHARE_CRITICAL * reserved else "warning"
    facts = [
        Evidence(fact="reserved at its peak", value=reserved / GIB, unit="GiB", table="memory_timeline", where=where),
        Evidence(fact="allocated at its peak", value=allocated / GIB, unit="GiB", table="memory_timeline", where=where),
        Evidence(fact="reserved over allocated", value=reserved / allocated if allocated else None, unit="ratio"),
        Evidence(fact="more than the blocks need", value=excess / GIB, unit="GiB"),
        Evidence(fact="ranks that show it", value=ranks, unit=f"of {all_ranks} ranks"),
    ]
    grew = bool(worst["first_reserved_bytes"] < reserved)
    earlier = "" if grew else " The pool was as large when the record began: it may have needed that before."
    if not grew:
        first = float(worst["first_reserved_bytes"]) / GIB
        facts.append(Evidence(fact="reserved when the record began", value=first, unit="GiB", table="memory_timeline"))
    if replayed is not None:
        fact = "a fresh best-fit pool takes for the same allocations"
        facts.append(Evidence(fact=fact, value=replayed / GIB, unit="GiB", table="tensor_lifetimes", where=where))
    return Finding(
        cause="fragmentation",
        playbook="T9",
        severity=severity,
        confidence="high" if replayed is not None and grew else "medium",
        title=f"The memory pool of rank {rank_id} holds {reserved / GIB:.1f} GiB for at most {allocated / GIB:.1f} GiB "
        f"in use: {excess / GIB:.1f} GiB ({excess / reserved:.0%}) are lost to fragmentation"
        + (f", on {ranks} of {all_ranks} ranks." if ranks > 1 else ".")
        + earlier,
        fix="Let the pool map pieces together (MS_ALLOC_CONF=enable_vmm:True), allocate long-lived blocks first, pad "
        "sequences to few lengths, and set one size for the pool (set_memory(init_size=...)).",
        source="pool of whole growth blocks, replayed where allocations are recorded; thresholds ours",
        culprit=Culprit(rank=rank_id if ranks < all_ranks else None),
        evidence=tuple(facts),
    )


def _leak(worst: pd.Series, kept: pd.DataFrame | None, ranks: int, all_ranks: int) -> Finding:
    rank_id, per_step = int(worst["rank_id"]), float(worst["growth_bytes_per_step"])
    op, op_facts = _leaking_operator(kept, rank_id)
    return Finding(
        cause="memory_leak",
        playbook="T3",
        severity="warning",
        confidence="high" if op is not None or worst["steps"] > LEAK_STEPS_LEAST + 1 else "medium",
        title=f"The device memory of rank {rank_id} grows by {per_step / MIB:.1f} MiB per step"
        + (f", left behind by {op}" if op is not None else "")
        + (f", as on {ranks} of {all_ranks} ranks." if ranks > 1 else "."),
        fix="Release what is left behind: keep numbers instead of tensors in callbacks and lists, and drop references "
        "at the end of the step.",
        source="Theil-Sen slope over the lowest points of the steps, each step rising; thresholds ours",
        culprit=Culprit(rank=rank_id if ranks < all_ranks else None, op=op),
        steps=Steps(first=int(worst["first_step"]), last=int(worst["last_step"])),
        evidence=(
            *_growth_facts(worst),
            Evidence(fact="ranks that show it", value=ranks, unit=f"of {all_ranks} ranks"),
            *op_facts,
        ),
    )


def _growth_facts(worst: pd.Series) -> list[Evidence]:
    """The growth, its interval, and how steadily it rises."""
    names = {
        "growth_bytes_per_step": "growth of the lowest point of the steps",
        "low_bytes_per_step": "lower end of its 95 % interval",
        "high_bytes_per_step": "upper end of its 95 % interval",
    }
    where = f"rank {int(worst['rank_id'])}"
    facts = [
        Evidence(fact=f, value=float(worst[c]) / MIB, unit="MiB per step", table="memory_timeline", where=where)
        for c, f in names.items()
    ]
    rising = Evidence(fact="steps that rise", value=int(worst["rising_steps"]), unit=f"of {int(worst['steps']) - 1}")
    return [*facts, rising]


def _leaking_operator(kept: pd.DataFrame | None, rank_id: int) -> tuple[str | None, list[Evidence]]:
    """The operator that leaves most behind on a rank, in at least half of the steps, and the fact of it."""
    if kept is None or kept.empty:
        return None, []
    often = kept[(kept["rank_id"] == rank_id) & (2 * kept["steps"] >= kept["steps_seen"]) & (kept["steps"] > 1)]
    if often.empty:
        return None, []
    row = often.iloc[0]
    fact = Evidence(
        fact=f"left behind by {row['part']}", value=float(row["bytes_per_step"]) / MIB, unit="MiB per step",
        table="tensor_lifetimes", where=f"rank {rank_id}, {row['blocks']} blocks never freed",
    )  # fmt: skip
    return str(row["part"]), [fact]


def _imbalance(
    held: pd.DataFrame, spread: float, peaks: pd.DataFrame, per_stage: int, tensor_lifetimes: pd.DataFrame | None
) -> Finding:
    level = held.set_index("stage")["peak_allocated_bytes"]
    stage = int(level.idxmax())
    falling = bool(level.sort_index().is_monotonic_decreasing)
    ranks = peaks[peaks["rank_id"] // per_stage == stage]
    rank_id = int(ranks.loc[ranks["peak_allocated_bytes"].idxmax(), "rank_id"])
    facts = [
        Evidence(fact=f"peak of stage {s}", value=float(b) / GIB, unit="GiB", table="memory_timeline")
        for s, b in level.items()
    ]
    facts.append(Evidence(fact="mean of the stages", value=float(level.mean()) / GIB, unit="GiB"))
    if tensor_lifetimes is not None:
        parts = peak_parts(tensor_lifetimes[tensor_lifetimes["rank_id"] == rank_id]).head(3)
        facts += [
            Evidence(fact=f"held at the peak by {p.part}", value=float(p.size_bytes) / GIB, unit="GiB",
                     table="tensor_lifetimes", where=f"rank {rank_id}")
            for p in parts.itertuples()
        ]  # fmt: skip
    return Finding(
        cause="stage_imbalance",
        playbook="T3",
        severity="info" if falling else "warning",
        confidence="medium" if falling else "high",
        title=f"Stage {stage} holds {float(level.max()) / GIB:.1f} GiB at its peak, stage {int(level.idxmin())} only "
        f"{float(level.min()) / GIB:.1f} GiB" + (" (earlier stages keep more micro-batches)." if falling else "."),
        fix=f"Move layers off stage {stage} (offset), recompute more there than elsewhere, and shard the embedding and "
        f"its optimizer state: evenly spread, the fullest stage would hold {spread / GIB:.1f} GiB less at most.",
        source="medians per stage; threshold ours",
        culprit=Culprit(rank=rank_id, stage=stage),
        evidence=tuple(facts),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("fragmentation",),
        needs=("memory_timeline",),
        uses=("tensor_lifetimes",),
        find=lambda t: find_fragmentation(t["memory_timeline"], t.get("tensor_lifetimes")),
    ),
    Rule(
        causes=("memory_leak",),
        needs=("memory_timeline", "kernels"),
        uses=("tensor_lifetimes",),
        find=lambda t: find_memory_leak(t["memory_timeline"], t["kernels"], t.get("tensor_lifetimes")),
    ),
    Rule(
        causes=("stage_imbalance",),
        needs=("memory_timeline", "settings"),
        uses=("tensor_lifetimes",),
        find=lambda t: find_stage_imbalance(t["memory_timeline"], t["settings"], t.get("tensor_lifetimes")),
    ),
)
