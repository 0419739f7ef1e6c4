"""Per-sample scores to metrics per subset, and to paired changes between checkpoints."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from workbench.analyses.statistics import Estimate, holm, ratio_change, ratio_estimate
from workbench.errors import UnknownParameterError
from workbench.tables import EVAL_SAMPLES, EVALS

ALL_SUBSETS = "all subsets"
MODEL_STATE = ["checkpoint", "step"]
CHANGE_COLUMNS = ["subset", "before", "after", "change", "low", "high", "confidence", "p_value", "p_holm", "n",
                  "documents", "unpaired"]  # fmt: skip
VERDICT_COLUMNS = ["reference", "role", "verdict"]


class _Ratio(NamedTuple):
    """A metric as a ratio of two sample columns, times a factor."""

    numerator: str
    denominator: str
    factor: float = 1.0


METRICS: dict[str, _Ratio] = {
    "loss": _Ratio("loss_nats", "scored_tokens"),
    "perplexity": _Ratio("loss_nats", "scored_tokens"),  # exp of the loss
    "bits_per_byte": _Ratio("loss_nats", "scored_bytes", 1 / math.log(2)),
    "next_token_accuracy": _Ratio("correct_tokens", "scored_tokens"),
}


def subset_metrics(eval_samples: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Metrics of every model state and subset, with intervals over documents.

    Each metric is a ratio of totals: loss = sum(loss_nats) / sum(scored_tokens), in nats per token; perplexity =
    exp(loss), the ends of its interval too; bits_per_byte = sum(loss_nats) / ln 2 / sum(scored_bytes);
    next_token_accuracy = sum(correct_tokens) / sum(scored_tokens), a share. Means of per-sample means would weigh a
    short sample like a long one.

    Args:
        eval_samples: table `eval_samples`, in any row order. A sample without a document is its own document.
        confidence: level of the intervals.

    Returns:
        One row per (checkpoint, step, subset, metric): value, low, high, confidence, n, documents. A metric whose
        columns (but the loss) are missing everywhere in the subset is left out; one with a single missing or NaN score
        is NaN (a diverged model has no good loss on the rest); low and high are NaN with fewer than two documents.
        Empty in, empty out.

    Raises:
        MissingColumnsError: `eval_samples` lacks a column.

    Source: Cochran, Sampling Techniques (1977), chapter 6; details in `workbench.analyses.statistics`.
    """
    samples = EVAL_SAMPLES.check(eval_samples)
    rows = [
        {**dict(zip([*MODEL_STATE, "subset"], key, strict=True)), **_metric_row(name, estimate)}
        for key, group in samples.groupby([*MODEL_STATE, "subset"], dropna=False)
        for name, estimate in _estimates(group, confidence)
    ]
    columns = [*MODEL_STATE, "subset", "metric", "value", "low", "high", "confidence", "n", "documents"]
    dtypes = {c.name: c.dtype for c in EVALS.columns if c.name in columns}
    return pd.DataFrame(rows, columns=columns).astype(dtypes)


def with_all_subsets(eval_samples: pd.DataFrame) -> pd.DataFrame:
    """The samples, and once more under the subset name `ALL_SUBSETS`, so that the whole is scored like a subset.

    The whole weighs each subset by its scored tokens. Document and sample ids are prefixed with their subset there.
    """
    samples = EVAL_SAMPLES.check(eval_samples)
    prefix = samples["subset"] + "/"
    whole = samples.assign(
        subset=ALL_SUBSETS, sample_id=prefix + samples["sample_id"], document_id=prefix + samples["document_id"]
    )
    return EVAL_SAMPLES.check(pd.concat([samples, whole], ignore_index=True))


def paired_changes(
    eval_samples: pd.DataFrame, before: str, after: str, *, metric: str = "loss", confidence: float = 0.95
) -> pd.DataFrame:
    """Change of a metric from checkpoint `before` to `after`, per subset, on the samples that both were scored on.

    Definition: difference of the two ratios of totals over the shared samples; cluster jackknife over documents for
    its error, t interval and two-sided p-value (`statistics.ratio_change`); p-values Holm-adjusted over the subsets
    of this table without `ALL_SUBSETS`, which is their sum and no further test.

    Args:
        eval_samples: table `eval_samples` with both checkpoints.
        before: checkpoint to compare with.
        after: checkpoint in question.
        metric: loss, bits_per_byte or next_token_accuracy.
        confidence: level of the intervals (not widened for the number of subsets).

    Returns:
        One row per subset: before, after, change (after - before), low, high, confidence, p_value, p_holm, n,
        documents, unpaired (samples scored on one side only). Empty where the checkpoints share no subset.

    Raises:
        UnknownParameterError: a checkpoint or metric is not there.
    """
    samples = EVAL_SAMPLES.check(eval_samples)
    _require(metric, [m for m in METRICS if m != "perplexity"], "metric")
    for checkpoint in (before, after):
        _require(checkpoint, samples["checkpoint"].dropna().unique(), "checkpoint")
    rows = [
        _change_row(subset, group, before, after, METRICS[metric], confidence)
        for subset, group in samples.groupby("subset")
        if {before, after} <= set(group["checkpoint"].dropna())
    ]
    changes = pd.DataFrame(rows, columns=CHANGE_COLUMNS)
    tests = changes["p_value"].where(changes["subset"] != ALL_SUBSETS).astype(float)
    return changes.assign(p_holm=holm(tests))


def checkpoints_in_order(evals: pd.DataFrame) -> list[str]:
    """Checkpoints of a table with `checkpoint` and `step`, by step, then name."""
    states = evals[MODEL_STATE].dropna(subset=["checkpoint"]).drop_duplicates().sort_values(["step", "checkpoint"])
    return list(dict.fromkeys(states["checkpoint"].astype(str)))


