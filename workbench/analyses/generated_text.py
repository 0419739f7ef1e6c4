"""Table `generations` -> which rules each text breaks, rates per checkpoint and subset, diversity, worst examples."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses import text_rules
from workbench.analyses.evaluation import MODEL_STATE
from workbench.analyses.statistics import holm
from workbench.errors import UnknownParameterError
from workbench.tables import GENERATIONS

RULES: Mapping[str, str] = {
    "empty": "nothing but blanks",
    "repetition": "ends in a loop, or half of its 4-grams were there before",
    "mixed_scripts": "a fifth of its letters are of scripts that neither prompt nor subset has",
    "broken_characters": "replacement or control characters",
    "truncated": "generation stopped at a length limit",
    "unbalanced_brackets": "a bracket closes none, another one, or is left open (code is judged by its parser)",
    "broken_python": "code that cannot be parsed",
    "broken_json": "no JSON document",
    "wrong_arithmetic": "an equation between numbers that does not hold",
}
KEY = [*MODEL_STATE, "subset"]
EXPECTED_LETTERS = 0.05  # share of a prompt's or subset's letters from which a script belongs there
LANGUAGES = {"python": "python", "code": "python", "json": "json"}  # what subset names say where `expects` does not


def check_generations(generations: pd.DataFrame) -> pd.DataFrame:
    """Which rules each generated text breaks.

    Args:
        generations: table `generations`.

    Returns:
        One row per text, in the given order: checkpoint, step, subset, sample_id, prompt, output, a boolean column per
        rule of `RULES` (missing where the rule does not apply), equations and wrong_equations (counts), distinct_1,
        distinct_2 (shares), length_characters, wrong (first wrong equation or repeated fragment). Empty in, empty out.
    """
    given = GENERATIONS.check(generations).reset_index(drop=True)
    usual = {key: _expected(part) for key, part in given.groupby("subset", dropna=False)}
    texts = given[["prompt", "output", "finish_reason", "expects"]].astype(object)
    cells = texts.where(texts.notna(), None).to_numpy()
    rows = [
        _judged(prompt, output, reason, expects, usual[subset], subset)
        for (prompt, output, reason, expects), subset in zip(cells, given["subset"], strict=True)
    ]
    columns = [*RULES, "equations", "wrong_equations", "distinct_1", "distinct_2", "length_characters", "wrong"]
    judged = pd.DataFrame(rows, columns=columns, index=given.index)
    dtypes = dict.fromkeys(RULES, "boolean") | {"equations": "int64", "wrong_equations": "int64", "wrong": "string"}
    judged = judged.astype(dtypes | dict.fromkeys(("distinct_1", "distinct_2", "length_characters"), "float64"))
    return pd.concat([given[[*KEY, "sample_id", "prompt", "output"]], judged], axis=1)


def problem_rates(checked: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Share of texts that break each rule, per model state and subset.

    Several texts of one prompt are not independent: the interval counts prompts, not texts, as its sample.

    Args:
        checked: result of `check_generations`.
        confidence: level of the intervals.

    Returns:
        One row per (checkpoint, step, subset, rule) to which the rule applies: n, prompts, hits, rate, low, high.

    Source: Wilson, JASA 22 (1927) (interval of a share).
    """
    rows = [
        {**dict(zip(KEY, key, strict=True)), "rule": rule, **_rate(part, rule, confidence)}
        for key, part in checked.groupby(KEY, dropna=False)
        for rule in RULES
        if part[rule].notna().any()
    ]
    columns = [*KEY, "rule", "n", "prompts", "hits", "rate", "low", "high"]
    dtypes = {"checkpoint": "string", "step": "Int64", "subset": "string", "n": "int64", "prompts": "int64",
              "hits": "int64", "rate": "float64", "low": "float64", "high": "float64"}  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype(dtypes)


def rate_changes(rates: pd.DataFrame, before: str, after: str) -> pd.DataFrame:
    """Change of each rate from one checkpoint to another.

    Returns:
        One row per (subset, rule) of both: before, after, change, p_value (Fisher's exact test, two-sided, on prompts),
        p_holm (over the rows of this table), low_after.

    Raises:
        UnknownParameterError: a checkpoint is not there.
    """
    sides = {}
    for name in (before, after):
        sides[name] = rates[rates["checkpoint"] == name].set_index(["subset", "rule"])
        if sides[name].empty:
            known = sorted(rates["checkpoint"].dropna().unique())
            raise UnknownParameterError(f"There is no checkpoint {name!r}.", fix=f"use one of {known}")
    both = sides[before].join(sides[after], lsuffix="_before", rsuffix="_after", how="inner").reset_index()
    p = [stats.fisher_exact([_counts(row, "before"), _counts(row, "after")]).pvalue for row in both.to_dict("records")]
    return pd.DataFrame(
        {
            "subset": both["subset"],
            "rule": both["rule"],
            "before": both["rate_before"],
            "after": both["rate_after"],
            "change": both["rate_after"] - both["rate_before"],
            "p_value": np.array(p, dtype=float),
            "p_holm": holm(np.array(p, dtype=float)),
            "low_after": both["low_after"],
        }
    )


