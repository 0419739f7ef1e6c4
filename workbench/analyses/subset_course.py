"""Scores of subsets over the training -> the drops that are beyond noise, each with its size and its onset.

A drop is judged at the end of the course: the latest evaluations against the best earlier ones of the same subset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.statistics import MAD_TO_SIGMA, FloatArray, holm, ratio_change
from workbench.metrics import METRICS
from workbench.tables import EVAL_SAMPLES, EVALS

WINDOW = 3  # evaluations that are averaged at most on either side
SHARED_SHARE = 0.8  # an evaluation that shares fewer of the latest samples is of another set and left out
LEAST_SCATTER_POINTS = 5  # evaluations needed to tell how much a score moves from one to the next
OVERDISPERSED = 6.0  # few evaluations scatter by chance: so many times the variance of their sampling is believed
OTHERS_FACTOR = 2.0  # a course that jumps looks restless: its scatter is capped at so many times that of the others
NOISE_SIGMAS = 2.0  # an evaluation within so many standard errors of the reference is still as good
LOWER_IS_BETTER = ("loss", "perplexity", "ppl", "error")
COLUMNS = ["kind", "subset", "metric", "better", "before", "after", "latest", "change", "low", "high", "confidence",
           "p_value", "p_holm", "n", "evaluations", "earliest_step", "reference_last_step", "last_good_step",
           "first_bad_step", "last_step", "state_error"]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Mean of the later evaluations minus mean of the earlier ones."""

    value: float
    standard_error: float
    freedom: float


@dataclass(frozen=True, kw_only=True)
class Course:
    """One metric of one subset over the training. `compare` takes positions of earlier and later evaluations."""

    kind: str
    subset: str
    metric: str
    sign: int  # +1 where a rise is worse, -1 where a fall is
    steps: np.ndarray
    scores: FloatArray
    n: int
    compare: Callable[[slice, slice], Difference]  # with the error of sampling; 0 where that is not known
    overdispersed: float = 1.0  # scatter beyond so many times the variance of sampling is the model's


def score_drops(evals: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Drops in courses of scores, taken as independent samplings.

    The error of a share (a metric in [0, 1] with n) is binomial, `p (1 - p) / n` with p drawn towards 1/2 by four
    samples; of other metrics the half width of the interval; where neither is known, the scatter of the course itself
    (second differences). Metrics without a direction in the catalogue are left out.

    Args:
        evals: table `evals`; rows without a step are left out. Several rows of a step are averaged.
        confidence: level of the intervals.

    Returns:
        One row per course of at least two evaluations, see `drops`. Empty in, empty out.

    Source: Agresti and Coull, The American Statistician 52 (1998) (error of a share).
    """
    rows = EVALS.check(evals).dropna(subset=["step", "value"])
    keys = rows.groupby(["kind", "subset", "metric"], sort=False, dropna=False)
    courses = [c for key, group in keys if (c := _scored(key, group)) is not None]
    return drops(courses, confidence=confidence)


def paired_drops(eval_samples: pd.DataFrame, *, metric: str = "loss", confidence: float = 0.95) -> pd.DataFrame:
    """Drops in courses of losses on the same samples, paired by sample and clustered by document.

    Inline evaluations (without a checkpoint) and checkpoints make separate courses. An evaluation that shares less
    than `SHARED_SHARE` of the latest samples is left out; the others are compared on what all of them share.

    Args:
        eval_samples: table `eval_samples`; rows without a step are left out.
        metric: loss (nats per token).
        confidence: level of the intervals.

    Returns:
        One row per course of at least two evaluations, see `drops`.
    """
    rows = EVAL_SAMPLES.check(eval_samples).dropna(subset=["step"])
    kinds = rows["checkpoint"].isna().map(lambda flag: kind_of_samples(is_inline=flag))
    courses = [
        course
        for (kind, subset), group in rows.groupby([kinds, "subset"], sort=False)
        if (course := _paired(str(kind), str(subset), metric, group)) is not None
    ]
    return drops(courses, confidence=confidence)


def kind_of_samples(*, is_inline: bool) -> str:
    """The word of column `kind`: samples without a checkpoint come from inline evaluations."""
    return "inline" if is_inline else "checkpoint"


def drops(courses: Sequence[Course], *, confidence: float = 0.95) -> pd.DataFrame:
    """The largest drop of each course, in standard errors, between an earlier window and the latest evaluations.

    All windows of up to `WINDOW` evaluations are tried on both sides; the one-sided p-value is multiplied with the
    number of tries (Bonferroni), then Holm-adjusted over the courses. A model moves from evaluation to evaluation
    beyond sampling: where the scatter of a course shows that, it is part of the error (Satterthwaite's degrees of
    freedom).

    Returns:
        One row per course: kind, subset, metric, better ("lower" or "higher"), before, after, latest (the last
        evaluation alone), change (after - before), low, high, confidence, p_value, p_holm, n, evaluations,
        reference_last_step (last evaluation of the window that it fell from), earliest_step (the one before it: a
        cause that acts slowly may date from there), last_good_step and first_bad_step (it
        began between the two), last_step, state_error (what single evaluations add to the error of sampling).
    """
    scatters = [scatter(c.scores) for c in courses]
    rows = []
    for i, course in enumerate(courses):
        others = [s for j, s in enumerate(scatters) if j != i and courses[j].metric == course.metric and s == s]
        cap = OTHERS_FACTOR * float(np.median(others)) if others else math.inf
        noisy = _Noisy(course, _state_error(course, min(scatters[i], cap)))
        if noisy.state_error is not None:
            rows.append(_drop(noisy, confidence))
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.assign(p_holm=holm(table["p_value"].astype(float)))


def scatter(scores: FloatArray) -> float:
    """Standard deviation of single evaluations around a smooth course, from second differences; NaN for too few."""
    if len(scores) < LEAST_SCATTER_POINTS:
        return math.nan
    second = np.diff(scores, 2)
    return float(np.median(np.abs(second)) * MAD_TO_SIGMA / math.sqrt(6))  # var(a - 2b + c) = 6 var


def _state_error(course: Course, own: float) -> float | None:
    """Standard deviation of what evaluations add beyond sampling; None where neither of the two is known."""
    neighbours = [course.compare(slice(i, i + 1), slice(i + 1, i + 2)) for i in range(len(course.scores) - 1)]
    sampling = float(np.median([d.standard_error**2 for d in neighbours])) / 2
    if sampling == 0 and math.isnan(own):
        return None
    beyond = own**2 - sampling
    return math.sqrt(beyond) if own**2 > course.overdispersed * sampling else 0.0


@dataclass(frozen=True)
class _Noisy:
    """A course, and the error that each of its evaluations has beyond sampling."""

    course: Course
    state_error: float | None

    def compare(self, before: slice, after: slice) -> Difference:
        d = self.course.compare(before, after)
        sampling, state = d.standard_error**2, (self.state_error or 0.0) ** 2
        state *= 1 / (before.stop - before.start) + 1 / (after.stop - after.start)
        total = sampling + state
        parts = sampling**2 / d.freedom + state**2 / max(len(self.course.scores) - 2, 1)
        freedom = max(total**2 / parts, 1.0) if parts > 0 else math.inf
        return Difference(value=d.value, standard_error=max(math.sqrt(total), 1e-12), freedom=freedom)

    def worse(self, difference: Difference) -> float:
        """How much worse, in standard errors."""
        return self.course.sign * difference.value / difference.standard_error


def _drop(noisy: _Noisy, confidence: float) -> dict[str, object]:
    course = noisy.course
    tries = [(noisy.worse(d), d, before, after) for before, after, d in _windows(noisy)]
    sigmas, best, before, after = max(tries, key=lambda t: (t[0], t[3].start))
    p_value = float(stats.t.sf(sigmas, best.freedom)) * len(tries)
    margin = float(stats.t.ppf(0.5 + confidence / 2, best.freedom)) * best.standard_error
    good, bad = _onset(noisy, before, after)
    level = float(course.scores[before].mean())
    return {
        "kind": course.kind, "subset": course.subset, "metric": course.metric,
        "better": "lower" if course.sign > 0 else "higher", "before": level, "after": level + best.value,
        "latest": float(course.scores[-1]), "change": best.value, "low": best.value - margin,
        "high": best.value + margin, "confidence": confidence, "p_value": min(p_value, 1.0), "n": course.n,
        "evaluations": len(course.scores),
        "earliest_step": int(course.steps[max(before.stop - 2, 0)]),
        "reference_last_step": int(course.steps[before.stop - 1]),
        "last_good_step": int(course.steps[good]), "first_bad_step": int(course.steps[bad]),
        "last_step": int(course.steps[-1]), "state_error": noisy.state_error,
    }  # fmt: skip


def _windows(noisy: _Noisy) -> Iterator[tuple[slice, slice, Difference]]:
    count = len(noisy.course.scores)
    for end in range(1, count):
        before = slice(max(0, end - WINDOW), end)
        for start in range(max(end, count - WINDOW), count):
            after = slice(start, count)
            yield before, after, noisy.compare(before, after)


def _onset(noisy: _Noisy, before: slice, after: slice) -> tuple[int, int]:
    """Positions of the last evaluation that was still as good as the reference, and of the first that was not."""
    good = before.stop - 1
    for i in range(before.stop, after.start):
        if noisy.worse(noisy.compare(before, slice(i, i + 1))) <= NOISE_SIGMAS:
            good = i
    return good, good + 1


def _scored(key: Sequence[object], group: pd.DataFrame) -> Course | None:
    kind, subset, metric = (str(k) for k in key)
    means = group.groupby("step")[["value", "low", "high", "confidence", "n"]].mean().sort_index()
    values = means["value"].to_numpy(dtype=float)
    is_share = bool(((values >= 0) & (values <= 1)).all()) and means["n"].notna().all()
    sign = _sign(metric, is_share=is_share)
    variance = _variances(means, is_share)
    if sign is None or len(values) < 2:
        return None
    known = np.isfinite(variance).all()

    def compare(before: slice, after: slice) -> Difference:
        errors = [float(variance[s].sum()) / len(variance[s]) ** 2 if known else 0.0 for s in (before, after)]
        change = float(values[after].mean() - values[before].mean())
        return Difference(value=change, standard_error=math.sqrt(sum(errors)), freedom=math.inf)

    n = int(np.nan_to_num(means["n"].to_numpy(dtype=float)).max())
    return Course(kind=kind, subset=subset, metric=metric, sign=sign, steps=means.index.to_numpy(dtype=np.int64),
                  scores=values, n=n, compare=compare, overdispersed=OVERDISPERSED)  # fmt: skip


def _variances(means: pd.DataFrame, is_share: bool) -> FloatArray:
    """Sampling variance of each evaluation; NaN where it is not known."""
    n = means["n"].to_numpy(dtype=float)
    if is_share:
        drawn = (means["value"].to_numpy(dtype=float) * n + 2) / (n + 4)
        return np.asarray(drawn * (1 - drawn) / n)
    quantile = stats.norm.ppf(0.5 + means["confidence"].fillna(0.95).to_numpy(dtype=float) / 2)
    return np.asarray(((means["high"] - means["low"]).to_numpy(dtype=float) / 2 / quantile) ** 2)


def _sign(metric: str, *, is_share: bool) -> int | None:
    if metric in METRICS and METRICS[metric].better != "steady":
        return 1 if METRICS[metric].better == "lower" else -1
    if any(word in metric.lower() for word in LOWER_IS_BETTER):
        return 1
    return -1 if is_share else None


def _paired(kind: str, subset: str, metric: str, group: pd.DataFrame) -> Course | None:
    loss, tokens = (
        group.pivot_table(index="sample_id", columns="step", values=c, aggfunc="first", dropna=False)
        for c in ("loss_nats", "scored_tokens")
    )
    latest = loss.index[loss.iloc[:, -1].notna()] if loss.shape[1] else loss.index
    kept = loss.columns[loss.loc[latest].notna().mean() >= SHARED_SHARE]
    loss = loss.loc[latest, kept].dropna()
    if len(kept) < 2 or len(loss) < 2:
        return None
    documents = group.drop_duplicates("sample_id").set_index("sample_id")["document_id"].reindex(loss.index)
    clusters = pd.factorize(documents.fillna(loss.index.to_series()))[0]
    top, bottom = loss.to_numpy(dtype=float), tokens.loc[loss.index, kept].to_numpy(dtype=float)
    totals = [np.stack([np.bincount(clusters, c).astype(np.float64) for c in m.T], 1) for m in (top, bottom)]
    return _paired_course(kind, subset, metric, kept.to_numpy(dtype=np.int64), *totals, n=len(loss))


def _paired_course(
    kind: str, subset: str, metric: str, steps: np.ndarray, top: FloatArray, bottom: FloatArray, *, n: int
) -> Course | None:
    """A course from totals per document and evaluation."""
    if len(top) < 2:
        return None
    names = np.arange(len(top))

    def compare(before: slice, after: slice) -> Difference:
        sides = [(top[:, s].mean(1), bottom[:, s].mean(1)) for s in (before, after)]
        change = ratio_change(sides[0], sides[1], names)
        return Difference(value=change.value, standard_error=change.standard_error, freedom=change.degrees_of_freedom)

    return Course(kind=kind, subset=subset, metric=metric, sign=1, steps=steps, scores=top.sum(0) / bottom.sum(0), n=n,
                  compare=compare)  # fmt: skip
