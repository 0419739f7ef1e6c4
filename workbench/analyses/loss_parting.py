"""Losses of two runs at common steps -> whether they begin together and part for good, since when, and how far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, Estimate, mad, ratio_estimate
from workbench.analyses.training import job_steps

STEPS_LEAST = 40  # common steps: a fifth of fewer has no five blocks to tell its noise by
START_SHARE = 0.005  # of the first loss: rounding of half precision changes it by 0.1 %, another seed by 1 %
START_NORM_SHARE = 0.1  # of the first gradient norm: another network with as large a vocabulary begins at one loss
END_PARTS = 5  # the last fifth of the steps is the end, in five blocks
LASTING_SHARE = 0.25  # of the steps, from the parting to the end: what closes again is no parting
ONSET_SHARE = 0.1  # of the gap at the end
ONSET_SIGMAS = 3.0
WINDOW_LEAST = 5
WINDOW_SHARE = 0.05  # of the steps: what the difference is smoothed over
SAME_RATE = 0.01  # relative
RATE_STEPS_SHARE = 0.05  # of the steps may differ: single lines are misprinted


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Two loss curves that begin together and part.

    Attributes:
        steps: common steps with a finite loss; first_step, last_step of them; onset_step: from it on the smoothed
            difference stays beyond noise.
        gap: second minus first, nats, mean of the last fifth of the steps, 95 % interval over its five blocks.
        loss: mean loss of the first run there; gap_share: gap against it.
        start_share: difference of the first common loss, relative.
        noise: standard deviation of the difference around its course, nats.
        order_correlation: rank correlation of how the two losses scatter from step to step: near 1 where both took the
            same batches in the same order, near 0 where not.
        rates_differ: whether printed learning rates differ; None where not both runs tell them.
    """

    steps: int
    first_step: int
    last_step: int
    onset_step: int
    gap: Estimate
    loss: float
    gap_share: float
    start_share: float
    noise: float
    order_correlation: float
    rates_differ: bool | None


def parting(first: pd.DataFrame, second: pd.DataFrame) -> Parting | None:
    """How two runs part; None where they have too few common steps, begin apart, or do not part for good.

    Args:
        first: table `training_steps` of one run.
        second: of the other.
    """
    both = _common(first, second)
    if len(both) < STEPS_LEAST:
        return None
    difference = both["loss_b"] - both["loss_a"]
    start = float(difference.iloc[0] / both["loss_a"].iloc[0]) if both["loss_a"].iloc[0] else float("nan")
    end = difference.iloc[-(len(both) // END_PARTS) :]
    gap = ratio_estimate(end, np.ones(len(end)), np.arange(len(end)) * END_PARTS // len(end))
    window = max(WINDOW_LEAST, round(WINDOW_SHARE * len(both))) | 1
    course = _smooth(difference, window)
    noise = MAD_TO_SIGMA * mad(difference - course)
    onset = _onset(np.sign(gap.value) * course, max(ONSET_SHARE * abs(gap.value), ONSET_SIGMAS * noise / window**0.5))
    parted = bool(gap.low > 0 or gap.high < 0)
    if not abs(start) <= START_SHARE or _norms_differ(both) or onset is None or not parted:
        return None
    loss = float(both["loss_a"].iloc[-len(end) :].mean())
    return Parting(
        steps=len(both), first_step=int(both["step"].iloc[0]), last_step=int(both["step"].iloc[-1]),
        onset_step=int(both["step"].iloc[onset]), gap=gap, loss=loss, gap_share=gap.value / loss, start_share=start,
        noise=noise, order_correlation=_order_correlation(both), rates_differ=_rates_differ(both),
    )  # fmt: skip


def _common(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    jobs = [job_steps(t)[["step", "loss", "learning_rate", "gradient_norm"]] for t in (first, second)]
    both = jobs[0].merge(jobs[1], on="step", suffixes=("_a", "_b"))
    return both[np.isfinite(both["loss_a"]) & np.isfinite(both["loss_b"])].reset_index(drop=True)


def _norms_differ(both: pd.DataFrame) -> bool:
    """Whether the gradient norms of the first common step are not alike; False where not both are known."""
    a, b = both["gradient_norm_a"].iloc[0], both["gradient_norm_b"].iloc[0]
    return bool(abs(a - b) > START_NORM_SHARE * max(abs(a), abs(b)))


def _smooth(values: pd.Series, window: int) -> pd.Series:
    return values.rolling(window, center=True, min_periods=1).median()


def _onset(course: pd.Series, level: float) -> int | None:
    """Place from which the course stays above the level up to the end; None where that is no lasting part."""
    below = np.flatnonzero(~(course.to_numpy() > level))
    place = int(below[-1]) + 1 if len(below) else 0
    return place if len(course) - place >= LASTING_SHARE * len(course) else None


def _order_correlation(both: pd.DataFrame) -> float:
    scatter = [both[c] - _smooth(both[c], WINDOW_LEAST) for c in ("loss_a", "loss_b")]
    if any(s.nunique() < 3 for s in scatter):
        return float("nan")
    return float(scatter[0].corr(scatter[1], method="spearman"))


def _rates_differ(both: pd.DataFrame) -> bool | None:
    known = both.dropna(subset=["learning_rate_a", "learning_rate_b"])
    if len(known) < STEPS_LEAST:
        return None
    a, b = known["learning_rate_a"], known["learning_rate_b"]
    return bool(((a - b).abs() > SAME_RATE * np.maximum(a.abs(), b.abs())).mean() > RATE_STEPS_SHARE)
