"""Records of steps -> how much work each step had, and how long it took where no step time is stated. Pure."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.settings import setting


def measured_us(training_steps: pd.DataFrame) -> pd.Series:
    """The step times; missing where they are zero or less: no step takes no time, it was not measured."""
    return training_steps["step_us"].where(training_steps["step_us"] > 0)


def steps_per_row(training_steps: pd.DataFrame) -> pd.Series:
    """Steps that each row stands for: a log that prints every n-th step tells of n steps with each line.

    Args:
        training_steps: rows with rank_id and step; the result has their index. The first row of a rank counts once.
    """
    ordered = training_steps[["rank_id", "step"]].sort_values(["rank_id", "step"])
    between = ordered.groupby("rank_id")["step"].diff().fillna(1).clip(lower=1)
    return between.reindex(training_steps.index).astype("float64")


def steps_told(training_steps: pd.DataFrame) -> int:
    """Steps that the rows of a rank stand for, on the rank with the most; 0 for no rows."""
    if training_steps.empty:
        return 0
    return int(steps_per_row(training_steps).groupby(training_steps["rank_id"]).sum().max())


def of_last_batch_size(training_steps: pd.DataFrame, settings: pd.DataFrame | None) -> pd.DataFrame:
    """The steps since the log's last change of the batch size: during a ramp-up larger batches take longer.

    Args:
        training_steps: rows with step.
        settings: table `settings`, or None: `global_batch_size_since_step`, which the reader of logs sets.
    """
    since = setting(settings, "global_batch_size_since_step")
    return training_steps if since is None else training_steps[training_steps["step"] >= int(since)]


def work_scale(training_steps: pd.DataFrame) -> pd.Series:
    """Work of each step over the rank's typical step: tokens of the batch, else its sequence length; 1 where unknown.

    Args:
        training_steps: table `training_steps`; the result has its index.
    """
    work = training_steps["tokens"].fillna(training_steps["sequence_length"]).astype("float64")
    known = work.where(work > 0)
    return (known / known.groupby(training_steps["rank_id"]).transform("median")).fillna(1.0)


def between_records_us(training_steps: pd.DataFrame) -> pd.Series:
    """Time between a record and the rank's one before it, over the steps between them: for sources without step times.

    Args:
        training_steps: table `training_steps`; the result has its index. Missing at the first record of a rank.
    """
    ordered = training_steps.sort_values(["rank_id", "step"], kind="stable")
    apart = ordered.groupby("rank_id")[["time_ns", "step"]].diff()
    return (apart["time_ns"].astype("float64") / 1e3 / apart["step"].where(apart["step"] > 0)).loc[training_steps.index]
