"""Scores and training records of checkpoints -> which cannot be told from the best, which one to take, and why.

The lowest loss is not the best checkpoint: it is the luckiest of several equal ones, it may have paid for the mean with
one subset, and it may have been saved in a restless moment from which training goes on badly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.evaluation import checkpoints_in_order
from workbench.analyses.statistics import FloatArray
from workbench.analyses.training import SPIKE_SHARE, WINDOW_STEPS, job_steps, spikes
from workbench.errors import MissingTableError
from workbench.tables import EVAL_SAMPLES

SPREAD_WEIGHT = 0.5  # nats of mean loss that a nat lost on the worst subset is worth
UNREST_WEIGHT = 0.25  # nats per unit of unrest: a gradient norm e times its usual level
TREND_SIGMAS = 3.0
SMOOTH_NEIGHBOURS = 1  # checkpoints on either side that tell of one's true loss
COLUMNS = ["checkpoint", "step", "mean_loss", "worst_subset", "worst_subset_excess", "unrest", "spikes_before", "score",
           "behind", "low", "high", "improved", "in_best_set", "recommended", "why"]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """Losses per subset, document and checkpoint on shared samples, as totals."""

    names: list[str]
    subsets: list[str]
    top: list[FloatArray]  # per subset: documents x checkpoints, summed loss
    bottom: list[FloatArray]  # likewise, scored tokens

    def losses(self, without: tuple[int, int] | None = None) -> FloatArray:
        """Loss per subset and checkpoint; without a document of a subset, if one is given."""
        rows = []
        for k, (top, bottom) in enumerate(zip(self.top, self.bottom, strict=True)):
            up, down = top.sum(0), bottom.sum(0)
            if without is not None and without[0] == k:
                up, down = up - top[without[1]], down - bottom[without[1]]
            rows.append(up / down)
        return np.array(rows)


def rank_checkpoints(
    eval_samples: pd.DataFrame,
    training_steps: pd.DataFrame | None = None,
    *,
    weights: dict[str, float] | None = None,
    spread_weight: float = SPREAD_WEIGHT,
    unrest_weight: float = UNREST_WEIGHT,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Every evaluated checkpoint with its score, the best set, and the one recommended, with its reasons.

    score = mean loss over subsets + `spread_weight` x the most that a subset lost against its own best checkpoint +
    `unrest_weight` x unrest (`gradient_state`). The best set holds each checkpoint that is not worse than any other
    one beyond noise: paired differences of the scores, jackknife over the documents of each subset, one-sided t tests
    at level 1 - confidence, Bonferroni over the other checkpoints (Hsu's comparison with the best); so the truly best
    one is in it with at least that probability. Recommended is the lowest score of the set after smoothing over the
    neighbours in training, which takes out most of the luck.

    Args:
        eval_samples: table `eval_samples`; checkpoints are compared on the samples that all of them share.
        training_steps: table `training_steps`; without it unrest is 0.
        weights: weight of each subset in the mean loss; equal by default.
        spread_weight: see above.
        unrest_weight: see above.
        confidence: of the best set.

    Returns:
        One row per checkpoint in order: checkpoint, step, mean_loss, worst_subset, worst_subset_excess (nats that it
        lost against its own best), unrest, spikes_before, score, behind (score above that of the recommended one) with
        low and high, improved (better than every earlier one beyond noise; the first always), in_best_set, recommended,
        why. A checkpoint without a finite loss is never in the set.

    Raises:
        MissingTableError: no checkpoint has scores, or they share no sample.

    Source: Hsu, Multiple Comparisons (1996), chapter 4; weights ours, see docs/evaluation.md.
    """
    scores = _scores(eval_samples)
    steps = _steps(eval_samples, scores.names)
    share = _weights(scores.subsets, weights)
    state = gradient_state(training_steps, steps)
    unrest = state["unrest"].to_numpy(dtype=float)

    def utility(losses: FloatArray) -> FloatArray:
        excess = (losses - _own_best(losses)).max(0)
        return np.asarray(share @ losses + spread_weight * excess + unrest_weight * unrest)

    losses = scores.losses()
    total = utility(losses)
    left_out = [[utility(scores.losses((k, d))) for d in range(len(t))] for k, t in enumerate(scores.top)]
    errors, freedom = _pair_errors(total, left_out)
    inside = _best_set(total, errors, freedom, confidence)
    chosen = _recommended(total, unrest_weight * unrest, inside)
    excess = losses - _own_best(losses)
    worst = excess.argmax(0)
    margin = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * errors[:, chosen]
    behind = total - total[chosen]
    table = state.assign(
        checkpoint=scores.names, step=steps.to_numpy(), mean_loss=share @ losses,
        worst_subset=[scores.subsets[k] for k in worst], worst_subset_excess=excess.max(0), score=total, behind=behind,
        low=behind - margin, high=behind + margin, improved=_improved(total, errors, freedom, confidence),
        in_best_set=inside,
        recommended=np.arange(len(total)) == chosen,
    )  # fmt: skip
    return table.assign(why=[_why(row, table) for row in table.to_dict("records")])[COLUMNS]


