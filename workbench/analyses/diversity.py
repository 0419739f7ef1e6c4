"""Table `generations` -> how different the texts are: distinct-n over all, self-BLEU among those of one prompt."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.text_rules import units
from workbench.tables import GENERATIONS

KEY = ["checkpoint", "step", "subset", "temperature"]
MEASURES = ("distinct_1", "distinct_2", "distinct_3", "self_bleu")
MOST_TEXTS_OF_A_PROMPT = 8  # self-BLEU compares each with all others


def diversity(generations: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Diversity per model state, subset and temperature.

    distinct_n: different n-grams over all n-grams of all texts (words, single CJK characters), which falls with the
    number of texts: compare equal numbers only. Interval: jackknife over prompts. self_bleu: mean over prompts of the
    mean BLEU (0 to 1) of each text against the others of its prompt; 1 means that all are the same. Interval: t over
    prompts. It needs two texts of a prompt.

    Returns:
        One row per (checkpoint, step, subset, temperature, measure): value, low, high, prompts, texts. Measures that do
        not apply are left out. Empty in, empty out.

    Source: Li et al., NAACL 2016 (distinct-n); Zhu et al., Texygen, SIGIR 2018 (self-BLEU); BLEU by sacrebleu.
    """
    given = GENERATIONS.check(generations)
    rows = []
    for key, part in given.groupby(KEY, dropna=False):
        for measure, (value, low, high) in _measures(part, confidence).items():
            numbers = {"value": value, "low": low, "high": high}
            counts = {"prompts": int(part["sample_id"].nunique()), "texts": len(part)}
            rows.append({**dict(zip(KEY, key, strict=True)), "measure": measure, **numbers, **counts})
    return pd.DataFrame(rows, columns=[*KEY, "measure", "value", "low", "high", "prompts", "texts"])


def _measures(part: pd.DataFrame, confidence: float) -> dict[str, tuple[float, float, float]]:
    parts = part["output"].map(units)
    found = {}
    for n in (1, 2, 3):
        counts = [_grams(rows, n) for _, rows in parts.groupby(part["sample_id"])]
        if sum(c.total() for c in counts):
            found[f"distinct_{n}"] = _distinct(counts, confidence)
    scores = [
        score
        for _, texts in part.groupby("sample_id")["output"]
        if (score := self_bleu(texts.tolist()[:MOST_TEXTS_OF_A_PROMPT])) is not None
    ]
    if scores:
        found["self_bleu"] = _mean(np.array(scores), confidence)
    return found


def _grams(texts: pd.Series, n: int) -> Counter[tuple[str, ...]]:
    counted: Counter[tuple[str, ...]] = Counter()
    for parts in texts:
        counted.update(zip(*(parts[k:] for k in range(n)), strict=False))
    return counted


def _distinct(counts: list[Counter[tuple[str, ...]]], confidence: float) -> tuple[float, float, float]:
    whole: Counter[tuple[str, ...]] = sum(counts, Counter())
    total, kinds = whole.total(), len(whole)
    value = kinds / total
    left_out = []
    for own in counts:
        rest = total - own.total()
        gone = sum(1 for gram, count in own.items() if whole[gram] == count)
        if rest:
            left_out.append((kinds - gone) / rest)
    if len(left_out) < 2:
        return value, float("nan"), float("nan")
    error = float(np.sqrt((len(left_out) - 1) * np.var(left_out)))
    half = float(stats.t.ppf(0.5 + confidence / 2, len(left_out) - 1)) * error
    return value, max(value - half, 0.0), min(value + half, 1.0)


def self_bleu(texts: list[str]) -> float | None:
    """Mean BLEU of each text against the others, 0 to 1; None for fewer than two texts with words."""
    from sacrebleu import sentence_bleu

    known = [" ".join(units(t)) for t in texts]
    known = [t for t in known if t]
    if len(known) < 2:
        return None
    scores = [
        sentence_bleu(text, known[:k] + known[k + 1 :], tokenize="none", smooth_method="exp").score
        for k, text in enumerate(known)
    ]
    return float(np.mean(scores)) / 100


def _mean(scores: np.ndarray, confidence: float) -> tuple[float, float, float]:
    value = float(scores.mean())
    if len(scores) < 2:
        return value, float("nan"), float("nan")
    error = float(scores.std(ddof=1)) / np.sqrt(len(scores))
    half = float(stats.t.ppf(0.5 + confidence / 2, len(scores) - 1)) * error
    return value, max(value - half, 0.0), min(value + half, 1.0)
