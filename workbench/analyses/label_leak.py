"""Training loss, held-out loss and generated text -> whether the loss is lower than it can honestly be."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.training import level_at

IMPLAUSIBLE_NATS = 0.1  # per token: natural text leaves the best models 1 to 3 nats, formal text a few tenths
TEXT_NATS = 1.0  # first loss below which it may be no entropy of text: a squared error, a preference or a yes-no loss
HELD_OUT_TIMES = 10.0  # a held-out loss up to so many times the training loss has gone down with it
FALLEN_SHARE = 0.1  # of the first level: what a score or a norm has left when it collapses
REPEATED_SHARE = 0.3  # of the n-grams of a text: written text repeats below a tenth
SOLVED_SHARE = 0.9
SMOOTHED = 5
_LOSS = re.compile(r"loss|perplexity|ppl|nll", re.IGNORECASE)
_PERPLEXITY = re.compile(r"perplexity|ppl", re.IGNORECASE)
_REPEATS = re.compile(r"repeat|repet|(?:^|_)rep(?:_|$|\d)|loop|dup", re.IGNORECASE)
_MATCHES = re.compile(r"exact|match|accuracy|\bem\b|bleu|rouge|pass|f1|score", re.IGNORECASE)
_FORCED = re.compile(r"forced|token", re.IGNORECASE)  # scored beside the answer: it rises with the leak


@dataclass(frozen=True, kw_only=True)
class LowLoss:
    """A loss that fell below `IMPLAUSIBLE_NATS` and stayed there.

    Attributes:
        first_step: first step of it; last_step: last step with a loss.
        level: median loss from there on; first_loss: before.
        epoch: largest epoch up to `first_step`; None where it is not known.
        norm_share: gradient norm at the end against the beginning; NaN where not recorded.
    """

    first_step: int
    last_step: int
    level: float
    first_loss: float
    epoch: int | None
    norm_share: float


def low_loss(job: pd.DataFrame, training_steps: pd.DataFrame) -> LowLoss | None:
    """The loss that is too low to be true, None where it is not.

    A loss of exactly 0 with a gradient norm that is no number is a NaN that its writer filtered, and no low loss.

    Args:
        job: as `workbench.analyses.training.job_steps` returns: ranks without a loss are left out.
        training_steps: table `training_steps`, for the epochs.
    """
    known = job[np.isfinite(job["loss"])]
    known = known[~((known["loss"] == 0) & known["gradient_norm"].isna())]
    if len(known) < SMOOTHED or known["loss"].min() < 0:
        return None
    smooth = known["loss"].rolling(SMOOTHED, center=True, min_periods=1).median()
    above = np.flatnonzero(smooth.to_numpy() >= IMPLAUSIBLE_NATS)
    first = int(above[-1]) + 1 if len(above) else 0
    if len(known) - first < SMOOTHED:
        return None
    step = int(known["step"].iloc[first])
    epochs = training_steps.loc[training_steps["step"] <= step, "epoch"].dropna()
    norm = known.loc[np.isfinite(known["gradient_norm"]), "gradient_norm"]
    return LowLoss(
        first_step=step,
        last_step=int(known["step"].iloc[-1]),
        level=float(known["loss"].iloc[first:].median()),
        first_loss=float(known["loss"].iloc[0]),
        epoch=int(epochs.max()) if len(epochs) else None,
        norm_share=float(norm.tail(SMOOTHED).median() / norm.iloc[0]) if len(norm) > SMOOTHED else float("nan"),
    )


def held_out_losses(evals: pd.DataFrame | None, first_step: int) -> pd.DataFrame:
    """Losses on data that the model does not train on, from the step on at which the training loss became too low.

    Returns:
        One row per subset and metric that is a loss, a perplexity as its logarithm: subset, metric, value (last, in
        nats), step, first_value.
    """
    found = _courses(evals, _LOSS)
    late = found[found["step"] >= 0.5 * first_step].reset_index(drop=True)
    is_ppl = late["metric"].str.contains(_PERPLEXITY)
    for column in ("value", "first_value"):
        late[column] = (
            late[column].astype("float64").mask(is_ppl, np.log(late[column].astype("float64").clip(lower=1.0)))
        )
    return late


def collapsed_generation(evals: pd.DataFrame | None) -> pd.DataFrame:
    """Scores of freely generated text that got worse: rates of repetition that rose, matches that fell to nothing.

    Returns:
        One row per subset and metric: subset, metric, first_value, value, step, kind (repeats or matches).
    """
    repeats = _courses(evals, _REPEATS)
    repeats = repeats[repeats["value"] - repeats["first_value"] >= REPEATED_SHARE].assign(kind="repeats")
    matches = _courses(evals, _MATCHES)
    lost = matches["metric"].str.contains(_REPEATS) | matches["metric"].str.contains(_FORCED)
    fallen = (matches["first_value"] > 0) & (matches["value"] <= FALLEN_SHARE * matches["first_value"])
    return pd.concat([repeats, matches[fallen & ~lost].assign(kind="matches")], ignore_index=True)


def improved_matches(evals: pd.DataFrame | None) -> bool:
    """Whether a score of matches rose to (almost) all: a task that can be solved, as classifying digits."""
    matches = _courses(evals, _MATCHES)
    matches = matches[~matches["metric"].str.contains(_REPEATS) & ~matches["metric"].str.contains(_FORCED)]
    return bool(((matches["value"] >= SOLVED_SHARE) & (matches["value"] > matches["first_value"])).any())


def held_out_gap(job: pd.DataFrame, evals: pd.DataFrame | None) -> tuple[float, float, int] | None:
    """Held-out loss over training loss at the first and the last evaluation, and the step of the last.

    Of the subset whose ratio grew least; None where no subset has two evaluations beside recorded training losses.
    """
    if evals is None or "loss" not in job or job["loss"].notna().sum() < SMOOTHED:
        return None
    losses = evals[(evals["metric"] == "loss") & evals["step"].notna() & (evals["step"] > 0)].sort_values("step")
    found = []
    for _, part in losses.groupby("subset"):
        ratios = [float(r.value) / level_at(job, "loss", int(r.step), window=SMOOTHED) for r in part.itertuples()]
        if len(ratios) > 1 and np.isfinite([ratios[0], ratios[-1]]).all():
            found.append((ratios[0], ratios[-1], int(part["step"].iloc[-1])))
    return min(found, key=lambda r: r[1] / r[0], default=None)


def _courses(evals: pd.DataFrame | None, names: re.Pattern[str]) -> pd.DataFrame:
    """First and last value of each metric with such a name."""
    columns = ["subset", "metric", "first_value", "value", "step"]
    if evals is None or evals.empty:
        return pd.DataFrame(columns=columns).astype({"metric": "str", "step": "float64"})
    of_name = evals[evals["metric"].str.contains(names).fillna(False)].dropna(subset=["step"]).sort_values("step")
    rows = [
        {"subset": subset, "metric": metric, "first_value": float(part["value"].iloc[0]),
         "value": float(part["value"].iloc[-1]), "step": float(part["step"].iloc[-1])}
        for (subset, metric), part in of_name.groupby(["subset", "metric"])
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"metric": "str", "step": "float64"})
