"""Records of steps -> how much work each step had, and how long it took where no step time is stated. Pure."""

from __future__ import annotations

import pandas as pd


def measured_us(training_steps: pd.DataFrame) -> pd.Series:
    """The step times; missing where they are zero or less: no step takes no time, it was not measured."""
    return training_steps["step_us"].where(training_steps["step_us"] > 0)


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