def reference_checkpoints(eval_samples: pd.DataFrame, checkpoint: str) -> dict[str, str]:
    """Which earlier checkpoints `checkpoint` is compared with: "previous" and "best".

    "best" has the lowest loss over all subsets among the checkpoints before this one, and may be the previous one.
    Both are left out for the first checkpoint.
    """
    order = checkpoints_in_order(eval_samples)
    _require(checkpoint, order, "checkpoint")
    earlier = order[: order.index(checkpoint)]
    if not earlier:
        return {}
    whole = with_all_subsets(eval_samples).query("subset == @ALL_SUBSETS and checkpoint in @earlier")
    losses = subset_metrics(whole).query("metric == 'loss'").dropna(subset=["value"])
    best = {"best": str(losses.loc[losses["value"].idxmin(), "checkpoint"])} if len(losses) else {}
    return {"previous": earlier[-1], **best}


def changes_from_references(
    eval_samples: pd.DataFrame, checkpoint: str, *, metric: str = "loss", confidence: float = 0.95
) -> pd.DataFrame:
    """Paired changes of a checkpoint against the previous and the best one before it, with a verdict in words.

    Returns:
        The rows of `paired_changes`, subsets first and `ALL_SUBSETS` last, with role ("previous" or "best"), reference
        ("previous: NAME", "best before: NAME"; where both are one checkpoint only "previous, also the best: NAME")
        and verdict: "better" or "worse" where the Holm-adjusted p-value (for the whole its own) is below
        1 - confidence, "within noise", or "not testable" (fewer than two documents, or a value that is not a number).
        Empty for the first checkpoint.
    """
    samples = with_all_subsets(eval_samples)
    sign = 1 if metric == "next_token_accuracy" else -1
    references = reference_checkpoints(eval_samples, checkpoint)
    words = {"previous": "previous", "best": "best before"}
    if references.get("best") == references.get("previous"):
        references.pop("best", None)
        words["previous"] = "previous, also the best"
    parts = []
    for role, other in references.items():
        changes = paired_changes(samples, other, checkpoint, metric=metric, confidence=confidence)
        p = changes["p_holm"].fillna(changes["p_value"])
        verdict = np.select(
            [p.isna(), p >= 1 - confidence, sign * changes["change"] > 0],
            ["not testable", "within noise", "better"],
            default="worse",
        )
        part = changes.assign(reference=f"{words[role]}: {other}", role=role, verdict=verdict)
        parts.append(part.sort_values("subset", key=lambda s: s == ALL_SUBSETS, kind="stable"))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*CHANGE_COLUMNS, *VERDICT_COLUMNS])


def _estimates(group: pd.DataFrame, confidence: float) -> list[tuple[str, Estimate]]:
    clusters = _clusters(group)
    given = group.notna().any()
    given["loss_nats"] = True  # a required column: all missing means a model that has no loss
    known = {m: r for m, r in METRICS.items() if given[r.numerator] and given[r.denominator]}
    estimates = []
    for name, ratio in known.items():
        top, bottom = group[ratio.numerator].to_numpy() * ratio.factor, group[ratio.denominator].to_numpy()
        estimate = ratio_estimate(top, bottom, clusters, confidence=confidence)
        estimates.append((name, _in_range(name, estimate)))
    return estimates


def _in_range(metric: str, estimate: Estimate) -> Estimate:
    if metric == "perplexity":
        value, low, high = (float(np.exp(v)) for v in (estimate.value, estimate.low, estimate.high))
        return replace(estimate, value=value, low=low, high=high)
    top = 1.0 if metric.endswith("accuracy") else math.inf
    return replace(estimate, low=float(np.maximum(estimate.low, 0)), high=float(np.minimum(estimate.high, top)))


def _metric_row(name: str, estimate: Estimate) -> dict[str, object]:
    return {
        "metric": name, "value": estimate.value, "low": estimate.low, "high": estimate.high,
        "confidence": estimate.confidence, "n": estimate.n, "documents": estimate.clusters,
    }  # fmt: skip


def _change_row(
    subset: object, group: pd.DataFrame, before: str, after: str, ratio: _Ratio, confidence: float
) -> dict[str, object]:
    sides = [
        group[group["checkpoint"] == c].drop_duplicates("sample_id").set_index("sample_id") for c in (before, after)
    ]
    shared = sides[0].index.intersection(sides[1].index)
    pairs = [
        (side.loc[shared, ratio.numerator].to_numpy() * ratio.factor, side.loc[shared, ratio.denominator].to_numpy())
        for side in sides
    ]
    clusters = _clusters(sides[1].loc[shared].reset_index())
    change = ratio_change(pairs[0], pairs[1], clusters, confidence=confidence)
    levels = [ratio_estimate(*pair, clusters).value for pair in pairs]
    return {
        "subset": subset, "before": levels[0], "after": levels[1], "change": change.value, "low": change.low,
        "high": change.high, "confidence": confidence, "p_value": change.p_value, "n": change.n,
        "documents": change.clusters, "unpaired": len(sides[0]) + len(sides[1]) - 2 * len(shared),
    }  # fmt: skip


def _clusters(group: pd.DataFrame) -> np.ndarray:
    """Document of each sample; a sample without one stands for itself."""
    own = "sample " + group["sample_id"]
    return ("document " + group["document_id"]).fillna(own).to_numpy(dtype=str)


def _require(name: str, known: object, what: str) -> None:
    if name not in (names := list(known)):  # type: ignore[call-overload]
        raise UnknownParameterError(f"There is no {what} {name!r}.", fix=f"use one of {sorted(map(str, names))}")
