"""Pauses of Python's garbage collector beside step times -> steps that stand still because a rank collects."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.step_time import job_outliers, step_outliers, timed_steps
from workbench.findings.finding import Culprit, Evidence, Finding, Steps
from workbench.findings.rule import Rule

LOST_SHARE_WARNING = 0.01  # of the wall time, as for other stalls
LISTED_STEPS = 20


def find_gc_jitter(training_steps: pd.DataFrame, events: pd.DataFrame) -> list[Finding]:
    """One finding if steps take far longer than their neighbours because the garbage collector ran in them.

    Args:
        training_steps: table `training_steps`.
        events: table `events`; nothing is said without rows of kind `gc`.
    """
    pauses = events[events["kind"] == "gc"]
    if pauses.empty:
        return []
    outliers = job_outliers(step_outliers(training_steps, events))
    stalls = outliers[outliers["cause"] == "gc"]
    if stalls.empty:
        return []
    timed = timed_steps(training_steps)
    timed = timed[timed["excluded"] != "no time"]
    lost_us = float(stalls["cause_us"].clip(upper=stalls["excess_us"]).sum())
    share = lost_us / float(timed.groupby("rank_id")["wall_us"].sum().max())
    ranks = sorted({int(r) for r in stalls["rank_id"]})
    return [
        Finding(
            cause="host_gc_jitter",
            playbook="T7",
            severity="warning" if share >= LOST_SHARE_WARNING else "info",
            confidence="high",
            title=f"Garbage collection makes {len(stalls)} step(s) longer, by {lost_us / 1e6:.2f} s ({share:.1%}) in "
            f"all; the longest pause takes {pauses['duration_us'].max() / 1e3:,.0f} ms.",
            fix="Call gc.freeze() after the first step and gc.disable(), and collect every some hundred steps, at the "
            "same step on all ranks.",
            source="pauses that the log prints, in steps beyond 8 robust deviations; threshold ours",
            culprit=Culprit(rank=ranks[0] if len(ranks) == 1 else None),
            steps=Steps(
                first=int(stalls["step"].min()),
                last=int(stalls["step"].max()),
                list=tuple(int(s) for s in stalls["step"][:LISTED_STEPS]),
            ),
            saves_us_per_step=lost_us / int(timed.groupby("rank_id").size().max()),
            evidence=(
                Evidence(fact="steps that collecting makes longer", value=len(stalls), table="training_steps"),
                Evidence(fact="time lost", value=lost_us / 1e6, unit="s", table="events"),
                Evidence(fact="pauses recorded", value=len(pauses), table="events"),
                Evidence(fact="ranks whose collector stops the job", value=len(ranks), unit="ranks", table="events"),
            ),
        )
    ]


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("host_gc_jitter",),
        needs=("training_steps", "events"),
        find=lambda t: find_gc_jitter(t["training_steps"], t["events"]),
    ),
)
