"""Learning rates against the plan -> a schedule that runs out, goes below zero, or runs over its end."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.lr_schedule import Schedule, advance_counter, loss_turn, schedule_of
from workbench.analyses.training import job_steps, spikes
from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule

EARLY_SHARE = 0.95  # of the planned steps: schedules often end a little before the last step
FORECAST_SHARE = 0.75  # a line through the beginning of a cosine ends at 0.82 of it
ZERO_STEPS_LEAST = 3
RISE_SHARE = 0.05  # of the lowest loss: beyond what batches differ by after smoothing
SOURCE = "printed learning rates against the planned steps; thresholds ours"


def find_lr_schedule_error(training_steps: pd.DataFrame, settings: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if the learning rate goes below zero, reaches zero before the plan ends (or will), or climbs again.

    A rate of 0 at the first steps is the beginning of the warm-up, one at the last planned step is the plan.

    Args:
        training_steps: table `training_steps`.
        settings: table `settings`, or None: planned steps, devices, accumulation.
    """
    job = job_steps(training_steps)
    schedule = schedule_of(job, settings)
    if schedule is None:
        return []
    kind = _kind(schedule)
    return [] if kind is None else [_finding(kind, schedule, job, settings)]


def _kind(schedule: Schedule) -> tuple[str, Confidence] | None:
    """What is wrong with the schedule, and how sure that is."""
    planned, end = schedule.planned_steps, schedule.end_step
    if schedule.negative_steps:
        return "below_zero", "high"
    if end is not None and schedule.zero_steps >= ZERO_STEPS_LEAST:
        if planned is not None and end < EARLY_SHARE * planned:
            return "ends_early", "high"
        if planned is None and end < EARLY_SHARE * schedule.last_step:  # the last printed step may be the planned one
            return "ended", "medium"
    if schedule.rises_again:
        return "over_its_end", "medium"
    running = planned is not None and schedule.last_step < schedule.straight_end_step < FORECAST_SHARE * planned
    return ("will_end_early", "medium") if end is None and running else None


def _finding(
    kind: tuple[str, Confidence], schedule: Schedule, job: pd.DataFrame, settings: pd.DataFrame | None
) -> Finding:
    word, confidence = kind
    onset = _onset(word, schedule)
    planned = schedule.planned_steps
    ratio = planned / onset if planned and onset > 0 and word != "over_its_end" else float("nan")
    counter = advance_counter(ratio, settings)
    turn = loss_turn(job)
    rises = turn is not None and turn[0] >= 0.5 * onset and turn[2] > (1 + RISE_SHARE) * turn[1]
    severity: Severity = "critical" if rises or word == "below_zero" else "warning"
    return Finding(
        cause="lr_schedule_error",
        sub_cause=word,
        playbook="T1",
        severity=severity,
        confidence=confidence,
        title=_title(word, onset, schedule, turn if rises else None),
        fix=_fix(word, onset, counter),
        source=SOURCE,
        steps=Steps(first=onset, last=schedule.last_step if word != "will_end_early" else None),
        evidence=(*_rate_facts(schedule, onset), *_plan_facts(schedule, ratio, counter), *_loss_facts(turn, onset)),
        rules_out=_ruled_out(job, onset),
    )


def _onset(word: str, schedule: Schedule) -> int:
    if word == "over_its_end":
        return schedule.low_step
    if word == "will_end_early":
        return round(schedule.straight_end_step)
    return int(schedule.low_step if schedule.end_step is None else schedule.end_step)


def _title(word: str, onset: int, schedule: Schedule, turn: tuple[int, float, float] | None) -> str:
    of = f" of {schedule.planned_steps} planned" if schedule.planned_steps else ""
    what = {
        "below_zero": f"The learning rate crosses zero at step {onset}{of} and is negative from there on",
        "ends_early": f"The learning rate reaches zero at step {onset}{of}: the steps after it train nothing",
        "ended": f"The learning rate is zero from step {onset} on: the steps after it train nothing",
        "over_its_end": f"The learning rate climbs again from step {onset}{of}: the schedule has run over its end",
        "will_end_early": f"The learning rate falls so fast that it will reach zero at step {onset}{of}",
    }[word]
    if turn is None:
        return what + "."
    return f"{what}; the loss turns at step {turn[0]} and rises from {turn[1]:.3g} to {turn[2]:.3g}."


