"""Pauses of Python's garbage collector beside step times -> steps that stand still because a rank collects."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from workbench.analyses.log_gaps import covered_us, log_gaps
from workbench.analyses.step_records import steps_told
from workbench.analyses.step_time import job_outliers, step_outliers, timed_steps
from workbench.findings.finding import Culprit, Evidence, Finding, Steps
from workbench.findings.rule import Rule

LOST_SHARE_WARNING = 0.01  # of the wall time, as for other stalls
LISTED_STEPS = 20


class _Stalls(NamedTuple):
    """Steps that collections made longer: rows with rank_id and step, time lost, wall time and number of all steps."""

    rows: pd.DataFrame
    lost_us: float
    wall_us: float
    steps: int


def find_gc_jitter(training_steps: pd.DataFrame, events: pd.DataFrame) -> list[Finding]:
    """One finding if steps take far longer than their neighbours because the garbage collector ran in them.

    Args:
        training_steps: table `training_steps`.
        events: table `events`; nothing is said without rows of kind `gc`.
    """
    pauses = events[events["kind"] == "gc"]
    if pauses.empty:
        return []
    found = _in_steps(training_steps, events)
    if found.rows.empty:
        found = _between_lines(training_steps, events)
    stalls, lost_us = found.rows, found.lost_us
    if stalls.empty:
        return []
    share = lost_us / found.wall_us
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
            saves_us_per_step=lost_us / found.steps,
            evidence=(
                Evidence(fact="steps that collecting makes longer", value=len(stalls), table="training_steps"),
                Evidence(fact="time lost", value=lost_us / 1e6, unit="s", table="events"),
                Evidence(fact="pauses recorded", value=len(pauses), table="events"),
                Evidence(fact="ranks whose collector stops the job", value=len(ranks), unit="ranks", table="events"),
            ),
        )
    ]


def _in_steps(training_steps: pd.DataFrame, events: pd.DataFrame) -> _Stalls:
    """Steps whose own time holds a collection."""
    outliers = job_outliers(step_outliers(training_steps, events))
    rows = outliers[outliers["cause"] == "gc"]
    timed = timed_steps(training_steps)
    timed = timed[timed["excluded"] != "no time"].groupby("rank_id")["wall_us"]
    lost_us = float(rows["cause_us"].clip(upper=rows["excess_us"]).sum())
    return _Stalls(rows, lost_us, float(timed.sum().max()), 0 if rows.empty else int(timed.size().max()))


def _between_lines(training_steps: pd.DataFrame, events: pd.DataFrame) -> _Stalls:
    """Where a log states no step times: pauses between its lines, of which collecting is the most."""
    gaps = log_gaps(events)
    rows = gaps[gaps["kind"] == "gc"]
    lost_us = float(rows.groupby("rank_id")["explained_us"].sum().max()) if len(rows) else 0.0
    return _Stalls(rows, lost_us, covered_us(training_steps), steps_told(training_steps))


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("host_gc_jitter",),
        needs=("training_steps", "events"),
        find=lambda t: find_gc_jitter(t["training_steps"], t["events"]),
    ),
)
