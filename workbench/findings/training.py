"""Rules on the course of a training: loss, overflow, memory."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from workbench.analyses.instability import settled
from workbench.analyses.training import MEMORY_BLOCKS, job_steps, level_at, memory_by_step, memory_growth, spikes
from workbench.findings.finding import Culprit, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule

LISTED_STEPS = 20
SPIKE_STEPS_WARNING = 3  # a jump of one or two batches that heals is worth a look, not an alarm
SPIKE_RATIO_WARNING = 1.5  # ... unless it is as large as this
SCALE_SEARCH_STEPS = 100  # a loss scale that starts high overflows until it has come down
OVERFLOW_SHARE_WARNING = 0.02  # a scale that doubles every 1,000 to 2,000 steps overflows in 0.05 to 0.1 % of them
OVERFLOW_SHARE_CRITICAL = 0.2
LEAK_SHARE = 0.05  # growth below this share, or below LEAK_BYTES, is caches and fragmentation
LEAK_BYTES = 64 * 2**20


def find_loss_not_finite(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding if a recorded loss is NaN or infinite. Steps without a recorded loss do not count.

    Where the first of these steps had no token to learn from, the loss is 0/0: the data are to blame (`empty_data`).
    """
    job = job_steps(training_steps)
    broken = job.loc[~job["loss_finite"].astype(bool), "step"]
    if broken.empty:
        return []
    first = int(broken.iloc[0])
    is_begun = bool((job["step"] < first).any())
    before = level_at(job, "loss", first - 1, window=10)
    norm = level_at(job, "gradient_norm", first - 1, window=10)
    level = (
        Evidence(fact="loss before", value=before, unit="nats per token", table="training_steps"),
        Evidence(fact="gradient norm before", value=norm, unit="L2 norm", table="training_steps"),
    )
    finite = job.loc[job["loss"].notna() & job["loss_finite"].astype(bool), "step"]
    recovered = bool((finite > broken.iloc[-1]).any())
    tokens = job.loc[job["step"].isin(broken), "tokens"]
    if tokens.iloc[0] == 0:
        return [_batches_without_tokens(broken[(tokens == 0).to_numpy()], broken, recovered=recovered)]
    return [
        Finding(
            cause="loss_not_finite",
            playbook="T1",
            severity="critical",
            confidence="high",
            title=f"The loss is not a number from step {first} on, at {len(broken)} step(s)"
            + (", and came back." if recovered else ", up to the last recorded loss."),
            fix=f"Go back to a checkpoint before step {first}; look at its batch, gradient norm and loss scale."
            if is_begun
            else f"Look at what step {first}, the first recorded one, starts from: parameters, batch and loss scale.",
            source="definition of a finite number",
            steps=_steps(broken),
            evidence=(
                Evidence(fact="steps without a finite loss", value=len(broken), unit="steps", table="training_steps"),
                *(level if is_begun else ()),
            ),
        )
    ]


def _batches_without_tokens(empty: pd.Series, broken: pd.Series, *, recovered: bool) -> Finding:
    first = int(empty.iloc[0])
    return Finding(
        cause="empty_data",
        playbook="T6",
        severity="warning" if recovered else "critical",
        confidence="high",
        title=f"The batches of {len(empty)} step(s), the first of them step {first}, hold no token: their loss is 0/0"
        + (", later losses are numbers again." if recovered else ", and no later loss is a number."),
        fix="Leave empty samples out, and divide the loss by at least one token"
        + ("." if recovered else f"; go back to a checkpoint before step {first}."),
        source="definition of a mean",
        steps=_steps(empty),
        evidence=(
            Evidence(fact="steps without a token", value=len(empty), unit="steps", table="training_steps"),
            Evidence(fact="steps without a finite loss", value=len(broken), unit="steps", table="training_steps"),
        ),
        rules_out=(RuledOut(cause="loss_not_finite", because=f"the batch of step {first} holds no token"),),
    )