def _fix(word: str, onset: int, counter: tuple[str, int] | None) -> str:
    count = "Count schedule steps once per optimizer update"
    if counter is not None:
        count += f", not {counter[1]} times ({counter[0]})"
    if word == "over_its_end":
        count = "Make the schedule as long as the training"
    if word == "will_end_early":
        return f"{count} before step {onset}, and check the printed rate against the planned curve."
    return (
        f"{count}, clamp the rate at its end value, restart from the last checkpoint before step {onset}, and check "
        "the printed rate against the planned curve."
    )


def _rate_facts(schedule: Schedule, onset: int) -> tuple[Evidence, ...]:
    return (
        Evidence(fact="steps printed with a negative learning rate", value=schedule.negative_steps, unit="steps",
                 table="training_steps"),
        Evidence(fact="step at which the learning rate reaches zero", value=onset, unit="step", table="training_steps"),
        Evidence(fact="lowest learning rate", value=schedule.low, table="training_steps",
                 where=f"step {schedule.low_step}"),
        Evidence(fact="largest learning rate", value=schedule.peak, table="training_steps",
                 where=f"step {schedule.peak_step}"),
    )  # fmt: skip


def _plan_facts(schedule: Schedule, ratio: float, counter: tuple[str, int] | None) -> tuple[Evidence, ...]:
    planned = schedule.planned_steps
    if planned is None:
        return (Evidence(fact="not known: the planned steps; the log or run.json (steps_total) would tell them"),)
    slope = schedule.peak / (planned - schedule.peak_step) if planned > schedule.peak_step else float("nan")
    facts = [Evidence(fact="planned steps", value=planned, unit="steps", table="settings")]
    if np.isfinite(schedule.slope_per_step):
        against = schedule.slope_per_step / slope
        facts.append(Evidence(fact="fall of the rate per step, against the plan's", value=against, unit="times",
                              table="training_steps"))  # fmt: skip
    if np.isfinite(ratio):
        facts.append(Evidence(fact="planned steps per step to zero", value=ratio, unit="times"))
    if counter is not None:
        facts.append(Evidence(fact=f"{counter[0]}, by which the schedule is too fast", value=counter[1],
                              table="settings"))  # fmt: skip
    return tuple(facts)


def _loss_facts(turn: tuple[int, float, float] | None, onset: int) -> tuple[Evidence, ...]:
    if turn is None:
        return ()
    return (
        Evidence(fact="step of the lowest loss", value=turn[0], unit=f"step ({turn[0] - onset:+d} from zero rate)",
                 table="training_steps"),
        Evidence(fact="lowest loss", value=turn[1], unit="nats per token", table="training_steps"),
        Evidence(fact="loss at the end", value=turn[2], unit="nats per token", table="training_steps"),
    )  # fmt: skip


def _ruled_out(job: pd.DataFrame, onset: int) -> tuple[RuledOut, ...]:
    ruled = []
    overflow = job["overflow"].dropna()
    if len(overflow) and not overflow.astype(bool).any():
        ruled.append(RuledOut(cause="fp16_overflow", because=f"no gradient overflowed at {len(overflow)} steps"))
    norms = spikes(job, "gradient_norm")
    if job["gradient_norm"].notna().any() and not (norms["first_step"] < onset).any():
        ruled.append(RuledOut(cause="bad_batch", because="no gradient norm stands out before the rate was gone"))
    times = job.loc[job["step_us"].notna(), "step_us"].iloc[1:]
    if len(times) > 3 and times.quantile(0.9) < 1.1 * times.quantile(0.1):
        ruled.append(RuledOut(cause="hardware", because="the step time is the same throughout"))
    return tuple(ruled)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("lr_schedule_error",),
        needs=("training_steps",),
        uses=("settings",),
        find=lambda t: find_lr_schedule_error(t["training_steps"], t.get("settings")),
    ),
)
