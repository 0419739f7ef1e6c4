"""Losses, gradients and rates -> a rate too high, no clipping, a bad batch, a lost resume, a loss scaled wrongly."""

from __future__ import annotations

import math

import pandas as pd

from workbench.analyses.instability import (
    NORM_JUMP,
    SHORT_WARMUP,
    Divergence,
    ParameterGrowth,
    clips_gradients,
    counts_near,
    divergence,
    loss_episodes,
    loss_factor,
    parameter_growth,
    restarts,
)
from workbench.analyses.training import job_steps, level_at
from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule

SHORT_STEPS = 3  # an odd batch, or two, with what the optimizer makes of them
RATIO_WARNING = 1.5
NORM_GROWS = 1.5
FACTOR_ERROR = 0.12  # the first loss of a fresh model lies within a tenth of guessing
JUMP_SHARE = 0.05
LISTED_STEPS = 20
NATS = "nats per token"
CLIP_FIRST = "batches may be odd, but clipped they move the loss for a step or two: clip first, then look at them"


def find_lr_too_high(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding if the loss turns upwards for good, rises above its first value at once, or the parameters outgrow.

    The rate has to be near its peak. Where the gradient norm is recorded and does not grow, the data may have changed:
    nothing is said. A loss that finds its way all the same is no proof of a good rate: parameters that outgrow their
    first values within some steps tell, too.
    """
    job = job_steps(training_steps)
    found, outgrown = divergence(job), parameter_growth(job)
    if found is not None and (found.rate >= 0.1 * found.peak_rate or found.at_start):
        grows = found.norm_after > NORM_GROWS * found.norm_before
        if found.at_start or grows or not math.isfinite(found.norm_after):
            return [_too_high(found, grows)]
    return [_outgrown(outgrown)] if outgrown else []


def _too_high(found: Divergence, grows: bool) -> Finding:
    short = found.at_start and found.warmup_steps < SHORT_WARMUP
    confidence: Confidence = "high" if grows or short else "medium"
    what = "jumps up" if short else "rises above its first value" if found.at_start else "turns upwards for good"
    fix = "Lower the peak learning rate, by a factor of 3 to 10"
    if short:
        fix = "Warm the learning rate up over some hundred steps, or start lower"
    again = "start again" if found.at_start else f"restart from a checkpoint before step {found.step}"
    return Finding(
        cause="lr_too_high",
        sub_cause="warmup_too_short" if short else None,
        playbook="T1",
        severity="critical",
        confidence=confidence,
        title=f"From step {found.step} on the loss {what}: {found.best:.3g} to {found.after:.3g}, at a learning "
        f"rate of up to {found.peak_rate:.3g} after {found.warmup_steps} steps of warm-up.",
        fix=f"{fix}; {again}, and check the gradient norm, too.",
        source="level of the loss against its best, with the gradient norm; thresholds ours",
        steps=Steps(first=found.step),
        evidence=(
            Evidence(fact="level of the loss before", value=found.best, unit=NATS, table="training_steps"),
            Evidence(fact="level of the loss after", value=found.after, unit=NATS, table="training_steps"),
            Evidence(fact="peak learning rate", value=found.peak_rate, table="training_steps"),
            Evidence(fact="steps of warm-up", value=found.warmup_steps, table="training_steps"),
            Evidence(fact="gradient norm before", value=found.norm_before, unit="L2 norm", table="training_steps"),
            Evidence(fact="gradient norm after", value=found.norm_after, unit="L2 norm", table="training_steps"),
        ),
    )


def _outgrown(found: ParameterGrowth) -> Finding:
    short = found.warmup_steps < SHORT_WARMUP
    ratio = found.norm_after / found.norm_before
    fix = "Warm the learning rate up over some hundred steps" if short else "Lower the peak learning rate by 3 to 10"
    return Finding(
        cause="lr_too_high",
        sub_cause="warmup_too_short" if short else "parameters_outgrow",
        playbook="T1",
        severity="warning",
        confidence="medium",
        title=f"From step {found.first_step} to {found.last_step} the norm of the parameters grows {ratio:.1f} times, "
        f"{found.norm_before:.3g} to {found.norm_after:.3g}, at a learning rate of up to {found.peak_rate:.3g}: the "
        "first values are overwritten, not trained.",
        fix=f"{fix}, or start lower; compare the loss of a short run at a third of the rate. Weight decay holds the "
        "norm down, but does not mend a rate that is too high.",
        source="growth of the parameter norm after the start; thresholds ours",
        steps=Steps(first=found.first_step, last=found.last_step),
        evidence=(
            Evidence(fact="norm of the parameters before", value=found.norm_before, unit="L2 norm",
                     table="training_steps", where=f"step {found.first_step}"),
            Evidence(fact="norm of the parameters after", value=found.norm_after, unit="L2 norm",
                     table="training_steps", where=f"step {found.last_step}"),
            Evidence(fact="peak learning rate", value=found.peak_rate, table="training_steps"),
            Evidence(fact="steps of warm-up", value=found.warmup_steps, table="training_steps"),
        ),
    )  # fmt: skip


def find_odd_batches(training_steps: pd.DataFrame, settings: pd.DataFrame | None = None) -> list[Finding]:
    """One finding on short jumps of the loss: batches that are odd, or gradients that reach the parameters unclipped.

    The gradient norm jumps with a bad batch. With clipping the loss is back at once; where clipping is known to be off,
    that is what lets the jump through.

    Args:
        training_steps: table `training_steps`.
        settings: table `settings`, or None: whether gradients are clipped.
    """
    job = job_steps(training_steps)
    found = loss_episodes(job)
    jumps = found[found["norm_ratio"] >= NORM_JUMP]
    clips = clips_gradients(settings)
    if len(jumps) and clips is False:
        return [_unclipped(jumps)]
    short = found[(found["steps"] <= SHORT_STEPS) & ~found["damaged"].astype(bool) & (found["ratio"] >= RATIO_WARNING)]
    if short.empty or len(short) < len(found):
        return []
    return [_bad_batch(short, clips)]


def _unclipped(jumps: pd.DataFrame) -> Finding:
    worst = jumps.loc[jumps["norm_ratio"].idxmax()]
    damaged = int(jumps["damaged"].sum())
    severity: Severity = "critical" if damaged else "warning"
    return Finding(
        cause="no_gradient_clipping",
        playbook="T1",
        severity=severity,
        confidence="high" if damaged else "medium",
        title=f"Gradient norms of up to {worst['norm_ratio']:.0f} times the usual reach the parameters unclipped, at "
        f"{len(jumps)} place(s); the loss jumps from {worst['typical']:.3g} to {worst['peak']:.3g}"
        + (f" and does not come back at once at {damaged} of them." if damaged else "."),
        fix="Clip the global gradient norm (1.0 is usual; about twice the typical norm keeps good steps whole), and "
        "look at the batches of these steps.",
        source="jumps of loss and gradient norm together, clipping off in the settings; thresholds ours",
        steps=_steps(jumps),
        evidence=(
            *_episode_facts(jumps, worst),
            Evidence(fact="clipping of gradients", value="off", table="settings"),
            Evidence(fact="jumps after which the loss stays higher", value=damaged, table="training_steps"),
        ),
        rules_out=(RuledOut(cause="bad_batch", because=CLIP_FIRST),),
    )


def _bad_batch(short: pd.DataFrame, clips: bool | None) -> Finding:
    worst = short.loc[short["ratio"].idxmax()]
    norm = bool((short["norm_ratio"] >= NORM_JUMP / 2).any())
    facts = list(_episode_facts(short, worst))
    if clips is None:
        facts.append(Evidence(fact="not known: whether gradients are clipped; Recorder(config=...) would tell"))
    return Finding(
        cause="bad_batch",
        playbook="T1",
        severity="warning",
        confidence="high" if norm else "medium",
        title=f"The loss jumps from {worst['typical']:.3g} to {worst['peak']:.3g} at step {worst['peak_step']:.0f} and "
        f"is back after {worst['steps']:.0f} step(s): {len(short)} place(s) with odd batches.",
        fix=f"Look at the batch of step {worst['peak_step']:.0f} (encoding, length, labels), take such samples out, "
        "and skip steps whose gradient norm is far beyond the usual.",
        source="Hampel filter, loss back at once after the jump; thresholds ours",
        steps=_steps(short),
        evidence=tuple(facts),
        rules_out=(RuledOut(cause="lr_too_high", because="the loss is back at its level at once"),),
    )


def _episode_facts(episodes: pd.DataFrame, worst: pd.Series) -> tuple[Evidence, ...]:
    where = f"step {worst['peak_step']:.0f}"
    facts = [
        Evidence(fact="places", value=len(episodes), table="training_steps"),
        Evidence(fact="loss at the peak", value=float(worst["peak"]), unit=NATS, table="training_steps", where=where),
        Evidence(fact="loss expected there", value=float(worst["typical"]), unit=NATS, table="training_steps"),
        Evidence(fact="loss after it", value=float(worst["after"]), unit=NATS, table="training_steps"),
    ]
    if math.isfinite(float(worst["norm_ratio"])):
        facts.append(Evidence(fact="gradient norm over the usual", value=float(worst["norm_ratio"]), unit="times",
                              table="training_steps", where=where))  # fmt: skip
    return tuple(facts)


def find_resume_state_lost(training_steps: pd.DataFrame, events: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if the schedule begins anew in the middle of the training.

    Args:
        training_steps: table `training_steps`.
        events: table `events`, or None: recorded starts.
    """
    job = job_steps(training_steps)
    again = [(step, started) for step, rate_restarts, started in restarts(job, events) if rate_restarts]
    if not again:
        return []
    step, started = again[0]
    before, after = (level_at(job, "loss", s, window=10) for s in (step - 1, step + 9))
    rate, first = (level_at(job, "learning_rate", s, window=1) for s in (step - 1, step))
    worse = after > (1 + JUMP_SHARE) * before
    return [
        Finding(
            cause="resume_state_lost",
            sub_cause="schedule_restarted",
            playbook="T1",
            severity="critical" if worse else "warning",
            confidence="high" if started else "medium",
            title=f"At step {step} the learning rate begins anew: {rate:.3g} to {first:.3g}, and goes through its "
            "warm-up again" + (f"; the loss rises from {before:.3g} to {after:.3g}." if worse else "."),
            fix="Restore optimizer state, schedule step and data position with the parameters when resuming (load the "
            f"whole checkpoint, set the step of the schedule); go back to the checkpoint before step {step}.",
            source="the rate falls below half and goes through its first values again; thresholds ours",
            steps=Steps(first=step, last=int(job["step"].iloc[-1])),
            evidence=(
                Evidence(fact="learning rate before", value=rate, table="training_steps", where=f"step {step - 1}"),
                Evidence(fact="learning rate after", value=first, table="training_steps", where=f"step {step}"),
                Evidence(fact="loss before", value=before, unit=NATS, table="training_steps"),
                Evidence(fact="loss after", value=after, unit=NATS, table="training_steps", where="next ten steps"),
                Evidence(fact="a start is recorded there", value="yes" if started else "no", table="events"),
            ),
        )
    ]


def find_loss_normalisation(training_steps: pd.DataFrame, settings: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if the first loss is the loss of guessing times the number of micro-batches (or devices).

    Args:
        training_steps: table `training_steps`, from the first step on.
        settings: table `settings`: vocabulary, accumulation, devices.
    """
    job = job_steps(training_steps)
    known = loss_factor(job, settings)
    if known is None or int(job["step"].iloc[0]) > 1:
        return []
    first, guessing = known
    factor = first / guessing
    count = counts_near(factor, settings, FACTOR_ERROR)
    if count is None or factor < 2 * (1 - FACTOR_ERROR):
        return []
    name, number = count
    return [
        Finding(
            cause="loss_normalisation",
            playbook="T1",
            severity="warning",
            confidence="high",
            title=f"The first loss is {first:.3g}, {factor:.2g} times the {guessing:.3g} of guessing, and {name} is "
            f"{number}: the loss is summed where it has to be averaged.",
            fix=f"Divide the loss (or the gradients) by {name} = {number}; the learning rate acts {number} times too "
            "strongly, and clipping and logged losses are off by the same factor.",
            source="a fresh model guesses: its loss is ln(vocabulary); thresholds ours",
            steps=Steps(first=int(job["step"].iloc[0]), last=int(job["step"].iloc[-1])),
            evidence=(
                Evidence(fact="first loss", value=first, unit=NATS, table="training_steps"),
                Evidence(fact="loss of guessing, ln(vocabulary)", value=guessing, unit=NATS, table="settings"),
                Evidence(fact="first loss over guessing", value=factor, unit="times"),
                Evidence(fact=name, value=number, table="settings"),
            ),
        )
    ]


def _steps(episodes: pd.DataFrame) -> Steps:
    first = episodes["first_step"].astype(int)
    return Steps(
        first=int(first.min()), last=int(episodes["last_step"].max()), list=tuple(int(s) for s in first[:LISTED_STEPS])
    )


RULES: tuple[Rule, ...] = (
    Rule(causes=("lr_too_high",), needs=("training_steps",), find=lambda t: find_lr_too_high(t["training_steps"])),
    Rule(
        causes=("no_gradient_clipping", "bad_batch"),
        needs=("training_steps",),
        uses=("settings",),
        find=lambda t: find_odd_batches(t["training_steps"], t.get("settings")),
    ),
    Rule(
        causes=("resume_state_lost",),
        needs=("training_steps",),
        uses=("events",),
        find=lambda t: find_resume_state_lost(t["training_steps"], t.get("events")),
    ),
    Rule(
        causes=("loss_normalisation",),
        needs=("training_steps", "settings"),
        find=lambda t: find_loss_normalisation(t["training_steps"], t["settings"]),
    ),
)
