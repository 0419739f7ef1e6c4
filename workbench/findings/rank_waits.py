"""Step times of all ranks, recorded or profiled, without operators -> the rank that the others wait for."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.rank_waits import WAIT, LateRank, late_rank
from workbench.analyses.step_time import rank_step_times
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut
from workbench.findings.kernels import severity_of
from workbench.findings.rule import Rule

LATE_SHARE_WARNING = 0.10
LATE_STEPS_LEAST = 10
LATE_PARTS = {"data_wait_us": "waits for its batch", "callbacks_us": "spends in callbacks", "step_us": "takes"}
LATE_FIXES = {
    "data_wait_us": "Compare that rank's data files, disk and host load with the others'.",
    "callbacks_us": "Look at what the callbacks of that rank do at every step (logging, files, copies to the host): do "
    "it rarely, or in a thread.",
    "step_us": "Profile that rank and a fast one over the same steps and compare operators, clock and host load.",
}
SIGMAS = 6.0
SHARE_LEAST = 0.02  # of the step
WAITED_LEAST = 0.7  # of the excess: what the others wait longer for it
EVEN_COMPUTING = 0.03
LATE_RANKS_MOST = 0.25  # of the ranks: more that are as late are a stage or a host, and no rank to blame
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
    if len(late.late_ranks) > max(1, LATE_RANKS_MOST * late.ranks):
        return [_late_group(late)]
    return [_finding(late)]


def find_slow_rank(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding on the rank that the others wait for, where the recorded steps tell.

    Ranks of a synchronous job take equally long from step to step, and those that wait in a collective have the longer
    step time: they are the victims. The late rank is the one with more time outside its computing: it waits for its
    batch, or its callbacks take long. Where neither differs, the step time decides only between ranks that are not
    synchronised: the time from step to step differs, too. Else no rank is named.
    """
    ranks = rank_step_times(training_steps, common_steps=True)
    ranks = ranks[ranks["steps"] >= LATE_STEPS_LEAST]
    if len(ranks) < 2:
        return []
    for column in LATE_PARTS:
        worst, late_us = _latest(ranks, column)
        if late_us >= LATE_SHARE_WARNING * float(worst["wall_us"]):
            return [_late_rank(worst, late_us, column) if _is_its_own(ranks, worst, column) else _unclear(late_us)]
    return []


def _is_its_own(ranks: pd.DataFrame, worst: pd.Series, column: str) -> bool:
    """Whether the rank's longer time is its own work, and not a wait for another rank."""
    if column != "step_us":
        return True
    slowest, late_us = _latest(ranks.dropna(subset=["elapsed_us"]), "elapsed_us")
    return bool(slowest["rank_id"] == worst["rank_id"] and late_us >= LATE_SHARE_WARNING * worst["wall_us"])


def _unclear(late_us: float) -> Finding:
    return Finding(
        cause="slow_rank",
        playbook="T4",
        severity="info",
        confidence="low",
        title=f"The steps of the ranks differ by {late_us / 1e3:.1f} ms, and nothing recorded tells which rank is late "
        "and which one waits for it.",
        fix="Profile two ranks over the same steps: the late one waits least in its collectives.",
        source="medians over steady steps; ranks of a synchronous job end their steps together",
        evidence=(Evidence(fact="longest step above its peers'", value=late_us, unit="us", table="training_steps"),),
    )


def _latest(ranks: pd.DataFrame, column: str) -> tuple[pd.Series, float]:
    """The rank with most of a time, and how far it is above the median of the others."""
    if ranks.empty:
        return pd.Series({"rank_id": -1}), 0.0
    worst = ranks.loc[ranks[column].idxmax()]
    return worst, float(worst[column] - ranks.loc[ranks["rank_id"] != worst["rank_id"], column].median())


def _late_rank(worst: pd.Series, late_us: float, column: str) -> Finding:
    rank_id = int(worst["rank_id"])
    data = column == "data_wait_us"
    return Finding(
        cause="data_starved" if data else "slow_rank",
        sub_cause={"data_wait_us": "one_rank", "callbacks_us": "callbacks"}.get(column),
        playbook="T6" if data else "T4",
        severity="warning",
        confidence="medium" if column == "step_us" else "high",
        title=f"Rank {rank_id} {LATE_PARTS[column]} {late_us / 1e3:.1f} ms longer per step than its peers; the "
        "others wait.",
        fix=LATE_FIXES[column],
        source="medians over steady steps; threshold ours",
        culprit=Culprit(rank=rank_id),
        saves_us_per_step=late_us,
        evidence=(
            Evidence(
                fact=f"median {column}", value=float(worst[column]), unit="us", table="training_steps",
                where=f"rank {rank_id}",
            ),
            Evidence(fact="above the median of its peers", value=late_us, unit="us"),
            Evidence(fact="median step without waiting for data", value=float(worst["run_us"]), unit="us",
                     table="training_steps", where=f"rank {rank_id}"),
        ),
    )  # fmt: skip


def _late_group(late: LateRank) -> Finding:
    names = ", ".join(map(str, late.late_ranks))
    return Finding(
        cause="slow_rank",
        sub_cause="group_of_ranks",
        playbook="T4",
        severity="info",
        confidence="low",
        title=f"Ranks {names} take {late.excess_us / 1e3:,.0f} ms longer per step than the rest, which waits for them: "
        "no single rank is slow.",
        fix="See what these ranks share: one pipeline stage (balance the layers and the head), one host, or a larger "
        "part of the batch.",
        source=SOURCE,
        evidence=_facts(late),
    )


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
        f"least in collectives, and the other {late.ranks - len(late.late_ranks)} ranks wait for it.",
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
        causes=("slow_rank", "data_starved"),
        needs=("training_steps",),
        find=lambda t: find_slow_rank(t["training_steps"]),
    ),
    Rule(
        causes=("slow_rank",),
        needs=("step_time",),
        uses=("kernels",),
        find=lambda t: _without_operators(t["step_time"], t.get("kernels")),
    ),
)
