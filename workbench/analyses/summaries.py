"""One table per layer of a report: quality of a checkpoint, stability and efficiency of the training up to it."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.evaluation import ALL_SUBSETS, changes_from_references, subset_metrics, with_all_subsets
from workbench.analyses.step_time import (
    job_outliers,
    step_outliers,
    step_time_distribution,
    throughput,
    time_shares,
)
from workbench.analyses.training import WINDOW_STEPS, group_ratios, job_steps, level_at, memory_growth, spikes

QUALITY_METRICS = ("loss", "perplexity", "bits_per_byte", "next_token_accuracy")


def quality_summary(eval_samples: pd.DataFrame, checkpoint: str, *, confidence: float = 0.95) -> pd.DataFrame:
    """Metrics of a checkpoint per subset, and how the loss changed against the previous and the best one before.

    Returns:
        One row per subset, `ALL_SUBSETS` last: n, documents; loss, loss_low, loss_high and the same of perplexity;
        bits_per_byte, next_token_accuracy (each only where it was measured); per reference ("previous", "best") its
        name, change, low, high and verdict as in `changes_from_references`, in columns such as previous_change.
        Missing where there is no such reference, or where the best one is the previous one.
    """
    own = with_all_subsets(eval_samples[eval_samples["checkpoint"] == checkpoint])
    metrics = subset_metrics(own, confidence=confidence)
    wide = metrics.pivot_table(
        index="subset", columns="metric", values=["value", "low", "high"], aggfunc="first", dropna=False
    )
    counts = metrics.drop_duplicates("subset").set_index("subset")[["n", "documents"]]
    columns = {m: wide["value"][m] for m in QUALITY_METRICS if m in wide["value"]}
    ends = {f"{m}_{e}": wide[e][m] for m in ("loss", "perplexity") for e in ("low", "high") if m in wide[e]}
    summary = counts.assign(**columns, **ends)
    changes = changes_from_references(eval_samples, checkpoint, confidence=confidence)
    for role in ("previous", "best"):
        part = changes[changes["role"] == role].set_index("subset")
        for column in ("reference", "change", "low", "high", "verdict"):
            summary[f"{role}_{column}"] = part[column].reindex(summary.index)
    return summary.reset_index().sort_values("subset", key=lambda s: s == ALL_SUBSETS, kind="stable", ignore_index=True)


def stability_summary(
    training_steps: pd.DataFrame, parameter_groups: pd.DataFrame | None = None, *, window: int = WINDOW_STEPS
) -> pd.DataFrame:
    """State of the training at its last step: measure, value, unit, note. Measures that are not recorded are left out.

    Levels are medians of the last `window` steps; shares and counts are of all steps given.
    """
    job = job_steps(training_steps)
    jumps = {c: spikes(job, c, window=window) for c in ("loss", "gradient_norm")}
    overflow = job["overflow"].dropna().astype(float)
    rows = [
        ("training loss", level_at(job, "loss", window=window), "nats per token", f"median of {window} steps"),
        ("steps without a finite loss", float((~job["loss_finite"].astype(bool)).sum()), "", ""),
        ("loss spikes", float(len(jumps["loss"])), "", _worst(jumps["loss"])),
        ("learning rate", level_at(job, "learning_rate", window=1), "", "at the last step"),
    ]
    if job["gradient_norm"].notna().any():
        norm = level_at(job, "gradient_norm", window=window)
        rows += [
            ("gradient norm", norm, "L2", f"median of {window} steps, before clipping"),
            ("gradient norm spikes", float(len(jumps["gradient_norm"])), "", _worst(jumps["gradient_norm"])),
        ]
    if parameter_groups is not None and len(ratios := group_ratios(parameter_groups, window=window)):
        top = ratios.iloc[0]
        rows.append(
            (
                "largest gradient / parameter ratio",
                float(top["gradient_parameter_ratio"]),
                "",
                f"group {top['group']}, median of {window} steps",
            )
        )
    if len(overflow):
        rows.append(("steps with overflow", float(overflow.mean()), "share", ""))
        rows.append(("loss scale", level_at(job, "loss_scale", window=1), "", "at the last step"))
    return _measures(rows)


def efficiency_summary(training_steps: pd.DataFrame, events: pd.DataFrame | None = None) -> pd.DataFrame:
    """Speed and memory of the training: measure, value, unit, note. Measures that are not recorded are left out."""
    times = step_time_distribution(training_steps)
    slowest = times.loc[times["median_us"].idxmax()] if times["median_us"].notna().any() else None
    rows = [] if slowest is None else [_step_time_row(slowest, len(times)), *_rates(training_steps)]
    stalls = job_outliers(step_outliers(training_steps, events))
    rows.append(("stalled steps", float(len(stalls)), "", _stall_note(stalls)))
    shares = time_shares(training_steps, events).groupby("part")["share"].max()
    words = {
        "data_wait": "waiting for data",
        "checkpoint": "saving checkpoints",
        "eval": "evaluating",
        "compile": "compiling",
    }
    rows += [(words[p], float(shares[p]), "share", "of the wall time") for p in words if p in shares]
    growth = memory_growth(training_steps).sort_values("growth_bytes_per_step", ascending=False).drop_duplicates("kind")
    for row in growth.to_dict("records"):
        kind = str(row["kind"]).removesuffix("_bytes").replace("_", " ")
        note = f"growing by {row['growth_bytes_per_step'] * 1000 / 2**20:,.1f} MiB in 1,000 steps"
        rows.append((f"{kind}, peak", row["peak_bytes"] / 2**30, "GiB", note))
    return _measures(rows)


def _step_time_row(slowest: pd.Series, ranks: int) -> tuple[str, float, str, str]:
    ms = {q: slowest[f"{q}_us"] / 1e3 for q in ("p5", "p95", "p99")}
    left_out = slowest["compiled_steps"] + slowest["warmup_steps"]
    note = f"5 to 95 %: {ms['p5']:,.0f} to {ms['p95']:,.0f} ms, 99 %: {ms['p99']:,.0f} ms"
    note += f"; without {left_out:.0f} warm-up or compiling steps" + (
        f"; slowest of {ranks} ranks" if ranks > 1 else ""
    )
    return "step time, median", slowest["median_us"] / 1e3, "ms", note


def _rates(training_steps: pd.DataFrame) -> list[tuple[str, float, str, str]]:
    job = throughput(training_steps).iloc[-1]
    if pd.isna(job["tokens_per_s"]):
        return []
    return [
        ("throughput", float(job["tokens_per_s"]), "tokens per s", "steady steps"),
        (
            "throughput, all included",
            float(job["tokens_per_s_overall"]),
            "tokens per s",
            "with compiling, saving, evaluating",
        ),
    ]


def _worst(jumps: pd.DataFrame) -> str:
    if jumps.empty:
        return ""
    top = jumps.loc[jumps["peak"].idxmax()]
    return f"highest: {top['peak']:.3g} at step {top['peak_step']:.0f}, {top['typical']:.3g} expected"


def _stall_note(stalls: pd.DataFrame) -> str:
    lost = stalls.groupby("cause")["excess_us"].sum().sort_values(ascending=False) / 1e6
    return ", ".join(f"{cause} {seconds:,.1f} s" for cause, seconds in lost.items())


def _measures(rows: list[tuple[str, float, str, str]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["measure", "value", "unit", "note"]).dropna(subset=["value"], ignore_index=True)
