"""A subset's drop joined with what could explain it: sampling mix, tokenization, sample length, coverage figures."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from workbench.analyses.sampling_mix import mix_drift, sampling_shares
from workbench.analyses.statistics import ratio_change
from workbench.tables import DATA_MIX, EVAL_SAMPLES, EVALS

DRIFT_P_VALUE = 1e-3
CUT_SHARE = 0.5  # a source that keeps at most this part of its weight is cut
CUT_LEAST_SHARE = 0.02  # ... if that is at least this share of all samples
SYNONYMS = {"zh": "chinese", "cn": "chinese", "en": "english", "py": "python", "maths": "math", "coding": "code"}
COVERAGE_METRICS = ("unknown_share", "unknown_token_share", "byte_fallback_share", "special_token_share",
                    "tokens_per_byte")  # fmt: skip
MIX_COLUMNS = ["step", "source", "before_share", "after_share", "change_share", "is_cut", "is_related"]
LENGTH_BINS = 4


def mix_changes(data_mix: pd.DataFrame, subset: str = "") -> pd.DataFrame:
    """Every change of a source's sampling weight, in order of step, the largest loss first.

    Weights of a step are divided by their sum; a source that a later step does not name has weight 0 from there.

    Args:
        data_mix: table `data_mix`.
        subset: evaluation subset whose sources are marked: those that share a word with its name.

    Returns:
        One row per step of a change and source: before_share, after_share, change_share, is_cut (at most `CUT_SHARE`
        of the weight is left, of at least `CUT_LEAST_SHARE`), is_related. Empty where the mix never changes.
    """
    mix = DATA_MIX.check(data_mix).groupby(["from_step", "source"], as_index=False)["weight_share"].sum()
    wide = mix.pivot_table(index="from_step", columns="source", values="weight_share").fillna(0.0).sort_index()
    wide = wide.div(wide.sum(axis=1), axis=0)
    rows = [
        (int(step), str(source), float(old), float(new), float(new - old),
         bool(old >= CUT_LEAST_SHARE and new <= CUT_SHARE * old + 1e-9), is_related(subset, str(source)))
        for (_, before), (step, after) in zip(wide.iloc[:-1].iterrows(), wide.iloc[1:].iterrows(), strict=True)
        for source, old, new in zip(wide.columns, before, after, strict=True)
        if not np.isclose(old, new, atol=1e-6)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=MIX_COLUMNS)
    return table.sort_values(["step", "change_share"], ignore_index=True)


def recorded_mix_changes(sample_ids: pd.DataFrame, subset: str = "") -> pd.DataFrame:
    """The same from the samples that training really used: the drift of each subset's share (`mix_drift`).

    Args:
        sample_ids: table `sample_ids` with subsets.
        subset: as in `mix_changes`; the subset of its own name is related, too.

    Returns:
        As `mix_changes`, with the onset of each drift as its step (windows of a fortieth of the training or of 200
        samples), and a row per subset whose share drifts with p < `DRIFT_P_VALUE`.
    """
    drift = mix_drift(sampling_shares(sample_ids))
    drift = drift[drift["p_value"] < DRIFT_P_VALUE]
    before, after = (drift[c].clip(0, 1).astype(float) for c in ("before_share", "after_share"))
    table = pd.DataFrame(
        {
            "step": drift["onset_step"].astype("int64"), "source": drift["subset"].astype(str), "before_share": before,
            "after_share": after, "change_share": after - before,
            "is_cut": (before >= CUT_LEAST_SHARE) & (after <= CUT_SHARE * before + 1e-9),
            "is_related": [name == subset or is_related(subset, str(name)) for name in drift["subset"]],
        }, columns=MIX_COLUMNS,
    )  # fmt: skip
    return table.sort_values(["step", "change_share"], ignore_index=True)


def is_related(subset: str, source: str) -> bool:
    """Whether the names of a subset and of a data source share a word, languages in any of their spellings."""
    return bool(_words(subset) & _words(source))


def mix_change_at(changes: pd.DataFrame, *, first_step: int, last_step: int) -> pd.DataFrame:
    """The rows of `mix_changes` of the last change within the steps; empty if there is none."""
    inside = changes[changes["step"].between(first_step, last_step)]
    return inside[inside["step"] == inside["step"].max()]


def retokenized(eval_samples: pd.DataFrame, subset: str) -> dict[str, float] | None:
    """Whether the same samples of a subset have other token counts in the last evaluation than in the first.

    Returns:
        share (of the samples that both have), before and after (tokens of these samples), step (first evaluation with
        the new counts). None where nothing changed, or where there are not two evaluations.
    """
    rows = EVAL_SAMPLES.check(eval_samples).dropna(subset=["step", "scored_tokens"])
    tokens = rows[rows["subset"] == subset].pivot_table(index="sample_id", columns="step", values="scored_tokens")
    if tokens.shape[1] < 2:
        return None
    shared = tokens.iloc[:, [0, -1]].dropna()
    other = shared.iloc[:, 0] != shared.iloc[:, 1]
    if not len(shared) or not other.any():
        return None
    totals = shared.sum()
    differs = tokens.loc[shared.index].ne(tokens.loc[shared.index].iloc[:, 0], axis=0).mean() > float(other.mean()) / 2
    return {
        "share": float(other.mean()),
        "before": float(totals.iloc[0]),
        "after": float(totals.iloc[1]),
        "step": float(differs.index[differs][0]),
    }


def change_by_length(eval_samples: pd.DataFrame, subset: str, *, before_step: int, after_step: int) -> pd.DataFrame:
    """Paired change of the loss by sample length, between the evaluations at two steps.

    Returns:
        One row per length bin (quartiles of the shared samples, equal ends joined): low_tokens, high_tokens, change
        (nats per token), low, high (95 % interval over documents), p_value, n. Empty where lengths are missing or all
        alike.
    """
    rows = EVAL_SAMPLES.check(eval_samples).dropna(subset=["step", "length_tokens", "loss_nats", "scored_tokens"])
    rows = rows[rows["subset"] == subset].drop_duplicates(["step", "sample_id"])
    sides = [rows[rows["step"] == s].set_index("sample_id") for s in (before_step, after_step)]
    shared = sides[0].index.intersection(sides[1].index)
    columns = ["low_tokens", "high_tokens", "change", "low", "high", "p_value", "n"]
    lengths = sides[1].loc[shared, "length_tokens"]
    if lengths.nunique() < 2:
        return pd.DataFrame(columns=columns)
    bins = pd.qcut(lengths, LENGTH_BINS, duplicates="drop", labels=False)
    found = []
    for _, names in lengths.groupby(bins).groups.items():
        pairs = [(s.loc[names, "loss_nats"], s.loc[names, "scored_tokens"]) for s in sides]
        own = names.to_series()
        change = ratio_change(pairs[0], pairs[1], sides[1].loc[names, "document_id"].fillna(own).to_numpy(dtype=str))
        part = lengths.loc[names]
        found.append((part.min(), part.max(), change.value, change.low, change.high, change.p_value, len(names)))
    return pd.DataFrame(found, columns=columns)


def coverage_changes(evals: pd.DataFrame, subset: str, *, before_step: int, after_step: int) -> pd.DataFrame:
    """Figures of tokenizer coverage (`COVERAGE_METRICS`) of a subset at two steps: metric, before, after.

    The value at a step is the last one recorded up to it.
    """
    rows = EVALS.check(evals).dropna(subset=["step"]).sort_values("step", kind="stable")
    rows = rows[(rows["subset"] == subset) & rows["metric"].isin(COVERAGE_METRICS)]
    sides = [rows[rows["step"] <= s].groupby("metric")["value"].last() for s in (before_step, after_step)]
    table = pd.DataFrame({"before": sides[0], "after": sides[1]}).dropna()
    return table.rename_axis("metric").reset_index()


def _words(name: str) -> set[str]:
    words = [w for w in re.split(r"[^0-9a-z\u4e00-\u9fff]+", name.lower()) if w]
    return {SYNONYMS.get(w, w) for w in words} - {"data", "eval", "set", "test", "corpus", "exam", "gen"}