def gradient_state(
    training_steps: pd.DataFrame | None, steps: pd.Series, *, window: int = WINDOW_STEPS
) -> pd.DataFrame:
    """How restless the training was in the `window` steps up to each given step.

    unrest = how far the log of the mean gradient norm of the window lies above that of the median of the three windows
    around it (less `SPIKE_SHARE`, at least 0), plus log1p of the number of gradient and loss spikes in the window, plus
    the growth of the log inside the window where it is beyond `TREND_SIGMAS` of its error. 0 without records.

    Returns:
        One row per step: unrest, spikes_before, in the order given.
    """
    quiet = pd.DataFrame({"unrest": 0.0, "spikes_before": 0}, index=range(len(steps)))
    if training_steps is None or not len(training_steps):
        return quiet
    job = job_steps(training_steps)
    if not job["gradient_norm"].notna().any():
        return quiet
    jumps = pd.concat([spikes(job, c) for c in ("gradient_norm", "loss")], ignore_index=True)
    rows = [_state(job, jumps, int(s), window) if pd.notna(s) else (0.0, 0) for s in steps]
    return pd.DataFrame(rows, columns=["unrest", "spikes_before"])


def _state(job: pd.DataFrame, jumps: pd.DataFrame, step: int, window: int) -> tuple[float, int]:
    near = job[job["step"].between(step - window + 1, step)]["gradient_norm"].dropna()
    around = job[job["step"].between(step - 2 * window + 1, step + window)]["gradient_norm"].dropna()
    count = int((jumps["last_step"].between(step - window + 1, step)).sum()) if len(jumps) else 0
    if len(near) < 5 or not (around.median() > 0):
        return math.log1p(count), count
    level = max(math.log(near.mean() / around.median()) - SPIKE_SHARE, 0.0)
    slope = stats.linregress(np.arange(len(near)), np.log(near.clip(lower=1e-12)))
    growth = slope.slope * (len(near) - 1)
    trend = growth if slope.slope > TREND_SIGMAS * slope.stderr else 0.0
    return level + math.log1p(count) + trend, count


def _scores(eval_samples: pd.DataFrame) -> _Scores:
    rows = EVAL_SAMPLES.check(eval_samples).dropna(subset=["checkpoint"])
    names = checkpoints_in_order(rows) if len(rows) else []
    tops: list[FloatArray] = []
    bottoms: list[FloatArray] = []
    subsets: list[str] = []
    for subset, group in rows.groupby("subset", sort=False):
        wide = group.pivot_table(index="sample_id", columns="checkpoint", values=["loss_nats", "scored_tokens"],
                                 aggfunc="first", dropna=False)  # fmt: skip
        wide = wide.reindex(columns=pd.MultiIndex.from_product([["loss_nats", "scored_tokens"], names]))
        shared = wide[wide["scored_tokens"].notna().all(axis=1)]
        if shared.empty:
            continue
        documents = group.drop_duplicates("sample_id").set_index("sample_id")["document_id"].reindex(shared.index)
        clusters = pd.factorize(documents.fillna(shared.index.to_series()))[0]
        for matrix, column in ((tops, "loss_nats"), (bottoms, "scored_tokens")):
            values = shared[column].to_numpy(dtype=float)
            matrix.append(np.stack([np.bincount(clusters, v) for v in values.T], 1))
        subsets.append(str(subset))
    if not subsets:
        raise MissingTableError("No two checkpoints were scored on the same samples.",
                                fix="evaluate the checkpoints with one task: `workbench report RUN`")  # fmt: skip
    return _Scores(names=names, subsets=subsets, top=tops, bottom=bottoms)


def _steps(eval_samples: pd.DataFrame, names: list[str]) -> pd.Series:
    rows = eval_samples.dropna(subset=["checkpoint"]).drop_duplicates("checkpoint").set_index("checkpoint")
    return rows["step"].reindex(names).reset_index(drop=True)


