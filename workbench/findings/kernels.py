"""Rules on operators: a slow device, a slow operator, a slow pipeline stage, too many small operators."""

from __future__ import annotations

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
        found.append(
            Finding(
                cause="slow_op",
                playbook="T2",
                severity=severity_of(cost_us, wall_us),
                confidence="high",
                title=f"{op_type} takes {worst['beyond']:.2f} times as long on rank {rank} as on its peers, "
                "with the same "
                f"shapes: {cost_us / 1e3:.1f} ms per step.",
                fix=f"Compare the build, attributes and memory format of {op_type} on rank {rank} with a "
                "peer's, and run "
                "it alone there.",
                source=_SOURCE,
                culprit=Culprit(rank=rank, op=str(op_type)),
                saves_us_per_step=cost_us,
                evidence=(
                    Evidence(fact="time over the peers'", value=float(worst["beyond"]), unit="ratio", table="kernels",
                             where=f"rank {rank}, {op_type}"),
                    Evidence(fact="calls per step", value=float(worst["calls_per_step"]), table="kernels"),
                    Evidence(fact="ranks on which it is slow", value=len(of_type), unit="ranks"),
                ),
                rules_out=(RuledOut(cause="slow_rank", because="its other operators are as fast as its peers'"),),
            )
        )  # fmt: skip
    return found


def find_small_ops(short: pd.DataFrame, steps: pd.DataFrame, totals: pd.DataFrame) -> list[Finding]:
    """The device waits for the host between many short kernels.

    Args:
        short: as `short_kernels` returns.
        steps: as `device_steps` returns.
        totals: as `kernel_totals` returns.
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
    saves_us = gap_us + short_us
    return [
        Finding(
            cause="small_ops",
            playbook="T2",
            severity=severity_of(saves_us, wall_us),
            confidence="high",
            title=f"{row['short_per_step']:,.0f} of {row['per_step']:,.0f} kernels per step run less than 10 us; the "
            f"device idles {gap_us / 1e3:.1f} ms ({gap_us / wall_us:.0%}) of each step between launches.",
            fix="Fuse or remove the small operators (graph mode with jit_level O1, a fused kernel, or precompute what "
            f"does not change){'' if pd.isna(row['scope']) else ', first those in ' + str(row['scope'])}.",
            source="idle times below 1 ms between device tasks; thresholds ours",
            culprit=Culprit(op=None if pd.isna(row["scope"]) else str(row["scope"])),
            saves_us_per_step=saves_us,
            evidence=(
                Evidence(
                    fact="share of kernels below 10 us", value=float(row["short_share"]), unit="share", table="kernels"
                ),
                Evidence(fact="launch gaps per step", value=gap_us, unit="us", table="kernels"),
                Evidence(fact="time in the short kernels per step", value=short_us, unit="us", table="kernels"),
            ),
        )
    ]


def _slow_rank(row: pd.Series, ranks: int, wall_us: float) -> Finding:
    rank, ratio, cost_us = int(row["rank_id"]), float(row["ratio"]), float(row["excess_us_per_step"])
    return Finding(
        cause="slow_rank",
        sub_cause="device_slow",
        playbook="T4",
        severity=severity_of(cost_us, wall_us),
        confidence="high",
        title=f"Rank {rank} computes {ratio:.2f} times as long as its peers, in all operators alike: "
        f"{cost_us / 1e3:.1f} ms per step that the others wait for.",
        fix=f"Look at clock, temperature and power of rank {rank}'s card (npu-smi info); try another card.",
        source=_SOURCE,
        culprit=Culprit(rank=rank),
        saves_us_per_step=cost_us,
        evidence=(
            Evidence(fact="time over the peers', median over operators", value=ratio, unit="ratio", table="kernels"),
            Evidence(fact="share of its compute time that is slower", value=float(row["slow_share"]), unit="share"),
            Evidence(fact="ranks compared", value=ranks, unit="ranks"),
        ),
        rules_out=(RuledOut(cause="slow_op", because="all operators are slower by about the same factor"),),
    )


def _slow_stage(stage: int, ranks: pd.DataFrame, wall_us: float) -> Finding:
    ratio, cost_us = float(np.median(ranks["ratio"])), float(np.median(ranks["excess_us_per_step"]))
    return Finding(
        cause="pipeline_bubble",
        sub_cause="slow_stage",
        playbook="T4",
        severity=severity_of(cost_us, wall_us),
        confidence="high",
        title=f"All {len(ranks)} ranks of pipeline stage {stage} compute {ratio:.2f} times as long for the same work; "
        f"the other stages wait about {cost_us / 1e3:.1f} ms per step.",
        fix=f"Find what the ranks of stage {stage} share (host, power, clock setting), or give it fewer layers.",
        source=_SOURCE,
        culprit=Culprit(stage=stage),
        saves_us_per_step=cost_us,
        evidence=(
            Evidence(fact="time over the other stages'", value=ratio, unit="ratio", table="kernels"),
            Evidence(fact="ranks of the stage", value=len(ranks), unit="ranks"),
        ),
    )
