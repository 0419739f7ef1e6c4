"""Learning rates of the steps -> the schedule against the plan: where it ended, how fast it fell, the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.settings import setting
from workbench.analyses.statistics import FloatArray

PLANNED_STEPS = ("planned_steps", "steps_total", "total_optimization_steps", "total_steps", "max_steps", "train_steps",
                 "train_iters", "total_training_steps", "num_train_steps")  # fmt: skip
COUNTERS = ("device_num", "world_size", "data_parallel", "gradient_accumulation_steps", "micro_batch_num", "ranks")
POINTS_LEAST = 10
ZERO_SHARE = 1e-3  # of the peak: a rate below it trains nothing
NEAR_PEAK = 0.999
STRAIGHT_R2 = 0.9995  # of a linear decay; a cosine has 0.98
COUNTER_ERROR = 0.04


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What the printed learning rates say.

    Attributes:
        peak: largest rate; peak_step: last step at (99.9 % of) it.
        end_step: where the rate reached zero and stayed, or went below it, between two printed steps by interpolation;
            None if it did not.
        negative_steps, zero_steps: printed steps after the peak with a rate below zero, and since it stays at (almost)
            zero or below.
        slope_per_step: fall of the rate per step between peak and end, by least squares; NaN without a decay.
        is_straight: whether the decay is a straight line.
        straight_end_step: where that line reaches zero; NaN where it is none.
        rises_again: whether the rate climbs back from its lowest value, step by step.
        low_step, low: where the rate is lowest after the peak.
        planned_steps: as the log or the settings say; None where nothing does.
        last_step: last step with a rate.
    """

    peak: float
    peak_step: int
    end_step: int | None
    negative_steps: int
    zero_steps: int
    slope_per_step: float
    is_straight: bool
    straight_end_step: float
    rises_again: bool
    low_step: int
    low: float
    planned_steps: int | None
    last_step: int


def schedule_of(job: pd.DataFrame, settings: pd.DataFrame | None = None) -> Schedule | None:
    """The schedule of a training, None where fewer than `POINTS_LEAST` rates are known or none is above zero.

    Args:
        job: as `workbench.analyses.training.job_steps` returns.
        settings: table `settings`, or None: tells the planned steps.
    """
    known = job.dropna(subset=["learning_rate"])
    rate, step = known["learning_rate"].to_numpy("float64"), known["step"].to_numpy("int64")
    if len(rate) < POINTS_LEAST or not rate.max() > 0:
        return None
    peak = float(rate.max())
    first_low = np.flatnonzero((np.arange(len(rate)) > rate.argmax()) & (rate < NEAR_PEAK * peak))
    start = int(first_low[0]) - 1 if len(first_low) else len(rate) - 1
    after_rate, after_step = rate[start:], step[start:]
    ended = _ended(after_rate, peak)
    decay = slice(0, int(ended[0]) if len(ended) else len(after_rate))
    slope, straight, straight_end = _line(after_step[decay], after_rate[decay])
    low = int(after_rate.argmin())
    return Schedule(
        peak=peak,
        peak_step=int(step[start]),
        end_step=_crossing(after_step, after_rate, int(ended[0])) if len(ended) else None,
        negative_steps=int((after_rate < 0).sum()),
        zero_steps=int((after_rate[ended[0] :] <= ZERO_SHARE * peak).sum()) if len(ended) else 0,
        slope_per_step=slope,
        is_straight=straight,
        straight_end_step=straight_end,
        rises_again=_rises(after_rate[low:], peak),
        low_step=int(after_step[low]),
        low=float(after_rate[low]),
        planned_steps=planned_steps(settings),
        last_step=int(step[-1]),
    )


def planned_steps(settings: pd.DataFrame | None) -> int | None:
    """Steps that the training was to have; None where nothing tells."""
    text = setting(settings, *PLANNED_STEPS)
    try:
        value = float(text) if text is not None else float("nan")
    except ValueError:
        return None
    return int(value) if np.isfinite(value) and value > 0 else None


def advance_counter(ratio: float, settings: pd.DataFrame | None) -> tuple[str, int] | None:
    """The setting whose value is `ratio`, if it is above 1: what the schedule may have counted as steps."""
    counts: Mapping[str, str | None] = {name: setting(settings, name) for name in COUNTERS}
    for name, text in counts.items():
        if text is not None and text.isdigit() and int(text) > 1 and abs(ratio / int(text) - 1) <= COUNTER_ERROR:
            return name, int(text)
    return None


def loss_turn(job: pd.DataFrame) -> tuple[int, float, float] | None:
    """Where the loss was lowest: step, level there, level at the end; None if unknown. Levels: medians of a tenth.

    Args:
        job: as `workbench.analyses.training.job_steps` returns.
    """
    known = job.dropna(subset=["loss"])
    if len(known) < POINTS_LEAST:
        return None
    window = max(3, len(known) // 10)
    level = known["loss"].rolling(window, center=True, min_periods=1).median().to_numpy()
    lowest = int(level.argmin())
    return int(known["step"].iloc[lowest]), float(level[lowest]), float(known["loss"].tail(window).median())


def _ended(rate: FloatArray, peak: float) -> np.ndarray:
    """Index from which on the rate is gone: it stays at (almost) zero, or it goes below zero; empty if neither."""
    left = np.flatnonzero(rate > ZERO_SHARE * peak)
    stays = int(left[-1]) + 1 if len(left) else 0
    if stays < len(rate):
        return np.array([stays])
    below = np.flatnonzero(rate < 0)
    return below[:1]


def _line(step: FloatArray, rate: FloatArray) -> tuple[float, bool, float]:
    """Fall per step of a decay, whether it is a straight line, and where the line reaches zero."""
    if len(step) < 3 or not rate[0] > rate[-1]:
        return float("nan"), False, float("nan")
    slope, level = np.polyfit(step.astype("float64"), rate, 1)
    left = rate - (slope * step + level)
    whole = rate - rate.mean()
    straight = len(step) >= POINTS_LEAST and 1 - float(left @ left) / float(whole @ whole) >= STRAIGHT_R2
    return -float(slope), straight, float(-level / slope) if straight else float("nan")


def _crossing(step: FloatArray, rate: FloatArray, first: int) -> int:
    """Step at which the rate reached zero, by the line through the printed steps on both sides of it."""
    if first == 0 or rate[first] >= 0:
        return int(step[first])
    before, after = rate[first - 1], rate[first]
    return round(float(step[first - 1] + (step[first] - step[first - 1]) * before / (before - after)))


def _rises(rate: FloatArray, peak: float) -> bool:
    """Whether the rate climbs back from its lowest value in small steps: a cosine that ran over its end."""
    if len(rate) < POINTS_LEAST:
        return False
    gained = float(rate[-1] - rate[0])
    return gained >= 0.05 * peak and bool((np.diff(rate) >= -1e-12).all()) and np.diff(rate).max() <= 0.5 * gained
