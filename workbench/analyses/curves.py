"""Recorded steps binned for charts: few rows, whatever the run's length."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from workbench.analyses.step_time import WARMUP_STEPS, timed_steps
from workbench.tables import PARAMETER_GROUPS, TRAINING_STEPS

BINS = 150
HISTOGRAM_BINS = 40
HISTOGRAM_TAIL = 0.99  # the tail has its own chart, step by step


def step_time_histogram(
    training_steps: pd.DataFrame, *, bins: int = HISTOGRAM_BINS, warmup_steps: int = WARMUP_STEPS
) -> pd.DataFrame:
    """Steady steps' time in bins of equal width up to the 99th percentile; the last bin also holds what lies above.

    Returns:
        One row per bin: low_us, high_us, steps. Empty where there is no steady step.
    """
    timed = timed_steps(training_steps, warmup_steps=warmup_steps)
    step_us = timed.loc[timed["excluded"] == "", "step_us"].to_numpy()
    if not len(step_us):
        return pd.DataFrame({"low_us": [], "high_us": [], "steps": []})
    top = np.quantile(step_us, HISTOGRAM_TAIL)
    counts, edges = np.histogram(np.minimum(step_us, top), bins=bins, range=_span(step_us.min(), top))
    return pd.DataFrame({"low_us": edges[:-1], "high_us": edges[1:], "steps": counts})


def throughput_curve(training_steps: pd.DataFrame, *, bins: int = BINS) -> pd.DataFrame:
    """Tokens per second of the job over steps, callbacks and compilation excluded.

    Returns:
        One row per bin of steps: step (first of the bin), tokens_per_s = tokens of all ranks / step time of the
        slowest. Steps without tokens or time, and compiled ones, are left out. Empty where none is left.
    """
    steps = TRAINING_STEPS.check(training_steps)
    steps = steps[steps["tokens"].notna() & steps["step_us"].notna() & ~steps["compiled"].fillna(False).astype(bool)]
    grouped = steps.groupby("step")
    job = pd.DataFrame({"tokens": grouped["tokens"].sum(), "step_us": grouped["step_us"].max()}).reset_index()
    sums = job.groupby(_bin(job, bins)).agg({"step": "min", "tokens": "sum", "step_us": "sum"})
    seconds = sums["step_us"] / 1e6
    return sums.assign(tokens_per_s=sums["tokens"] / seconds.where(seconds > 0))[["step", "tokens_per_s"]].reset_index(
        drop=True
    )


def group_ratio_curve(parameter_groups: pd.DataFrame, *, bins: int = BINS) -> pd.DataFrame:
    """Gradient / parameter norm of each group over steps.

    Returns:
        One row per (bin of steps, group): step (first of the bin), group, gradient_parameter_ratio (median over steps
        and ranks). Groups in natural order (blocks.2 before blocks.10). Bins without a ratio are left out.
    """
    groups = PARAMETER_GROUPS.check(parameter_groups).dropna(subset=["gradient_parameter_ratio"])
    first = groups["step"].groupby(_bin(groups, bins)).transform("min")
    binned = groups.assign(step=first).groupby(["step", "group"])["gradient_parameter_ratio"].median().reset_index()
    order = {g: i for i, g in enumerate(sorted(binned["group"].unique(), key=_natural))}
    return binned.sort_values(
        ["group", "step"], key=lambda c: c.map(order) if c.name == "group" else c, ignore_index=True
    )


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name)]


def _bin(frame: pd.DataFrame, bins: int) -> pd.Series:
    low, high = frame["step"].min(), frame["step"].max()
    width = max(-(-(high - low + 1) // bins), 1) if len(frame) else 1
    return (frame["step"] - low) // width


def _span(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)
