"""Table `variant_samples` -> what a change of the input costs, paired on the same targets."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.statistics import holm, ratio_change, ratio_estimate
from workbench.errors import UnknownParameterError
from workbench.tables import VARIANT_SAMPLES

ORIGINAL = "original"
STATE = ["checkpoint", "step", "dimension", "subset"]
COLUMNS = [*STATE, "variant", "original", "loss", "change", "low", "high", "confidence", "p_value", "p_holm", "n",
           "documents"]  # fmt: skip


def variant_changes(variant_samples: pd.DataFrame, dimension: str, *, confidence: float = 0.95) -> pd.DataFrame:
    """Change of the loss that each variant of the input causes, per model state and subset.

    Only samples scored both as they were and in the variant count; their targets are the same tokens, so that nothing
    but the input differs. Positive: the variant makes the targets harder to predict.

    Args:
        variant_samples: table `variant_samples`.
        dimension: robustness or context_length.
        confidence: level of the intervals.

    Returns:
        One row per (checkpoint, step, subset, variant): dimension, original and loss (nats per token without and with
        the variant), change, low, high, confidence, p_value, p_holm (over the rows of a checkpoint), n, documents.

    Raises:
        UnknownParameterError: there is no such dimension in the table.

    Source: `workbench.analyses.statistics.ratio_change` (cluster jackknife over documents, paired).
    """
    samples = VARIANT_SAMPLES.check(variant_samples)
    own = samples[samples["dimension"] == dimension]
    if own.empty:
        known = sorted(samples["dimension"].unique())
        raise UnknownParameterError(f"No samples of dimension {dimension!r}.", fix=f"use one of {known}")
    rows = []
    for key, group in own.groupby(STATE, dropna=False):
        original = group[group["variant"] == ORIGINAL].drop_duplicates("sample_id").set_index("sample_id")
        for variant, part in group[group["variant"] != ORIGINAL].groupby("variant", sort=False):
            paired = part.drop_duplicates("sample_id").set_index("sample_id")
            shared = original.index.intersection(paired.index)
            if len(shared):
                place = {**dict(zip(STATE, key, strict=True)), "variant": variant}
                rows.append(place | _change(original.loc[shared], paired.loc[shared], confidence))
    table = pd.DataFrame(rows, columns=COLUMNS)
    adjusted = table.groupby(["checkpoint", "step"], dropna=False)["p_value"].transform(lambda p: holm(p))
    return table.assign(p_holm=adjusted if len(table) else table["p_value"])


def _change(original: pd.DataFrame, paired: pd.DataFrame, confidence: float) -> dict[str, object]:
    sides = [(s["loss_nats"].to_numpy(), s["scored_tokens"].to_numpy()) for s in (original, paired)]
    clusters = original["document_id"].fillna(original.index.to_series()).to_numpy(dtype=str)
    change = ratio_change(sides[0], sides[1], clusters, confidence=confidence)
    levels = [ratio_estimate(*side, clusters).value for side in sides]
    return {
        "original": levels[0], "loss": levels[1], "change": change.value, "low": change.low, "high": change.high,
        "confidence": confidence, "p_value": change.p_value, "n": change.n, "documents": change.clusters,
    }  # fmt: skip
