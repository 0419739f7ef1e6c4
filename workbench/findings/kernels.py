"""Rules on operators: a slow device, a slow operator, a slow pipeline stage, too many small operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Severity

COST_SHARE_WARNING = 0.01  # of the step: medians over steps of healthy jobs differ by less
COST_SHARE_CRITICAL = 0.20
SLOWER_DEVICE = 1.03  # healthy cards of one type differ by 1 to 2 % (clock, temperature)
SLOWER_OPERATOR = 1.05  # single operators scatter more than whole devices
SLOW_SHARE_LEAST = 0.8  # of the compute time has to be slower for the device to be the reason
ERRORS = 5.0  # standard errors: over 64 ranks and 100 operators a chance of 1 in 500 of any false alarm
SHORT_SHARE_LEAST = 0.5
SHORT_PER_STEP_LEAST = 100
LAUNCH_SHARE_WARNING = 0.03
HOST_SHORT_LEAST = 300  # operators a step: starting one takes the host about 10 us, so 3 ms of a step
HOST_SHARE_WARNING = 0.05
EXTRA_WORK_LEAST = 0.05  # of the peers' work: batches of a job differ by a few percent in length
_SOURCE = (
    "same operator and shapes compared over ranks, medians over steps (workbench.analyses.kernels); thresholds ours"
)


def severity_of(cost_us: float, wall_us: float) -> Severity:
    """Severity of what costs `cost_us` of each step of `wall_us`."""
    share = cost_us / wall_us if wall_us > 0 else 0.0
    if share >= COST_SHARE_CRITICAL:
        return "critical"
    return "warning" if share >= COST_SHARE_WARNING else "info"


def find_slow_device(devices: pd.DataFrame, stages: pd.DataFrame, *, wall_us: float) -> list[Finding]:
    """Ranks, or a whole pipeline stage, whose operators are all slower by about the same factor.

    Args:
        devices: as `device_ratios` returns.
        stages: as `pipeline_stages` returns.
        wall_us: typical step of the job.
    """
    slow = devices[(devices["ratio"] >= SLOWER_DEVICE) & (devices["slow_share"] >= SLOW_SHARE_LEAST)]
    stage_of = stages.set_index("rank_id")["stage"]
    found = []
    for stage, ranks in slow.groupby(slow["rank_id"].map(stage_of).fillna(0)):
        members = int((stage_of == stage).sum())
        if len(set(stage_of)) > 1 and members > 1 and len(ranks) == members:
            found.append(_slow_stage(int(stage), ranks, wall_us))
        else:
            found += [_slow_rank(row, len(devices), wall_us) for _, row in ranks.iterrows()]
    return found


def find_slow_op(ratios: pd.DataFrame, devices: pd.DataFrame, *, wall_us: float) -> list[Finding]:
    """Operator types that are slower on a rank than elsewhere, beyond what its whole device is.

    Args:
        ratios: as `operator_ratios` returns.
        devices: as `device_ratios` returns.
        wall_us: typical step of the job.
    """
    device = ratios["rank_id"].map(devices.set_index("rank_id")["ratio"]).clip(lower=1.0)
    beyond = ratios["ratio"] / device
    clear = (beyond >= SLOWER_OPERATOR) & (beyond - 1 > ERRORS * ratios["ratio_error"])
    cost = ratios["total_us_per_step"] * (1 - 1 / beyond)
    rows = ratios.assign(beyond=beyond, cost_us=cost)[clear].sort_values("cost_us", ascending=False)
    found = []
    for op_type, of_type in rows.groupby("op_type", sort=False):
        worst = of_type.iloc[0]
        rank, cost_us = int(worst["rank_id"]), float(worst["cost_us"])
        if severity_of(cost_us, wall_us) == "info":
            continue
        where = f"rank {rank}, {op_type}"
        found.append(
            _finding(
                "slow_op",
                cost_us,
                wall_us,
                title=f"{op_type} takes {worst['beyond']:.2f} times as long on rank {rank} as on its peers, with the "
                f"same shapes: {cost_us / 1e3:.1f} ms per step.",
                fix=f"Compare the build, attributes and memory format of {op_type} on rank {rank} with a peer's, and "
                "run it alone there.",
                culprit=Culprit(rank=rank, op=str(op_type)),
                facts=[
                    ("time over the peers'", float(worst["beyond"]), "ratio", where),
                    ("calls per step", float(worst["calls_per_step"]), "", ""),
                    ("ranks on which it is slow", len(of_type), "ranks", ""),
                ],
                rules_out=(RuledOut(cause="slow_rank", because="its other operators are as fast as its peers'"),),
            )
        )
    return found


def find_more_work(work: pd.DataFrame, *, wall_us: float) -> list[Finding]:
    """The rank that has more to compute than its peers: other shapes or more calls, at their speed.

    Args:
        work: as `rank_work` returns.
        wall_us: typical step of the job.
    """
    more = work[work["extra_share"] >= EXTRA_WORK_LEAST]
    found = []
    for row in more.head(1).to_dict("records"):
        rank, extra_us = int(row["rank_id"]), float(row["extra_us"])
        if severity_of(extra_us, wall_us) == "info":
            continue
        found.append(
            _finding(
                "slow_rank",
                extra_us,
                wall_us,
                sub_cause="more_work",
                title=f"Rank {rank} has {row['extra_share']:.0%} more to compute than its peers (mostly "
                f"{row['op_type']}), at their speed: {extra_us / 1e3:.1f} ms per step.",
                fix="Balance the work: batches of equal numbers of tokens per rank, layers or experts spread evenly.",
                culprit=Culprit(rank=rank, op=str(row["op_type"])),
                facts=[
                    ("work at the peers' speed", float(row["work_us"]), "us per step", f"rank {rank}"),
                    ("median work of its peers", float(row["peers_work_us"]), "us per step", ""),
                    (f"of the difference {row['op_type']}", float(row["op_extra_us"]), "us per step", ""),
                    ("calls per step", float(row["calls_per_step"]), "", f"rank {rank}"),
                    ("calls per step of its peers", float(row["peers_calls_per_step"]), "", ""),
                ],
                rules_out=(
                    RuledOut(cause="slow_op", because="calls with the same shapes are counted at the same time"),
                ),
            )
        )
    return found


def find_small_ops(
    short: pd.DataFrame, steps: pd.DataFrame, totals: pd.DataFrame, candidates: pd.DataFrame | None = None
) -> list[Finding]:
    """The device waits for the host between many short kernels.

    Args:
        short: as `short_kernels` returns.
        steps: as `device_steps` returns.
        totals: as `kernel_totals` returns.
        candidates: as `fusion_candidates` returns, or None.
    """
    many = short[(short["short_share"] >= SHORT_SHARE_LEAST) & (short["short_per_step"] >= SHORT_PER_STEP_LEAST)]
    gap = steps.groupby("rank_id")[["launch_gap_us", "wall_us"]].median()
    gap = gap[gap.index.isin(many["rank_id"]) & (gap["launch_gap_us"] >= LAUNCH_SHARE_WARNING * gap["wall_us"])]
    if gap.empty:
        return []
    row = many.set_index("rank_id").loc[gap["launch_gap_us"].idxmax()]
    gap_us, wall_us = float(gap["launch_gap_us"].median()), float(gap["wall_us"].median())
    is_short = totals["short_share"] >= SHORT_SHARE_LEAST
    short_us = float(totals[is_short].groupby("rank_id")["total_us"].sum().median()) / float(row["steps"])
    scope = None if pd.isna(row["scope"]) else str(row["scope"])
    return [
        _finding(
            "small_ops",
            gap_us + short_us,
            wall_us,
            title=f"{row['short_per_step']:,.0f} of {row['per_step']:,.0f} kernels per step run less than 10 us; the "
            f"device idles {gap_us / 1e3:.1f} ms ({gap_us / wall_us:.0%}) of each step between launches.",
            fix="Fuse or remove the small operators (graph mode with jit_level O1, a fused kernel, or precompute what "
            f"does not change){'' if scope is None else ', first those in ' + scope}.",
            source="idle times below 1 ms between device tasks; thresholds ours",
            culprit=Culprit(op=scope),
            facts=[
                ("share of kernels below 10 us", float(row["short_share"]), "share", ""),
                ("launch gaps per step", gap_us, "us", ""),
                ("time in the short kernels per step", short_us, "us", ""),
                *_fusable(candidates),
            ],
        )
    ]


def find_small_ops_on_host(launches: pd.DataFrame) -> list[Finding]:
    """A CPU run that spends its step on starting operators, most of which run less than 10 us.

    Args:
        launches: as `host_launches` returns.
    """
    many = launches[
        (launches["short_share"] >= SHORT_SHARE_LEAST)
        & (launches["short_per_step"] >= HOST_SHORT_LEAST)
        & (launches["cost_us"] >= HOST_SHARE_WARNING * launches["step_us"])
    ]
    if many.empty:
        return []
    row = many.loc[many["cost_us"].idxmax()]
    cost_us, step_us, op_type = float(row["cost_us"]), float(row["step_us"]), str(row["op_type"])
    return [
        _finding(
            "small_ops",
            cost_us,
            step_us,
            title=f"{row['short_per_step']:,.0f} of {row['per_step']:,.0f} operators per step run less than 10 us, "
            f"most of them {op_type}; with starting them they take {cost_us / 1e3:.1f} ms ({cost_us / step_us:.0%}) of "
            "a step.",
            fix=f"Fuse or remove the small operators, first {op_type} (one operator on a larger tensor, a fused "
            "kernel, or precompute what does not change).",
            source="medians over calls and gaps of a CPU profile; thresholds ours",
            culprit=Culprit(op=op_type),
            facts=[
                ("operators below 10 us, per step", float(row["short_per_step"]), "", ""),
                ("share of operators below 10 us", float(row["short_share"]), "share", ""),
                ("typical gap between operators", float(row["gap_us"]), "us", ""),
            ],
        )
    ]


def _fusable(candidates: pd.DataFrame | None) -> list[tuple[str, Any, str, str]]:
    """Facts on the runs of small elementwise operators, led by the one that takes most time."""
    if candidates is None or candidates.empty:
        return []
    top = candidates.iloc[0]
    where = f"{top['scope']}: {top['operators']}"
    return [
        ("launches per step saved by fusing adjacent elementwise operators",
         float(candidates["launches_saved"].sum()), "launches", ""),
        ("time of the largest such runs, with gaps", float(top["total_us"] + top["gap_us"]), "us", where),
    ]  # fmt: skip


def _finding(
    cause: str,
    cost_us: float,
    wall_us: float,
    *,
    facts: Sequence[tuple[str, Any, str, str]],
    playbook: str = "T2",
    source: str = _SOURCE,
    **fields: Any,
) -> Finding:
    """A finding on operators: severity from its cost, evidence from facts of (fact, value, unit, where)."""
    return Finding(
        cause=cause,
        playbook=playbook,
        severity=severity_of(cost_us, wall_us),
        confidence="high",
        source=source,
        saves_us_per_step=cost_us,
        evidence=tuple(Evidence(fact=f, value=v, unit=u, table="kernels", where=w) for f, v, u, w in facts),
        **fields,
    )


def _slow_rank(row: pd.Series, ranks: int, wall_us: float) -> Finding:
    rank, ratio, cost_us = int(row["rank_id"]), float(row["ratio"]), float(row["excess_us_per_step"])
    return _finding(
        "slow_rank",
        cost_us,
        wall_us,
        playbook="T4",
        sub_cause="device_slow",
        title=f"Rank {rank} computes {ratio:.2f} times as long as its peers, in all operators alike: "
        f"{cost_us / 1e3:.1f} ms per step that the others wait for.",
        fix=f"Look at clock, temperature and power of rank {rank}'s card (npu-smi info); try another card.",
        culprit=Culprit(rank=rank),
        facts=[
            ("time over the peers', median over operators", ratio, "ratio", ""),
            ("share of its compute time that is slower", float(row["slow_share"]), "share", ""),
            ("ranks compared", ranks, "ranks", ""),
        ],
        rules_out=(RuledOut(cause="slow_op", because="all operators are slower by about the same factor"),),
    )


def _slow_stage(stage: int, ranks: pd.DataFrame, wall_us: float) -> Finding:
    ratio, cost_us = float(np.median(ranks["ratio"])), float(np.median(ranks["excess_us_per_step"]))
    return _finding(
        "pipeline_bubble",
        cost_us,
        wall_us,
        playbook="T4",
        sub_cause="slow_stage",
        title=f"All {len(ranks)} ranks of pipeline stage {stage} compute {ratio:.2f} times as long for the same work; "
        f"the other stages wait about {cost_us / 1e3:.1f} ms per step.",
        fix=f"Find what the ranks of stage {stage} share (host, power, clock setting), or give it fewer layers.",
        culprit=Culprit(stage=stage),
        facts=[
            ("time over the other stages'", ratio, "ratio", ""),
            ("ranks of the stage", len(ranks), "ranks", ""),
        ],
    )
