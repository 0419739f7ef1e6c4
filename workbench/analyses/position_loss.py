"""Per-sample scores with losses by place -> loss by sample length and by place in the sample.

A model that was trained on short windows is good at early places and bad beyond its training length; a model that
sees its context gets better from place to place.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from workbench.analyses.statistics import ratio_estimate
from workbench.tables import EVAL_SAMPLES

FIRST_POSITIONS = 8  # places of the first bin; the others end at twice the end of the one before
COLUMNS = ["checkpoint", "step", "subset", "low_tokens", "high_tokens", "first_position", "last_position", "loss",
           "low", "high", "perplexity", "n", "documents", "beyond_training"]  # fmt: skip


def loss_by_position(
    eval_samples: pd.DataFrame, *, training_length: float | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Loss by sample length (bins that end at powers of two) and by place in the sample (likewise).

    Args:
        eval_samples: table `eval_samples`; rows without `position_losses` are left out.
        training_length: tokens of a training window; places beyond are marked.
        confidence: level of the intervals, which are over documents.

    Returns:
        One row per (checkpoint, step, subset, length bin, place bin): low_tokens and high_tokens of the samples,
        first_position and last_position (from 1), loss (nats per token) with low and high, perplexity, n, documents,
        beyond_training (the bin begins beyond the training length; missing where that is not known). Empty in, empty
        out; a row whose text is no JSON list is an error of its writer and left out.
    """
    rows = EVAL_SAMPLES.check(eval_samples).dropna(subset=["position_losses", "length_tokens"])
    long = _long(rows)
    keys = ["checkpoint", "step", "subset", "high_tokens", "last_position"]
    found = []
    for key, group in long.groupby(keys, dropna=False, sort=True):
        own = "sample " + group["sample_id"]
        clusters = ("document " + group["document_id"]).fillna(own).to_numpy(dtype=str)
        estimate = ratio_estimate(group["nats"], group["tokens"], clusters, confidence=confidence)
        first = 1 if key[4] <= FIRST_POSITIONS else key[4] // 2 + 1
        beyond = pd.NA if training_length is None else bool(first > training_length)
        found.append((*key[:3], int(key[3]) // 2 + 1, int(key[3]), int(first), int(key[4]), estimate.value,
                      estimate.low, estimate.high, float(np.exp(estimate.value)), estimate.n, estimate.clusters,
                      beyond))  # fmt: skip
    return pd.DataFrame(found, columns=COLUMNS).astype({"beyond_training": "boolean"})


def _long(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per sample and bin of places."""
    kept = ["checkpoint", "step", "subset", "sample_id", "document_id"]
    parts = []
    for row in rows.to_dict("records"):
        length = 2 ** int(np.ceil(np.log2(max(float(row["length_tokens"]), 1.0))))
        own = {k: row[k] for k in kept} | {"high_tokens": length}
        parts += [
            own | {"last_position": int(end), "nats": nats, "tokens": tokens}
            for end, nats, tokens in _bins(str(row["position_losses"]))
        ]
    frame = pd.DataFrame(parts, columns=[*kept, "high_tokens", "last_position", "nats", "tokens"])
    return frame.astype({"sample_id": "string", "document_id": "string"})


def _bins(text: str) -> list[tuple[float, float, float]]:
    try:
        return [(float(end), float(nats), float(tokens)) for end, nats, tokens in json.loads(text)]
    except (ValueError, TypeError):
        return []