def _own_best(losses: FloatArray) -> FloatArray:
    """The lowest loss of each subset over the checkpoints that have one."""
    return np.where(np.isfinite(losses), losses, np.inf).min(1, keepdims=True)


def _weights(subsets: list[str], weights: dict[str, float] | None) -> FloatArray:
    given = np.array([1.0 if weights is None else weights.get(s, 0.0) for s in subsets])
    return given / given.sum() if given.sum() > 0 else np.full(len(subsets), 1 / len(subsets))


def _pair_errors(total: FloatArray, left_out: list[list[FloatArray]]) -> tuple[FloatArray, float]:
    """Standard errors of the differences of all pairs, and their degrees of freedom (documents less subsets)."""
    variance = np.zeros((len(total), len(total)))
    freedom = 0.0
    for documents in left_out:
        if len(documents) < 2:
            continue
        moved = np.array(documents) - total
        difference = moved[:, :, None] - moved[:, None, :]
        difference = difference - difference.mean(0)
        variance += (len(documents) - 1) / len(documents) * (difference**2).sum(0)
        freedom += len(documents) - 1
    return np.sqrt(variance), max(freedom, 1.0)


def _best_set(total: FloatArray, errors: FloatArray, freedom: float, confidence: float) -> np.ndarray:
    usable = np.isfinite(total)
    others = max(int(usable.sum()) - 1, 1)
    factor = float(stats.t.ppf(1 - (1 - confidence) / others, freedom))
    behind = total[:, None] - total[None, :]
    behind[:, ~usable] = -np.inf
    return usable & (behind <= factor * np.nan_to_num(errors)).all(1)


def _improved(total: FloatArray, errors: FloatArray, freedom: float, confidence: float) -> list[bool]:
    factor = float(stats.t.ppf(confidence, freedom))
    gains = total[None, :] - total[:, None] - factor * np.nan_to_num(errors)  # row: later one, column: earlier one
    finite = np.isfinite(total)
    return [bool(finite[i] and (gains[i, :i][finite[:i]] > 0).all()) for i in range(len(total))]


def _recommended(total: FloatArray, unrest: FloatArray, inside: np.ndarray) -> int:
    """The lowest score of the set, the evaluated part of it averaged with the neighbours in training."""
    evaluated = pd.Series(np.where(np.isfinite(total), total - unrest, np.nan))
    smooth = evaluated.rolling(2 * SMOOTH_NEIGHBOURS + 1, center=True, min_periods=1).mean().to_numpy() + unrest
    ranked = np.where(inside, (smooth + np.nan_to_num(total, nan=np.inf)) / 2, np.inf)
    return int(ranked.argmin())


def _why(row: dict, table: pd.DataFrame) -> str:
    best = table[table["recommended"]].iloc[0]
    if not math.isfinite(row["score"]):
        return "its loss is not a number"
    if row["recommended"]:
        return _praise(row, table)
    parts = []
    if (more := row["mean_loss"] - best["mean_loss"]) > 0:
        parts.append(f"mean loss {more:+.3f}")
    if (more := row["worst_subset_excess"] - best["worst_subset_excess"]) > 0:
        parts.append(f"{row['worst_subset']} lost {row['worst_subset_excess']:.3f} against its best")
    if (row["unrest"] - best["unrest"]) > 0:
        restless = f"{spikes} spike(s)" if (spikes := row["spikes_before"]) else "their norm is high or grows"
        parts.append(f"restless gradients before it ({restless})")
    told = "cannot be told from the best" if row["in_best_set"] else "worse beyond noise"
    return f"{told}: {', '.join(parts)}" if parts else f"{told}; its neighbours in training are worse"


def _praise(row: dict, table: pd.DataFrame) -> str:
    equals = int(table["in_best_set"].sum()) - 1
    lowest = table.loc[table["mean_loss"].idxmin()]
    text = "the lowest score" if row["score"] <= table["score"].min() else "as good as the best, with calmer neighbours"
    text += f", {equals} other(s) cannot be told from it" if equals else ", better than all others beyond noise"
    if lowest["checkpoint"] != row["checkpoint"]:
        text += f"; the lowest mean loss is {lowest['checkpoint']}'s, which has {_faults(lowest, row)}"
    return text


def _faults(lowest: pd.Series, row: dict) -> str:
    faults = []
    if lowest["worst_subset_excess"] > row["worst_subset_excess"]:
        faults.append(f"{lowest['worst_subset']} {lowest['worst_subset_excess']:.3f} above its best")
    if lowest["unrest"] > row["unrest"]:
        faults.append("restless gradients before it")
    return " and ".join(faults) or "worse neighbours in training"
