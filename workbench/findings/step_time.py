"""Rules on the time of recorded steps: waiting for data, stalls, saving, evaluating."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.data_queues import device_queue_was_filled
from workbench.analyses.step_time import (
    WARMUP_STEPS,
    job_outliers,
    rank_step_times,
    step_outliers,
    step_scatter,
    step_time_distribution,
    time_shares,
    timed_steps,
)
from workbench.findings.finding import Culprit, Evidence, Finding, Severity, Steps
from workbench.findings.rule import Rule

WAIT_SHARE_WARNING = 0.10
WAIT_SHARE_CRITICAL = 0.30
STALL_SHARE_WARNING = 0.01  # one 200 ms stall in 100 steps of 100 ms costs 2 %
HICCUP_US = 100_000.0  # excess of a step that the host's other processes can cause at any time
UNSTEADY_SHARE = 0.10  # scatter of ordinary steps, over the typical one: others use the same cores or network
UNSTEADY_LOST_US = 10e6  # lost to stalls without a reason, until which such steps raise no alarm
SAVING_SHARE_WARNING = 0.05
SAVING_SHARE_CRITICAL = 0.20
EVALUATION_SHARE_WARNING = 0.06  # the budget of 5 %, and a fifth of it for what a controller cannot foresee
EVALUATIONS_LEAST = 3  # the first evaluation compiles its graph: fewer do not show what evaluating costs
LISTED_STEPS = 20
FOUND_ELSEWHERE = ("checkpoint", "eval", "compile", "profile")  # have rules of their own, or are our own doing


def find_data_starved(training_steps: pd.DataFrame, log_messages: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if the typical step of the typical rank waits for its batch. A single such rank is a slow rank.

    Where the log shows that the queue in front of the device was not empty, the data time passed beside the device's
    work, as in sink mode, and nothing waited.
    """
    if log_messages is not None and device_queue_was_filled(log_messages):
        return []
    ranks = rank_step_times(training_steps)
    ranks = ranks[ranks["step_us"] > 0].assign(share=lambda r: r["data_wait_us"] / r["step_us"]).sort_values("share")
    if ranks.empty:
        return []
    typical = ranks.iloc[(len(ranks) - 1) // 2]
    share, wait_us = float(typical["share"]), float(typical["data_wait_us"])
    if share < WAIT_SHARE_WARNING:
        return []
    severity: Severity = "critical" if share >= WAIT_SHARE_CRITICAL else "warning"
    above = int((ranks["share"] >= WAIT_SHARE_WARNING).sum())
    return [
        Finding(
            cause="data_starved",
            playbook="T6",
            severity=severity,
            confidence="high",
            title=f"The typical step waits {wait_us / 1e3:.1f} ms of {typical['step_us'] / 1e3:.1f} ms ({share:.0%}) "
            "for its batch.",
            fix="Find the slowest operator of the data pipeline (explore/data), then raise num_parallel_workers, "
            "convert to MindRecord, or move work out of Python.",
            source="median wait over steady steps of the median rank; threshold ours",
            saves_us_per_step=wait_us,
            evidence=(
                Evidence(fact="data-wait share of the typical step", value=share, unit="share", table="training_steps"),
                Evidence(fact=f"ranks above the threshold, of {len(ranks)}", value=above, unit="ranks"),
            ),
        )
    ]


def find_stall_steps(training_steps: pd.DataFrame, events: pd.DataFrame | None = None) -> list[Finding]:
    """One finding on single steps that took far longer than their neighbours, saving and evaluating apart.

    Stalls without a reason are told, but raise no alarm, where they are as short as those that other processes of the
    host cause, or where all steps scatter, and the sum is small.
    """
    stalls = job_outliers(step_outliers(training_steps, events))
    stalls = stalls[~stalls["cause"].isin(FOUND_ELSEWHERE)]
    if stalls.empty:
        return []
    wall_us, steps = _job_wall(training_steps)
    distribution = step_time_distribution(training_steps)
    return [
        _stalls(
            stalls,
            lost_share=float(stalls["excess_us"].sum()) / wall_us,
            steps=steps,
            median_us=float(distribution["median_us"].median()),
            mean_us=float(distribution["mean_us"].median()),
            scatter_share=step_scatter(training_steps),
        )
    ]


def _is_usual(stalls: pd.DataFrame, scatter_share: float) -> bool:
    """Whether stalls are what any shared host has: no reason, a small sum, and short or among unsteady steps."""
    lost_us = stalls["excess_us"].sum()
    if lost_us >= UNSTEADY_LOST_US or stalls.groupby("cause")["excess_us"].sum().idxmax() != "unknown":
        return False
    return bool((stalls["excess_us"] < HICCUP_US).all() or scatter_share >= UNSTEADY_SHARE)


def _stalls(
    stalls: pd.DataFrame, *, lost_share: float, steps: int, median_us: float, mean_us: float, scatter_share: float
) -> Finding:
    lost_us = float(stalls["excess_us"].sum())
    by_cause = stalls.groupby("cause")["excess_us"].sum().sort_values(ascending=False)
    worst = stalls.loc[stalls["excess_us"].idxmax()]
    ranks = stalls["rank_id"].unique()
    return Finding(
        cause="stall_steps",
        sub_cause=str(by_cause.index[0]),
        playbook="T7",
        severity="info" if lost_share < STALL_SHARE_WARNING or _is_usual(stalls, scatter_share) else "warning",
        confidence="high" if by_cause.index[0] != "unknown" else "medium",
        title=f"{len(stalls)} step(s) took far longer than their neighbours and cost {lost_us / 1e6:.2f} s "
        f"({lost_share:.1%}); the worst is step {worst['step']:.0f} with {worst['wall_us'] / 1e3:,.0f} ms instead of "
        f"{worst['typical_us'] / 1e3:,.0f} ms.",
        fix="Profile these steps (Recorder(profile_steps=...)) and look at what else ran on the host then; "
        "with the cause data_wait, look at the data pipeline.",
        source="running median and MAD, 8 robust deviations (workbench.analyses.step_time)",
        culprit=Culprit(rank=int(ranks[0]) if len(ranks) == 1 else None),
        steps=_listed(stalls["step"]),
        saves_us_per_step=lost_us / steps,
        evidence=(
            Evidence(fact="time lost", value=lost_us / 1e6, unit="s", table="training_steps"),
            *(Evidence(fact=f"of it by {c}", value=float(us) / 1e6, unit="s") for c, us in by_cause.items()),
            Evidence(fact="median step", value=median_us, unit="us"),
            Evidence(fact="mean step", value=mean_us, unit="us"),
            Evidence(fact="scatter of ordinary steps", value=scatter_share, unit="share of the typical step"),
        ),
    )


def find_recompile(training_steps: pd.DataFrame, events: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if graphs are compiled after the first steps of the training or of its resumptions."""
    timed = timed_steps(training_steps)
    starts = set() if events is None else set(events.loc[events["kind"] == "start", "step"].dropna())
    late = (timed.groupby("rank_id").cumcount() >= WARMUP_STEPS) & ~timed["step"].isin(starts)
    again = timed[timed["compiled"] & late & timed["step_us"].notna()]
    if again.empty:
        return []
    typical_us = float(timed.loc[timed["excluded"] == "", "run_us"].median())
    worst = again[again["rank_id"] == again.groupby("rank_id").size().idxmax()]
    lost_us = float((worst["run_us"] - typical_us).clip(lower=0).sum())
    wall_us, steps = _job_wall(training_steps)
    return [
        Finding(
            cause="recompile",
            playbook="T8",
            severity="warning" if lost_us >= STALL_SHARE_WARNING * wall_us else "info",
            confidence="high",
            title=f"Graphs were compiled again at {len(worst)} step(s), which cost {lost_us / 1e6:.2f} s "
            f"({lost_us / wall_us:.1%}).",
            fix="Pad or bucket batches to few shapes, drop the ragged last batch, or declare dynamic dimensions.",
            source="compile events of the Recorder; threshold ours",
            culprit=Culprit(rank=int(worst["rank_id"].iloc[0])),
            steps=_listed(worst["step"]),
            saves_us_per_step=lost_us / steps,
            evidence=(
                Evidence(fact="steps that compiled after the warm-up", value=len(worst), table="training_steps"),
                Evidence(fact="time lost", value=lost_us / 1e6, unit="s", table="training_steps"),
            ),
        )
    ]


def find_checkpoint_stall(training_steps: pd.DataFrame, events: pd.DataFrame) -> list[Finding]:
    """One finding if training stands still for saving checkpoints."""
    share, total_us, rank_id = _largest_share(training_steps, events, "checkpoint")
    if not share >= SAVING_SHARE_WARNING:
        return []
    steps = _job_wall(training_steps)[1]
    saves = events[(events["kind"] == "checkpoint") & (events["rank_id"] == rank_id)]
    severity: Severity = "critical" if share >= SAVING_SHARE_CRITICAL else "warning"
    return [
        Finding(
            cause="checkpoint_stall",
            playbook="E7",
            severity=severity,
            confidence="high",
            title=f"Saving {len(saves)} checkpoints stops training for {total_us / 1e6:.1f} s ({share:.0%}).",
            fix="Save asynchronously (CheckpointConfig(async_save=True)) and sharded, save less often, or leave the "
            "optimizer state out of most checkpoints.",
            source="budget of 5 % of the wall time, ours",
            culprit=Culprit(rank=rank_id),
            saves_us_per_step=total_us / steps,
            evidence=(
                Evidence(fact="saving share of wall time", value=share, unit="share", table="events"),
                Evidence(
                    fact="median save", value=float(saves["duration_us"].median()) / 1e6, unit="s", table="events"
                ),
                Evidence(fact="saves", value=len(saves), table="events"),
            ),
        )
    ]


def find_evaluation_interference(training_steps: pd.DataFrame, events: pd.DataFrame) -> list[Finding]:
    """One finding if evaluation inside the training process takes more than its budget."""
    share, total_us, rank_id = _largest_share(training_steps, events, "eval")
    times = events[(events["kind"] == "eval") & (events["rank_id"] == rank_id)]
    if not share >= EVALUATION_SHARE_WARNING or len(times) < EVALUATIONS_LEAST:
        return []
    steps = _job_wall(training_steps)[1]
    return [
        Finding(
            cause="evaluation_interference",
            playbook="T2",
            severity="warning",
            confidence="high",
            title=f"{len(times)} evaluations inside the training take {total_us / 1e6:.1f} s, {share:.0%} of the time.",
            fix="Evaluate fewer samples or less often (InlineEval keeps to a budget), and leave full evaluations "
            "to `workbench watch`, a process of its own.",
            source="budget of 5 % of the wall time, ours",
            culprit=Culprit(rank=rank_id),
            saves_us_per_step=total_us / steps,
            evidence=(
                Evidence(fact="evaluation share of wall time", value=share, unit="share", table="events"),
                Evidence(fact="median evaluation", value=float(times["duration_us"].median()) / 1e6, unit="s"),
            ),
        )
    ]


def _listed(steps: pd.Series) -> Steps:
    return Steps(first=int(steps.min()), last=int(steps.max()), list=tuple(int(s) for s in steps[:LISTED_STEPS]))


def _job_wall(training_steps: pd.DataFrame) -> tuple[float, int]:
    """Wall time of the slowest rank's recorded steps in microseconds, and how many they are."""
    timed = timed_steps(training_steps)
    timed = timed[timed["excluded"] != "no time"]
    return float(timed.groupby("rank_id")["wall_us"].sum().max()), int(timed.groupby("rank_id").size().max())


def _largest_share(training_steps: pd.DataFrame, events: pd.DataFrame, part: str) -> tuple[float, float, int]:
    shares = time_shares(training_steps, events)
    shares = shares[(shares["part"] == part) & shares["share"].notna()]
    if shares.empty:
        return 0.0, 0.0, 0
    worst = shares.loc[shares["share"].idxmax()]
    return float(worst["share"]), float(worst["total_us"]), int(worst["rank_id"])


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("data_starved",),
        needs=("training_steps",),
        uses=("log_messages",),
        find=lambda t: find_data_starved(t["training_steps"], t.get("log_messages")),
    ),
    Rule(
        causes=("stall_steps",),
        needs=("training_steps",),
        uses=("events",),
        find=lambda t: find_stall_steps(t["training_steps"], t.get("events")),
    ),
    Rule(
        causes=("recompile",),
        needs=("training_steps",),
        uses=("events",),
        find=lambda t: find_recompile(t["training_steps"], t.get("events")),
    ),
    Rule(
        causes=("checkpoint_stall",),
        needs=("training_steps", "events"),
        find=lambda t: find_checkpoint_stall(t["training_steps"], t["events"]),
    ),
    Rule(
        causes=("evaluation_interference",),
        needs=("training_steps", "events"),
        find=lambda t: find_evaluation_interference(t["training_steps"], t["events"]),
    ),
)