def find_loss_spike(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding on the episodes after the warm-up in which the loss jumped up, led by the highest jump."""
    job = job_steps(training_steps)
    found = settled(job, spikes(job, "loss"))
    found = found[
        np.isfinite(found["typical"].astype("float64"))
    ]  # without a finite level before it is no jump but a lost loss
    if found.empty:
        return []
    return [_spike(found, spikes(job, "gradient_norm"))]


def _spike(found: pd.DataFrame, norms: pd.DataFrame) -> Finding:
    ratio = found["peak"] / found["typical"].where(found["typical"] > 0)
    worst = found.loc[(found["peak"] - found["typical"]).idxmax()]
    grave = (found["steps"] >= SPIKE_STEPS_WARNING) | (ratio >= SPIKE_RATIO_WARNING)
    near = norms["first_step"].between(worst["first_step"] - 5, worst["last_step"] + 1)
    return Finding(
        cause="loss_spike",
        playbook="T1",
        severity="warning" if grave.any() else "info",
        confidence="medium",
        title=f"The loss jumped from {worst['typical']:.3g} to {worst['peak']:.3g} at step {worst['peak_step']:.0f}, "
        f"{worst['sigmas']:.0f} robust deviations; {len(found)} such episode(s).",
        fix="Compare gradient norm, learning rate and batch of these steps; skip the batch if it alone is odd, "
        "clip gradients or lower the rate if the norm jumps before the loss.",
        source="Hampel filter; thresholds ours (workbench.analyses.training)",
        steps=Steps(
            first=int(found["first_step"].min()),
            last=int(found["last_step"].max()),
            list=tuple(int(s) for s in found["peak_step"][:LISTED_STEPS]),
        ),
        evidence=(
            Evidence(fact="episodes", value=len(found), table="training_steps"),
            Evidence(fact="loss at the peak", value=float(worst["peak"]), unit="nats per token"),
            Evidence(fact="loss expected there", value=float(worst["typical"]), unit="nats per token"),
            Evidence(fact="gradient norm jumped with it", value="yes" if near.any() else "no"),
        ),
    )


def find_fp16_overflow(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding if gradients overflow more often than a working loss scale makes them."""
    job = job_steps(training_steps)
    known = job[job["overflow"].notna() & (job["step"] > job["step"].min() + SCALE_SEARCH_STEPS)]
    hit = known.loc[known["overflow"].astype(bool), "step"]
    if known.empty or len(hit) / len(known) < OVERFLOW_SHARE_WARNING:
        return []
    scale = float(known["loss_scale"].iloc[-1])
    steps = _steps(job.loc[job["overflow"].fillna(False).astype(bool), "step"])
    return [_overflow(len(hit), len(known), scale, steps, "training_steps")]


def find_overflow_lines(training_steps: pd.DataFrame, log_messages: pd.DataFrame) -> list[Finding]:
    """The same where a log does not tell it step by step, but has a line for every skipped step (DeepSpeed)."""
    lines = log_messages[(log_messages["kind"] == "overflow") & log_messages["step"].notna()]
    if lines.empty or training_steps.empty or training_steps["overflow"].notna().any():
        return []
    first, last = int(training_steps["step"].min()), int(training_steps["step"].max())
    lines = lines[lines["rank_id"] == lines["rank_id"].mode().iloc[0]]
    late = lines[lines["step"] >= first + SCALE_SEARCH_STEPS - 1]  # a line is at the step above it
    seen = last - first - SCALE_SEARCH_STEPS
    if seen <= 0 or min(len(late), seen) / seen < OVERFLOW_SHARE_WARNING:
        return []
    scales = [json.loads(text).get("new_scale") for text in late["fields"].dropna()]
    scale = next((float(s) for s in reversed(scales) if s is not None), float("nan"))
    return [_overflow(min(len(late), seen), seen, scale, _steps(late["step"].drop_duplicates()), "log_messages")]


def _overflow(hits: int, known: int, scale: float, steps: Steps, table: str) -> Finding:
    share = hits / known
    severity: Severity = "critical" if share >= OVERFLOW_SHARE_CRITICAL else "warning"
    return Finding(
        cause="fp16_overflow",
        playbook="T1",
        severity=severity,
        confidence="high",
        title=f"Gradients overflowed at {hits} of {known} steps ({share:.1%}): they trained nothing.",
        fix="Use bfloat16, or keep the layers that overflow (softmax, normalisation, loss) in float32; look at the "
        "largest gradient/parameter ratio per group for where it starts.",
        source="Micikevicius et al., Mixed Precision Training, ICLR 2018; threshold ours",
        steps=steps,
        evidence=(
            Evidence(fact="share of steps with overflow", value=share, unit="share", table=table),
            Evidence(fact="loss scale at the end", value=scale, table=table),
        ),
    )


def find_memory_leak(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding per kind of memory that grows all the time, on the rank where it grows most."""
    growth = memory_growth(training_steps)
    gained = growth["last_bytes"] - growth["first_bytes"]
    everywhere = growth["growing_blocks"] == MEMORY_BLOCKS - 1
    leaks = growth[everywhere & (gained >= LEAK_BYTES) & (gained >= LEAK_SHARE * growth["first_bytes"])]
    worst = leaks.sort_values("growth_bytes_per_step", ascending=False).drop_duplicates("kind")
    return [_leak(row, int((leaks["kind"] == row["kind"]).sum())) for row in worst.to_dict("records")]


def find_memory_leak_in_telemetry(telemetry: pd.DataFrame, training_steps: pd.DataFrame | None = None) -> list[Finding]:
    """The same for memory that a series beside the log tells by step; the log tells whose it is."""
    return find_memory_leak(memory_by_step(telemetry, training_steps))


def _leak(row: dict[str, object], ranks: int) -> Finding:
    values = {k: float(str(v)) for k, v in row.items() if k != "kind"}
    kind = "host" if str(row["kind"]).startswith("host") else "device"
    mib = values["growth_bytes_per_step"] / 2**20
    return Finding(
        cause="memory_leak",
        sub_cause=kind,
        playbook="T3",
        severity="warning",
        confidence="high" if values["low_bytes_per_step"] > 0 else "medium",
        title=f"The {kind} memory of rank {values['rank_id']:.0f} grows by {mib:.2f} MiB per step, "
        f"{(values['last_bytes'] - values['first_bytes']) / 2**20:,.0f} MiB over {values['steps']:.0f} steps.",
        fix="Look for what is kept per step: losses stored as tensors, growing lists in callbacks, new graph shapes, "
        "data pipeline caches.",
        source="Theil-Sen slope, growth in every fifth of the run; thresholds ours",
        culprit=Culprit(rank=int(values["rank_id"])),
        evidence=(
            Evidence(fact=f"growth of {row['kind']}", value=values["growth_bytes_per_step"], unit="bytes per step",
                     table="training_steps", where=f"rank {values['rank_id']:.0f}"),
            Evidence(fact="lower end of its 95 % interval", value=values["low_bytes_per_step"], unit="bytes per step"),
            Evidence(fact="ranks that show it", value=ranks, unit="ranks"),
        ),
    )  # fmt: skip


def _steps(steps: pd.Series) -> Steps:
    return Steps(first=int(steps.iloc[0]), last=int(steps.iloc[-1]), list=tuple(int(s) for s in steps[:LISTED_STEPS]))


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("loss_not_finite", "empty_data"),
        needs=("training_steps",),
        find=lambda t: find_loss_not_finite(t["training_steps"]),
    ),
    Rule(causes=("loss_spike",), needs=("training_steps",), find=lambda t: find_loss_spike(t["training_steps"])),
    Rule(causes=("fp16_overflow",), needs=("training_steps",), find=lambda t: find_fp16_overflow(t["training_steps"])),
    Rule(
        causes=("fp16_overflow",),
        needs=("training_steps", "log_messages"),
        find=lambda t: find_overflow_lines(t["training_steps"], t["log_messages"]),
    ),
    Rule(causes=("memory_leak",), needs=("training_steps",), find=lambda t: find_memory_leak(t["training_steps"])),
    Rule(
        causes=("memory_leak",),
        needs=("telemetry",),
        uses=("training_steps",),
        find=lambda t: find_memory_leak_in_telemetry(t["telemetry"], t.get("training_steps")),
    ),
)
