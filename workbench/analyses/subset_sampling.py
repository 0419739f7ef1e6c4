"""Which samples stand for a subset, and how small a change they can show.

Samples are drawn by a hash of seed and id, so that the same ones are drawn on every machine and in every run, and most
of them stay when the pool grows.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.statistics import FloatArray
from workbench.errors import MissingColumnsError, UnknownParameterError
from workbench.tables import EVAL_SAMPLES

LENGTH_STRATA = 4
POWER = 0.8
PLAN_COLUMNS = ["subset", "n", "documents", "visible_change", "between_documents", "within_documents", "sentence"]


def draw_samples(pool: pd.DataFrame, per_subset: int, *, seed: int = 0, strata: int = LENGTH_STRATA) -> pd.DataFrame:
    """A fixed sample per subset, spread over its lengths and its documents.

    Each subset is cut into `strata` parts of equal size by length; each part gives its share. Inside a part the
    documents that gave least so far come first, in the order of a hash of seed and document, each giving its samples in
    the order of their hash.

    Args:
        pool: one row per sample: subset, sample_id; document_id and length_tokens where they are known.
        per_subset: samples per subset; a smaller subset is taken as a whole.
        seed: of the choice.
        strata: parts by length.

    Returns:
        The rows drawn, all columns, subset by subset in the order of the pool's first appearance.

    Raises:
        MissingColumnsError: the pool lacks subset or sample_id.
        UnknownParameterError: `per_subset` or `strata` is below 1.
    """
    if missing := [c for c in ("subset", "sample_id") if c not in pool]:
        raise MissingColumnsError(f"The pool lacks {missing}; it has {list(pool)}.", fix="give a row per sample")
    if per_subset < 1 or strata < 1:
        raise UnknownParameterError("A sample needs at least one row and one part.", fix="give numbers from 1 on")
    parts = [_drawn(group, per_subset, seed, strata) for _, group in pool.groupby("subset", sort=False)]
    return pd.concat(parts) if parts else pool.copy()


def visible_changes(
    eval_samples: pd.DataFrame,
    before: str,
    after: str,
    *,
    samples: Sequence[int] = (50, 100, 200, 400, 800),
    per_document: float | None = None,
    power: float = POWER,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How small a change of the loss a paired comparison would find, by number of samples, from two scored checkpoints.

    The paired differences of the two checkpoints give the variance between and within documents (one-way analysis of
    variance, token-weighted differences). n samples of `per_document` each then have the standard error
    `sqrt(between / documents + within / n)`, and the change that is found with probability `power` is that times the
    sum of the two t quantiles; Bonferroni over the subsets of the table, as Holm's first step.

    Args:
        eval_samples: table `eval_samples` with both checkpoints.
        before: first checkpoint.
        after: second checkpoint.
        samples: numbers of samples to plan for.
        per_document: samples per document; as in the table by default.
        power: chance of finding the change.
        confidence: level of the test.

    Returns:
        One row per subset and number: visible_change (nats per token), documents, between_documents and
        within_documents (variances), sentence. Subsets with fewer than three documents are left out.
    """
    pairs = _pairs(eval_samples, before, after)
    groups = list(pairs.groupby("subset", sort=False))
    level = 1 - (1 - confidence) / (2 * max(len(groups), 1))
    rows = []
    for subset, group in groups:
        if group["document_id"].nunique() < 3:
            continue
        between, within, mean_size = _components(group)
        each = mean_size if per_document is None else per_document
        for n in samples:
            documents = max(n / each, 2.0)
            error = math.sqrt(between / documents + within / n)
            factor = float(stats.t.ppf(level, documents - 1) + stats.t.ppf(power, documents - 1))
            change = factor * error
            sentence = f"With {n} samples of {documents:.0f} documents a change of {change:.3f} nats is visible."
            rows.append((subset, n, round(documents), change, between, within, sentence))
    return pd.DataFrame(rows, columns=PLAN_COLUMNS)


def _pairs(eval_samples: pd.DataFrame, before: str, after: str) -> pd.DataFrame:
    rows = EVAL_SAMPLES.check(eval_samples).dropna(subset=["loss_nats", "scored_tokens"])
    known = set(rows["checkpoint"].dropna())
    if unknown := sorted({before, after} - known):
        raise UnknownParameterError(f"There is no checkpoint {unknown}.", fix=f"use two of {sorted(known)}")
    key = ["subset", "sample_id"]
    sides = [rows[rows["checkpoint"] == c].drop_duplicates(key).set_index(key) for c in (before, after)]
    shared = sides[0].index.intersection(sides[1].index)
    first, second = (side.loc[shared] for side in sides)
    names = second["document_id"].fillna(second.index.get_level_values("sample_id").to_series(index=second.index))
    change = (second["loss_nats"] - first["loss_nats"]) / second["scored_tokens"]
    return pd.DataFrame({"document_id": names, "change": change, "weight": second["scored_tokens"]}).reset_index()


def _components(group: pd.DataFrame) -> tuple[float, float, float]:
    """Variance between and within documents of the weighted differences, and samples per document."""
    weight = (group["weight"] / group["weight"].mean()).to_numpy(dtype=float)
    difference = group["change"].to_numpy(dtype=float)
    values = weight * (difference - np.average(difference, weights=weight))
    index, names = pd.factorize(group["document_id"])
    sizes = np.bincount(index).astype(float)
    means = np.bincount(index, values) / sizes
    inside = float(((values - means[index]) ** 2).sum())
    count, n = len(names), len(values)
    around = float((sizes * (means - values.mean()) ** 2).sum()) / (count - 1)
    if n == count:  # a sample per document: nothing tells the two apart, and nothing needs to
        return around, 0.0, 1.0
    within = inside / (n - count)
    typical = (n - float((sizes**2).sum()) / n) / (count - 1)
    return max((around - within) / typical, 0.0), within, n / count


def _drawn(group: pd.DataFrame, count: int, seed: int, strata: int) -> pd.DataFrame:
    if len(group) <= count:
        return group
    lengths = group["length_tokens"] if "length_tokens" in group else pd.Series(0.0, group.index)
    hashes = _hashes(group["sample_id"], seed)
    order = np.lexsort((hashes, lengths.fillna(0).to_numpy(dtype=float)))
    taken: list[object] = []
    turns: Counter[str] = Counter()  # samples that each document gave so far
    for part, share in zip(np.array_split(order, strata), _shares(count, strata), strict=True):
        rows = group.iloc[part]
        own = rows["sample_id"] if "document_id" not in rows else rows["document_id"].fillna(rows["sample_id"])
        ranked = pd.DataFrame({"document": own, "hash": hashes[part], "turn": _hashes(own, seed)}, index=rows.index)
        ranked = ranked.sort_values("hash")
        ranked["round"] = ranked.groupby("document").cumcount() + ranked["document"].map(turns)
        chosen = ranked.sort_values(["round", "turn", "hash"])[:share]
        taken += list(chosen.index)
        turns.update(chosen["document"])
    return group.loc[[i for i in group.index if i in set(taken)]]


def _shares(count: int, strata: int) -> list[int]:
    return [count // strata + (k < count % strata) for k in range(strata)]


def _hashes(names: pd.Series, seed: int) -> FloatArray:
    digests = [hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=6).digest() for name in names]
    return np.array([int.from_bytes(d, "big") for d in digests], dtype=np.float64)