def worst_examples(checked: pd.DataFrame, rule: str, *, count: int = 5) -> pd.DataFrame:
    """Texts that break a rule, longest first: a short text breaks off soon, a long one shows the fault.

    Returns:
        Up to `count` rows: checkpoint, step, subset, sample_id, prompt, output, wrong.

    Raises:
        UnknownParameterError: there is no such rule.
    """
    if rule not in RULES:
        raise UnknownParameterError(f"There is no rule {rule!r}.", fix=f"use one of {sorted(RULES)}")
    hit = checked[checked[rule].fillna(False).astype(bool)]
    shown = hit.sort_values("length_characters", ascending=False, kind="stable").head(count)
    return shown[[*KEY, "sample_id", "prompt", "output", "wrong"]].reset_index(drop=True)


def _judged(
    prompt: str | None,
    output: str,
    finish_reason: str | None,
    expects: str | None,
    usual: set[str],
    subset: object,
) -> dict[str, object]:
    prompt, cut = prompt or "", text_rules.is_cut(finish_reason)
    kind = expects if expects is not None else _language(str(subset))
    equations, wrong = text_rules.wrong_equations(prompt, output, cut=cut)
    parts = text_rules.units(output)
    is_code = kind in ("python", "code")
    own = _frequent(text_rules.scripts(prompt))
    return {
        "empty": text_rules.is_empty(output),
        "repetition": text_rules.is_repetitive(output),
        "mixed_scripts": text_rules.is_mixed(output, own | usual),
        "broken_characters": text_rules.has_broken_characters(output),
        "truncated": cut,
        "unbalanced_brackets": None if is_code else text_rules.has_unbalanced_brackets(prompt, output, cut=cut),
        "broken_python": text_rules.is_broken_python(prompt, output, cut=cut) if is_code else None,
        "broken_json": text_rules.is_broken_json(output) if kind == "json" else None,
        "wrong_arithmetic": bool(wrong) if equations else None,
        "equations": equations,
        "wrong_equations": len(wrong),
        "distinct_1": text_rules.distinct_share(parts, 1),
        "distinct_2": text_rules.distinct_share(parts, 2),
        "length_characters": len(output),
        "wrong": wrong[0] if wrong else text_rules.loop(output),
    }


def _language(subset: str) -> str | None:
    words = subset.lower().replace("-", "_").split("_")
    return next((kind for word, kind in LANGUAGES.items() if word in words), None)


def _expected(part: pd.DataFrame) -> set[str]:
    """Scripts of a subset's prompts; of its outputs the most frequent one, where there are no prompts."""
    prompts = text_rules.scripts("\n".join(part["prompt"].dropna()))
    if prompts:
        return _frequent(prompts)
    outputs = text_rules.scripts("\n".join(part["output"].dropna()))
    return {outputs.most_common(1)[0][0]} if outputs else set()


def _frequent(letters: Mapping[str, int]) -> set[str]:
    total = sum(letters.values())
    return {s for s, n in letters.items() if n >= EXPECTED_LETTERS * total}


def _rate(part: pd.DataFrame, rule: str, confidence: float) -> dict[str, float]:
    known = part[part[rule].notna()]
    hits, n = int(known[rule].astype(bool).sum()), len(known)
    own = "sample " + known["sample_id"]
    prompts = int(("prompt " + known["prompt"]).fillna(own).nunique())
    low, high = wilson_interval(hits / n, prompts, confidence=confidence)
    return {"n": n, "prompts": prompts, "hits": hits, "rate": hits / n, "low": low, "high": high}


def wilson_interval(rate: float, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of a share seen in `n` independent cases.

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * float(np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _counts(row: Mapping[str, object], side: str) -> list[int]:
    """Prompts that break the rule and prompts that do not."""
    n = int(str(row[f"prompts_{side}"]))
    hits = round(float(str(row[f"rate_{side}"])) * n)
    return [hits, n - hits]


def as_constraints(text: str | None) -> list[dict[str, object]]:
    """The instructions of a text, from its `constraints` cell; none where it is missing or no JSON list."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        found = []
    return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []
