"""Recorded steps to the state of the training: loss over ranks, spikes, overflow, gradient ratios, memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.statistics import MAD_TO_SIGMA
from workbench.errors import UnknownParameterError
from workbench.tables import PARAMETER_GROUPS, TRAINING_STEPS

WINDOW_STEPS = 50  # steps before a step that say what is typical there
WINDOW_STEPS_LEAST = 10
SPIKE_SIGMAS = 8.0
SPIKE_SHARE = 0.1  # ... and at least this share above typical: a loss with next to no noise has no spikes of 1 %
EPISODE_GAP_STEPS = 5  # spikes closer than this are one episode
MEMORY_BLOCKS = 5
MEMORY_COLUMNS = ("host_memory_bytes", "device_allocated_bytes", "device_reserved_bytes")
SLOPE_POINTS = 400  # Theil-Sen looks at all pairs


def until_step(table: pd.DataFrame, step: int | None) -> pd.DataFrame:
    """The rows up to `step`, and those without a step; all of them where `step` is None."""
    return table.copy() if step is None else table[~(table["step"] > step).fillna(False)]


def job_steps(training_steps: pd.DataFrame) -> pd.DataFrame:
    """The training as one series: each step over all ranks.

    A rank whose loss is 0 at every step does not report one (pipeline stages before the last print 0.000) and is left
    out of the loss; one whose loss is never finite does report it.

    Returns:
        One row per step, in order: ranks; loss (mean over reporting ranks), loss_low, loss_high; loss_finite (all);
        learning_rate, gradient_norm, gradient_parameter_ratio, parameter_norm, step_us, data_wait_us, callbacks_us and
        memory columns (largest over ranks); step_us_low; overflow (any), loss_scale (smallest); tokens (sum). Missing
        where no rank has it. Empty in, empty out.

    Raises:
        MissingColumnsError: `training_steps` lacks a column.
    """
    steps = TRAINING_STEPS.check(training_steps)
    told = (steps["loss"].notna() & (steps["loss"] != 0)) | ~steps["loss_finite"].fillna(True).astype(bool)
    reports = told.groupby(steps["rank_id"]).transform("any").astype(bool)
    steps = steps.assign(loss=steps["loss"].where(reports), loss_finite=steps["loss_finite"].where(reports))
    largest = ["learning_rate", "gradient_norm", "gradient_parameter_ratio", "parameter_norm", "step_us",
               "data_wait_us", "callbacks_us", *MEMORY_COLUMNS]  # fmt: skip
    grouped = steps.groupby("step")
    known = steps["loss_finite"].notna() | steps["loss"].notna()
    return (
        grouped[largest]
        .max()
        .assign(
            ranks=grouped["rank_id"].nunique(),
            loss=grouped["loss"].mean(),
            loss_low=grouped["loss"].min(),
            loss_high=grouped["loss"].max(),
            loss_finite=(steps["loss_finite"].fillna(True) | ~known).groupby(steps["step"]).all(),
            step_us_low=grouped["step_us"].min(),
            overflow=grouped["overflow"].max(),
            loss_scale=grouped["loss_scale"].min(),
            tokens=grouped["tokens"].sum(min_count=1),
        )
        .reset_index()
    )


def deviations(values: pd.Series, *, window: int = WINDOW_STEPS) -> pd.DataFrame:
    """How far each value lies from the values before it.

    Args:
        values: one number per step, in order.
        window: how many values before (the value itself left out) say what is typical.

    Returns:
        Index of `values`; typical: median of the window, moved by the median distance that the window's values had from
        their own windows, so that a falling loss is expected to go on falling; sigmas: distance from it in 1.4826 MAD
        of those distances. NaN for the first values.

    Source: Hampel filter (Hampel, JASA 69, 1974) on the past only, so that it works on a live run.
    """
    rolling = {"window": window, "min_periods": min(WINDOW_STEPS_LEAST, window)}
    past = values.replace([np.inf, -np.inf], np.nan).astype("float64").shift()
    median = past.rolling(**rolling).median()
    distance = past - median.shift()
    drift = distance.rolling(window, min_periods=1).median()
    spread = (distance - drift).abs().rolling(window, min_periods=1).median() * MAD_TO_SIGMA
    typical = median + drift
    return pd.DataFrame({"typical": typical, "sigmas": (values - typical) / spread.where(spread > 0)})


def spikes(job: pd.DataFrame, column: str, *, window: int = WINDOW_STEPS) -> pd.DataFrame:
    """Episodes in which a series jumped up.

    A step belongs to one where the value is more than `SPIKE_SIGMAS` robust deviations and more than `SPIKE_SHARE`
    above the median of the steps before, or is not finite although recorded. Steps at most `EPISODE_GAP_STEPS` apart
    are one episode.

    Args:
        job: as `job_steps` returns.
        column: "loss" or "gradient_norm".
        window: steps before that say what is typical.

    Returns:
        One row per episode: first_step, last_step, steps (how many of them), peak_step, peak, typical (before it),
        sigmas. Empty where there is none.
    """
    columns = ["first_step", "last_step", "steps", "peak_step", "peak", "typical", "sigmas"]
    known = job.dropna(subset=[column])
    away = deviations(known[column], window=window)
    high = (away["sigmas"] > SPIKE_SIGMAS) & (known[column] > (1 + SPIKE_SHARE) * away["typical"])
    found = known[["step", column]].assign(**away)[high | np.isinf(known[column])]
    episode = (found["step"].diff() > EPISODE_GAP_STEPS).cumsum()
    rows = [
        {
            "first_step": int(steps["step"].iloc[0]),
            "last_step": int(steps["step"].iloc[-1]),
            "steps": len(steps),
            "peak_step": int(steps.loc[steps[column].idxmax(), "step"]),
            "peak": float(steps[column].max()),
            "typical": float(steps["typical"].iloc[0]),
            "sigmas": float(steps["sigmas"].max()),
        }
        for _, steps in found.groupby(episode)
    ]
    return pd.DataFrame(rows, columns=columns)


def level_at(job: pd.DataFrame, column: str, step: int | None = None, *, window: int = WINDOW_STEPS) -> float:
    """Median of the last `window` finite values of a series up to `step`; NaN where there is none.

    Raises:
        UnknownParameterError: there is no such column.
    """
    if column not in job:
        raise UnknownParameterError(f"There is no column {column!r}.", fix=f"use one of {list(job)}")
    values = until_step(job, step)[column].astype("float64").replace([np.inf, -np.inf], np.nan).dropna()
    return float(values.tail(window).median()) if len(values) else float("nan")


def group_ratios(parameter_groups: pd.DataFrame, *, window: int = WINDOW_STEPS) -> pd.DataFrame:
    """Gradient and parameter norm of each parameter group over the last steps.

    Returns:
        One row per group, largest ratio first: gradient_norm, parameter_norm, gradient_parameter_ratio (medians of the
        last `window` steps, over ranks). Empty in, empty out.
    """
    groups = PARAMETER_GROUPS.check(parameter_groups)
    last = groups[groups["step"] > groups["step"].max() - window] if len(groups) else groups
    columns = ["gradient_norm", "parameter_norm", "gradient_parameter_ratio"]
    medians = last.groupby("group")[columns].median().reset_index()
    return medians.sort_values("gradient_parameter_ratio", ascending=False, ignore_index=True)


def memory_growth(training_steps: pd.DataFrame) -> pd.DataFrame:
    """How memory changes from step to step, per rank and kind.

    The first fifth of each rank's steps (compilation, pools and caches filling) is left out; the rest is cut into
    `MEMORY_BLOCKS` blocks. A leak grows in every block, a cache or a one-time buffer does not.

    Returns:
        One row per (rank_id, kind) with at least 5 x `MEMORY_BLOCKS` values: kind, steps (from the first to the last
        of them), first_bytes and last_bytes (medians of the first and last block), peak_bytes (of all steps),
        growth_bytes_per_step with low and high (95 %), growing_blocks (of `MEMORY_BLOCKS` - 1 changes between
        neighbours, how many rise by at least a quarter of the mean change).

    Source: slope and interval: Theil-Sen (Sen, JASA 63, 1968), which single peaks do not bend.
    """
    steps = TRAINING_STEPS.check(training_steps).sort_values(["rank_id", "step"])
    recorded = [kind for kind in MEMORY_COLUMNS if steps[kind].notna().any()]
    rows = [
        row
        for rank_id, rank in steps.groupby("rank_id")
        for kind in recorded
        if (row := _growth(rank[["step", kind]].dropna(), kind, int(str(rank_id)))) is not None
    ]
    columns = ["rank_id", "kind", "steps", "first_bytes", "last_bytes", "peak_bytes", "growth_bytes_per_step",
               "low_bytes_per_step", "high_bytes_per_step", "growing_blocks"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def memory_by_step(telemetry: pd.DataFrame, training_steps: pd.DataFrame | None = None) -> pd.DataFrame:
    """Memory that telemetry gives by step, as rows of table `training_steps`.

    Rows without a rank are of the rank whose steps are recorded, a lone series beside its log; with the steps of
    several ranks nobody knows, and they are left out; without any steps they are of rank 0.

    Args:
        telemetry: table `telemetry`.
        training_steps: table `training_steps`, or None.
    """
    rows = telemetry[telemetry["metric"].isin(MEMORY_COLUMNS) & telemetry["step"].notna()]
    ranks = [0] if training_steps is None or training_steps.empty else training_steps["rank_id"].unique()
    named = rows.assign(rank_id=rows["rank_id"].fillna(int(ranks[0]))) if len(ranks) == 1 else rows.dropna(
        subset=["rank_id"]
    )  # fmt: skip
    wide = named.pivot_table(index=["rank_id", "step"], columns="metric", values="value", aggfunc="max").reset_index()
    return TRAINING_STEPS.check(wide.reindex(columns=list(TRAINING_STEPS.column_names)))


def _growth(series: pd.DataFrame, kind: str, rank_id: int) -> dict[str, object] | None:
    settled = series.iloc[len(series) // 5 :]
    if len(settled) < 5 * MEMORY_BLOCKS:
        return None
    blocks = settled[kind].groupby(np.arange(len(settled)) * MEMORY_BLOCKS // len(settled)).median()
    changes = blocks.diff().dropna()
    points = settled.iloc[np.linspace(0, len(settled) - 1, min(len(settled), SLOPE_POINTS)).astype(int)]
    slope, _, low, high = stats.theilslopes(points[kind], points["step"], 0.95)
    return {
        "rank_id": rank_id, "kind": kind, "steps": int(np.ptp(settled["step"])) + 1,
        "first_bytes": float(blocks.iloc[0]), "last_bytes": float(blocks.iloc[-1]),
        "peak_bytes": float(series[kind].max()),
        "growth_bytes_per_step": float(slope), "low_bytes_per_step": float(low), "high_bytes_per_step": float(high),
        "growing_blocks": int(((changes > 0) & (changes >= changes.mean() / 4)).sum()),
    }  # fmt: skip
