"""A loss that is too low to be true -> the model sees what it has to predict."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyses.label_leak import (
    HELD_OUT_TIMES,
    IMPLAUSIBLE_NATS,
    TEXT_NATS,
    LowLoss,
    collapsed_generation,
    held_out_gap,
    held_out_losses,
    improved_matches,
    low_loss,
)
from workbench.analyses.training import job_steps
from workbench.findings.finding import Confidence, Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Rule

GAP_GROWTH = 3.0  # subsets that are harder than the training data have a ratio above 1, but a steady one
FIX = (
    "Compare attention masks before and after the layer on one batch: future positions must be masked; changing token "
    "t+1 must not change the logits at t (a unit test). Check that labels are shifted once. Run the batch with another "
    "attention backend, and discard the checkpoints written since step {step}."
)


def find_label_leak(training_steps: pd.DataFrame, evals: pd.DataFrame | None = None) -> list[Finding]:
    """One finding if the loss falls below what the data allow, and memorising cannot explain it.

    Memorising needs several epochs, and leaves the held-out loss high. So either the held-out loss is as low, or the
    first epoch is not over. A task that the model solves (held-out matches rise to almost all) is no leak.

    Args:
        training_steps: table `training_steps`.
        evals: table `evals`, or None: held-out losses, scores of generated text.
    """
    job = job_steps(training_steps)
    low = low_loss(job, training_steps)
    if low is None:
        return _only_in_training(job, training_steps, evals)
    held_out = held_out_losses(evals, low.first_step)
    as_low = held_out[held_out["value"] <= max(IMPLAUSIBLE_NATS, HELD_OUT_TIMES * low.level)]
    generated = collapsed_generation(evals)
    if improved_matches(evals) and generated.empty:
        return []
    if as_low.empty and len(held_out):
        return _only_in_training(job, training_steps, evals)
    if as_low.empty and low.epoch != 1:
        return []
    is_text = len(generated) > 0 or low.first_loss >= TEXT_NATS
    sure: Confidence = "high" if len(as_low) and len(generated) else "medium" if len(as_low) and is_text else "low"
    return [_finding(low, as_low, generated, training_steps, sure)]


def _only_in_training(job: pd.DataFrame, training_steps: pd.DataFrame, evals: pd.DataFrame | None) -> list[Finding]:
    """The training loss leaves the held-out loss behind before any sample is seen twice."""
    epochs, gap = training_steps["epoch"].dropna(), held_out_gap(job, evals)
    if gap is None or epochs.empty or epochs.max() > 1 or gap[1] < GAP_GROWTH * gap[0]:
        return []
    first, last, step = gap
    return [
        Finding(
            cause="label_leak",
            sub_cause="only_in_training",
            playbook="T1",
            severity="critical",
            confidence="medium",
            title=f"Within the first epoch the held-out loss grew from {first:.2g} to {last:.2g} times the training "
            "loss: the training batches tell the model what it has to predict.",
            fix="Compare one training batch with one held-out batch: inputs must not hold the targets, labels must be "
            "shifted once, future positions masked; and look for samples that the data repeat.",
            source="no sample is seen twice in the first epoch, so both losses fall together; threshold ours",
            steps=Steps(last=step),
            evidence=(
                Evidence(fact="held-out over training loss at the last evaluation", value=last, unit="times",
                         table="evals", where=f"step {step}"),
                Evidence(fact="held-out over training loss at the first evaluation", value=first, unit="times",
                         table="evals"),
                Evidence(fact="epochs trained", value=int(epochs.max()), table="training_steps"),
            ),
            rules_out=(RuledOut(cause="overfitting", because="no sample has been seen twice"),),
        )
    ]  # fmt: skip


def _finding(
    low: LowLoss, held_out: pd.DataFrame, generated: pd.DataFrame, training_steps: pd.DataFrame, sure: Confidence
) -> Finding:
    early = " within the first epoch" if low.epoch == 1 else ""
    verdict = "check whether the model sees the targets" if sure == "low" else "the model sees the targets"
    also = f", and the held-out loss to {held_out['value'].min():.3g}" if len(held_out) else ""
    return Finding(
        cause="label_leak",
        playbook="T1",
        severity="info" if sure == "low" else "critical",
        confidence=sure,
        title=f"The loss falls to {low.level:.3g} nats per token{early} (below {IMPLAUSIBLE_NATS:g} from step "
        f"{low.first_step} on){also}: {verdict}.",
        fix=FIX.format(step=low.first_step),
        source="entropy of text; held-out against training loss; thresholds ours (workbench.analyses.label_leak)",
        steps=Steps(first=low.first_step, last=low.last_step),
        evidence=(*_loss_facts(low), *_held_out_facts(held_out), *_generation_facts(generated)),
        rules_out=_ruled_out(low, held_out, training_steps),
    )


def _loss_facts(low: LowLoss) -> tuple[Evidence, ...]:
    facts = [
        Evidence(fact="loss since then", value=low.level, unit="nats per token", table="training_steps",
                 where=f"steps {low.first_step} to {low.last_step}"),
        Evidence(fact="lowest plausible loss", value=IMPLAUSIBLE_NATS, unit="nats per token"),
        Evidence(fact="first loss", value=low.first_loss, unit="nats per token", table="training_steps"),
    ]  # fmt: skip
    if low.epoch is not None:
        facts.append(Evidence(fact="epoch in which it fell below", value=low.epoch, table="training_steps"))
    if np.isfinite(low.norm_share):
        facts.append(Evidence(fact="gradient norm at the end, of the first", value=low.norm_share, unit="share",
                              table="training_steps"))  # fmt: skip
    return tuple(facts)


def _held_out_facts(held_out: pd.DataFrame) -> tuple[Evidence, ...]:
    if held_out.empty:
        how = "evaluate held-out samples (Recorder(evaluation=...)), or log eval_loss"
        return (Evidence(fact=f"not known: the held-out loss; {how}"),)
    return tuple(
        Evidence(fact=f"held-out loss ({r.metric})", value=float(r.value), unit="nats per token", table="evals",
                 where=f"{r.subset}, step {r.step:.0f}")
        for r in held_out.itertuples()
    )  # fmt: skip


def _generation_facts(generated: pd.DataFrame) -> tuple[Evidence, ...]:
    if generated.empty:
        return (Evidence(fact="not known: scores of freely generated text; `workbench evaluate` can check it"),)
    words = {"repeats": "generated text repeats itself", "matches": "generated text no longer matches"}
    return tuple(
        Evidence(fact=f"{words[r.kind]} ({r.metric}, first {r.first_value:.3g})", value=float(r.value), unit="share",
                 table="evals", where=f"{r.subset}, step {r.step:.0f}")
        for r in generated.itertuples()
    )  # fmt: skip


def _ruled_out(low: LowLoss, held_out: pd.DataFrame, training_steps: pd.DataFrame) -> tuple[RuledOut, ...]:
    ruled = []
    if len(held_out):
        ruled.append(RuledOut(cause="overfitting", because="the held-out loss is as low as the training loss"))
    elif low.epoch == 1:
        ruled.append(RuledOut(cause="overfitting", because="no sample has been seen twice"))
    rates = training_steps["learning_rate"].dropna()
    if len(rates) and rates.min() >= 0:
        ruled.append(RuledOut(cause="lr_schedule_error", because="the learning rate is never below zero"))
    return tuple(ruled)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("label_leak",),
        needs=("training_steps",),
        uses=("evals",),
        find=lambda t: find_label_leak(t["training_steps"], t.get("evals")),
    ),
)
