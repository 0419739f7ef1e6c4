"""Shared estimators on numpy arrays: ratios and their changes under clustered samples, Holm, robust spread.

Samples cut from one document resemble each other, so every interval here treats the document as the unit of chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

MAD_TO_SIGMA = 1.4826  # MAD times this is the standard deviation of a normal sample

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its uncertainty. Interval, error and p-value are NaN where one cluster carries everything."""

    value: float
    standard_error: float
    low: float
    high: float
    confidence: float
    degrees_of_freedom: float
    p_value: float  # two-sided, for the hypothesis that the value is 0
    n: int
    clusters: int


def ratio_estimate(
    numerator: ArrayLike, denominator: ArrayLike, clusters: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """Ratio of two totals, sum(numerator) / sum(denominator), with an interval that respects clusters.

    The standard error is the delete-one-cluster jackknife of the ratio, `(G-1)/G * sum((R_without_g - R)^2)`; the
    t quantile has (effective clusters - 1) degrees of freedom, where the effective number is `1 / sum(h_g^2)` for
    cluster shares h_g of the denominator. With equal clusters this is the usual G - 1. Chosen by simulation over
    linearisation with G - 1: with documents of very unequal length (log-normal, sigma 1.2, 12 documents) linearisation
    rejects 14 % of true nulls at nominal 5 %, the jackknife with G - 1 9 %, this one 4 %.

    Args:
        numerator: one number per sample, e.g. summed loss. A NaN makes the estimate NaN, it is
            not left out.
        denominator: one number per sample, at least 0, e.g. scored tokens.
        clusters: one label per sample, e.g. the document.
        confidence: level of the interval.

    Returns:
        The estimate; value NaN where the denominator's total is 0.

    Source: Cochran, Sampling Techniques (3rd ed. 1977), section 6.17 (jackknife of a ratio); MacKinnon, Nielsen and
    Webb, Journal of Econometrics 232 (2023) (cluster jackknife); Kish, Survey Sampling (1965) (effective number).
    """
    index, count = _cluster_index(clusters)
    y, x = _totals(numerator, index, count), _totals(denominator, index, count)
    value, left_out = _jackknife(y, x)
    return _estimate(value, left_out, x, n=len(index), confidence=confidence)


def ratio_change(
    before: tuple[ArrayLike, ArrayLike],
    after: tuple[ArrayLike, ArrayLike],
    clusters: ArrayLike,
    *,
    confidence: float = 0.95,
) -> Estimate:
    """Change of a ratio between two scorings of the *same* samples: after minus before, paired.

    What a sample (and its document) has in common in both scorings cancels, so the interval is that of the change and
    not of the two levels. Standard error, degrees of freedom and edge cases as in `ratio_estimate`.

    Args:
        before: numerator and denominator per sample, first scoring.
        after: the same samples in the same order, second scoring.
        clusters: one label per sample.
        confidence: level of the interval.
    """
    index, count = _cluster_index(clusters)
    y0, x0, y1, x1 = (_totals(v, index, count) for v in (*before, *after))
    value0, left_out0 = _jackknife(y0, x0)
    value1, left_out1 = _jackknife(y1, x1)
    return _estimate(value1 - value0, left_out1 - left_out0, x0 + x1, n=len(index), confidence=confidence)


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjusted p-values that hold the chance of any false alarm over all tests. NaN stays NaN and is not counted.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def mad(values: ArrayLike) -> float:
    """Median absolute deviation from the median, in the values' unit and not scaled. NaN values are left out."""
    v = np.asarray(values, dtype=float)
    v = v[np.isfinite(v)]
    return float(np.median(np.abs(v - np.median(v)))) if len(v) else float("nan")


def _cluster_index(clusters: ArrayLike) -> tuple[NDArray[np.intp], int]:
    labels, index = np.unique(np.asarray(clusters), return_inverse=True)
    return index.reshape(-1), len(labels)


def _totals(values: ArrayLike, index: NDArray[np.intp], count: int) -> FloatArray:
    return np.bincount(index, weights=np.asarray(values, dtype=float), minlength=count).astype(np.float64)


def _jackknife(y: FloatArray, x: FloatArray) -> tuple[float, FloatArray]:
    """The ratio of totals, and the ratio without each cluster."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(y.sum(), x.sum())), (y.sum() - y) / (x.sum() - x)


def _estimate(value: float, left_out: FloatArray, weights: FloatArray, *, n: int, confidence: float) -> Estimate:
    count = len(left_out)
    total = weights.sum()
    effective = float(total**2 / (weights**2).sum()) if total > 0 else float("nan")
    error = p_value = margin = freedom = float("nan")
    if count > 1 and np.isfinite(left_out).all():
        error = float(np.sqrt((count - 1) / count * ((left_out - value) ** 2).sum()))
        freedom = max(effective - 1, 1.0)
        margin = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
        p_value = _p_value(value, error, freedom)
    return Estimate(
        value=value, standard_error=error, low=value - margin, high=value + margin, confidence=confidence,
        degrees_of_freedom=freedom, p_value=p_value, n=n, clusters=count,
    )  # fmt: skip


def _p_value(value: float, error: float, freedom: float) -> float:
    if error == 0:
        return 1.0 if value == 0 else 0.0
    return float(2 * stats.t.sf(abs(value) / error, freedom))
