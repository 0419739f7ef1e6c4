"""Step times of all ranks, without operators -> the rank that the others wait for."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.rank_waits import WAIT, LateRank, late_rank
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut
from workbench.findings.kernels import severity_of
from workbench.findings.rule import Rule

SIGMAS = 6.0
SHARE_LEAST = 0.02  # of the step
WAITED_LEAST = 0.7  # of the excess: what the others wait longer for it
EVEN_COMPUTING = 0.03
SOURCE = "own time (computing and free) against the wait inside collectives, medians over steps; thresholds ours"


def find_rank_that_others_wait_for(step_time: pd.DataFrame) -> list[Finding]:
    """One finding if one rank's own time is longer than its peers', and its communication shorter by as much.

    Args:
        step_time: table `step_time` of all ranks, as cluster_step_trace_time.csv has it.
    """
    late = late_rank(step_time)
    if late is None or late.sigmas < SIGMAS or late.excess_us < SHARE_LEAST * late.step_us:
        return []
    if late.wait_rank != 1 or late.missing_us < WAITED_LEAST * late.excess_us:
        return []
    return [_finding(late)]


def _finding(late: LateRank) -> Finding:
    idle = late.part == "free_us"
    does = "has nothing running" if idle else "computes"
    own, peers = late.parts[late.part]
    return Finding(
        cause="slow_rank",
        playbook="T4",
        severity=severity_of(late.excess_us, late.step_us),
        confidence="high",
        title=f"Rank {late.rank_id} {does} {own / 1e3:,.0f} ms per step, its peers {peers / 1e3:,.0f} ms; it waits "
        f"least in collectives, and the other {late.ranks - 1} ranks wait for it.",
        fix=f"Look at the host and the memory pool of rank {late.rank_id}, and profile it beside a peer: its free time "
        "must fall to the others'."
        if idle
        else f"Compare clock, temperature and input of rank {late.rank_id} with a peer's, operator by operator.",
        source=SOURCE,
        culprit=Culprit(rank=late.rank_id),
        saves_us_per_step=late.excess_us,
        evidence=_facts(late),
        rules_out=_ruled_out(late),
    )


def _facts(late: LateRank) -> tuple[Evidence, ...]:
    where = f"rank {late.rank_id}, median of {late.steps} steps"
    free, computing, wait = (late.parts[c] for c in ("free_us", "computing_us", WAIT))
    own_share, peer_share = free[0] / late.step_us, free[1] / late.step_us
    return (
        Evidence(fact=f"free time of rank {late.rank_id} (peers: {free[1] / 1e3:,.1f} ms)", value=free[0] / 1e3,
                 unit="ms per step", table="step_time", where=where),
        Evidence(fact=f"share of the step that is free (peers: {peer_share:.1%})", value=own_share, unit="share",
                 table="step_time", where=where),
        Evidence(fact=f"communication of rank {late.rank_id} that is not hidden, the shortest of {late.ranks} ranks",
                 value=wait[0] / 1e3, unit="ms per step", table="step_time", where=where),
        Evidence(fact="communication of the others that is not hidden", value=wait[1] / 1e3, unit="ms per step",
                 table="step_time", where=f"median of {late.ranks - 1} ranks"),
        Evidence(fact="wait of the others for it", value=late.missing_us / 1e3, unit="ms per step", table="step_time"),
        Evidence(fact=f"computing of rank {late.rank_id} (peers: {computing[1] / 1e3:,.1f} ms)",
                 value=computing[0] / 1e3, unit="ms per step", table="step_time", where=where),
        Evidence(fact="spread of the computing times over ranks", value=late.computing_spread_share, unit="share",
                 table="step_time"),
    )  # fmt: skip


def _ruled_out(late: LateRank) -> tuple[RuledOut, ...]:
    ruled = [
        RuledOut(
            cause="slow_link", because="the long communications are waits: they are as long as the late rank is late"
        )
    ]
    if late.computing_spread_share <= EVEN_COMPUTING:
        because = f"computing times differ by {late.computing_spread_share:.1%} only"
        ruled.append(RuledOut(cause="compute_imbalance", because=because))
    return tuple(ruled)


def _without_operators(step_time: pd.DataFrame, kernels: pd.DataFrame | None) -> list[Finding]:
    """With operators the rules on devices say more."""
    return find_rank_that_others_wait_for(step_time) if kernels is None else []


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("slow_rank",),
        needs=("step_time",),
        uses=("kernels",),
        find=lambda t: _without_operators(t["step_time"], t.get("kernels")),
    ),
)
