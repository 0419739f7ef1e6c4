"""Rules on a data set: repeated, empty, cut and lost samples, and text that the tokenizer does not know."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.data_health import drop_counts, subset_health
from workbench.analyses.lengths import ALL, truncation
from workbench.findings.finding import Culprit, Evidence, Finding, warning_or_critical
from workbench.findings.rule import Rule

REPEATED_BYTES_WARNING = 0.02  # of the text; public web corpora hold 3 to 14 % near duplicates before cleaning
REPEATED_BYTES_CRITICAL = 0.20
EMPTY_TOLD = 0.001  # of the samples: text cut into short windows holds a few that are white space
EMPTY_WARNING = 0.005  # they cost a row of a batch each and teach nothing
EMPTY_CRITICAL = 0.05
LOST_TOKENS_WARNING = 0.01  # of all tokens
LOST_TOKENS_CRITICAL = 0.20
LOST_TOKENS_OF_SUBSET = 0.10  # hidden in the whole where the subset is small
DROPPED_WARNING = 0.001
DROPPED_CRITICAL = 0.05
UNKNOWN_WARNING = 0.005  # of a subset's tokens: unknown text is lost altogether
BYTES_WARNING = 0.10  # single bytes cost up to four tokens a character
FEWEST_SAMPLES = 20  # of a subset that is judged on its own
_PAPER = "Lee et al. 2022 for the effect of repeated text; thresholds ours"


def find_bad_samples(samples: pd.DataFrame) -> list[Finding]:
    """What is wrong with a data set.

    Args:
        samples: table `data_samples`, of one or several data sets.
    """
    found: list[Finding] = []
    for name, part in samples.groupby("dataset"):
        rows = part.reset_index(drop=True)
        health = subset_health(rows)
        found += [*_repeated(str(name), health, rows), *_empty(str(name), health), *_dropped(str(name), rows)]
        found += [*_truncated(str(name), rows), *_coverage(str(name), health)]
    return found


def _repeated(name: str, health: pd.DataFrame, samples: pd.DataFrame) -> list[Finding]:
    whole = health.iloc[0]
    share = whole["repeated_bytes_share"]
    if not share >= REPEATED_BYTES_WARNING:
        return []
    subset = _worst(health, "repeated_bytes_share", at_least=share)
    checked = float(samples["near_checked"].fillna(False).astype(bool).mean())
    return [
        Finding(
            cause="duplicate_data",
            playbook="T6",
            severity=warning_or_critical(share, REPEATED_BYTES_CRITICAL),
            confidence="high",
            title=f"{share:.1%} of the text of {name} repeats an earlier sample ({whole['near_share']:.1%} of the "
            f"samples, {whole['exact_share']:.1%} exactly)" + (f"; most in {subset}." if subset else "."),
            fix="Remove the duplicates before training: keep the first sample of each near_group and digest of table "
            "data_samples.",
            source=_PAPER,
            culprit=Culprit(subset=subset),
            evidence=(
                _fact("text that repeats an earlier sample", share, name),
                _fact("samples that repeat an earlier one exactly", whole["exact_share"], name),
                _fact("samples that repeat an earlier one nearly or exactly", whole["near_share"], name),
                _fact("samples compared for near duplicates", checked, name),
            ),
        )
    ]


def _empty(name: str, health: pd.DataFrame) -> list[Finding]:
    whole = health.iloc[0]
    share = whole["empty_share"]
    if not share >= EMPTY_TOLD:
        return []
    subset = _worst(health, "empty_share", at_least=share)
    return [
        Finding(
            cause="empty_data",
            playbook="T6",
            severity=warning_or_critical(share, EMPTY_CRITICAL) if share >= EMPTY_WARNING else "info",
            confidence="high",
            title=f"{share:.1%} of the samples of {name} are empty"
            + (f"; most in {subset} ({_of(health, subset, 'empty_share'):.1%})." if subset else "."),
            fix="Find out why (an extraction that failed, a field that was renamed) and leave them out.",
            source="empty: nothing but white space, or no token; threshold ours",
            culprit=Culprit(subset=subset),
            evidence=(_fact("samples that are empty", share, name), _count("samples", whole["samples"], name)),
        )
    ]


def _dropped(name: str, samples: pd.DataFrame) -> list[Finding]:
    drops = drop_counts(samples)
    drops = drops[drops["reason"] != "empty"]
    share = float(drops["share"].sum())
    if not share >= DROPPED_WARNING:
        return []
    first = drops.iloc[0]
    return [
        Finding(
            cause="dropped_samples",
            playbook="T6",
            severity=warning_or_critical(share, DROPPED_CRITICAL),
            confidence="high",
            title=f"{share:.1%} of the samples of {name} cannot be used; most: {first['reason']} "
            f"({int(first['samples'])}, the first at {first['first_file']}, {int(first['first_place'])}).",
            fix="Repair or remove these samples; `workbench data convert` lists each with its reason.",
            source="threshold ours",
            evidence=(
                _fact("samples that cannot be used", share, name),
                *(_count(str(r.reason), r.samples, str(r.first_file)) for r in drops.head(5).itertuples()),
            ),
        )
    ]


def _truncated(name: str, samples: pd.DataFrame) -> list[Finding]:
    cut = truncation(samples)
    if cut.empty:
        return []
    whole, subsets = cut.iloc[0], cut[(cut["subset"] != ALL) & (cut["samples"] >= FEWEST_SAMPLES)]
    hidden = subsets[subsets["lost_share"] >= max(LOST_TOKENS_OF_SUBSET, 2 * whole["lost_share"])]
    if whole["lost_share"] < LOST_TOKENS_WARNING and hidden.empty:
        return []
    worst = subsets.sort_values("lost_share").iloc[-1] if len(subsets) > 1 else whole
    subset = str(worst["subset"]) if len(subsets) > 1 else None
    limit = samples["training_length_tokens"].dropna().iloc[0]
    return [
        Finding(
            cause="truncated_samples",
            playbook="T6",
            severity=warning_or_critical(whole["lost_share"], LOST_TOKENS_CRITICAL),
            confidence="high",
            title=f"A training length of {limit:,.0f} tokens cuts {whole['long_share']:.1%} of the samples of {name} "
            f"and {whole['lost_share']:.1%} of the tokens"
            + (f"; of {subset} it cuts {worst['lost_share']:.1%}." if subset is not None else "."),
            fix="Cut long samples into overlapping windows (docs/data_health.md, long samples), or train longer ones.",
            source="lost: tokens behind the training length; thresholds ours",
            culprit=Culprit(subset=subset),
            evidence=(
                _fact("tokens that are cut off", whole["lost_share"], name),
                _fact("samples that are longer than the training length", whole["long_share"], name),
                *(_fact("tokens that are cut off in the subset", r.lost_share, str(r.subset))
                  for r in subsets.sort_values("lost_share", ascending=False).head(5).itertuples()),
                Evidence(fact="longest sample", value=float(whole["longest_tokens"]), unit="tokens",
                         table="data_samples", where=name),
            ),
        )
    ]  # fmt: skip


def _coverage(name: str, health: pd.DataFrame) -> list[Finding]:
    judged = health[(health["subset"] != ALL) & (health["samples"] >= FEWEST_SAMPLES)]
    found = []
    for row in judged.to_dict("records"):
        unknown, single = row["unknown_share"], row["byte_share"]
        if not (unknown >= UNKNOWN_WARNING or single >= BYTES_WARNING):
            continue
        elsewhere = float(judged.loc[judged["subset"] != row["subset"], "bytes_per_token"].median())
        found.append(
            Finding(
                cause="tokenizer_coverage",
                playbook="T5",
                severity="warning",
                confidence="high",
                title=f"The tokenizer knows little of {row['subset']} in {name}: {unknown:.1%} of its tokens are "
                f"unknown, {single:.1%} single bytes, {row['bytes_per_token']:.1f} bytes a token.",
                fix="Train or extend the vocabulary with text of this subset, or use a tokenizer made for it.",
                source="counts of unknown and byte-fallback tokens; thresholds ours",
                culprit=Culprit(subset=str(row["subset"])),
                evidence=(
                    _fact("tokens that are unknown", unknown, str(row["subset"])),
                    _fact("tokens that are single bytes", single, str(row["subset"])),
                    Evidence(fact="text per token", value=float(row["bytes_per_token"]), unit="bytes",
                             table="data_samples", where=str(row["subset"])),
                    Evidence(fact="text per token in the other subsets", value=elsewhere, unit="bytes",
                             table="data_samples"),
                ),
            )
        )  # fmt: skip
    return found


def _worst(health: pd.DataFrame, column: str, *, at_least: float) -> str | None:
    """The subset that stands out: half as much again as the whole; None where none does."""
    judged = health[(health["subset"] != ALL) & (health["samples"] >= FEWEST_SAMPLES)].dropna(subset=[column])
    if len(judged) < 2 or judged[column].max() < 1.5 * at_least:
        return None
    return str(judged.loc[judged[column].idxmax(), "subset"])


def _of(health: pd.DataFrame, subset: str, column: str) -> float:
    return float(health.loc[health["subset"] == subset, column].iloc[0])


def _fact(fact: str, share: float, where: str) -> Evidence:
    return Evidence(fact=fact, value=float(share), unit="share", table="data_samples", where=where)


def _count(fact: str, samples: float, where: str) -> Evidence:
    return Evidence(fact=fact, value=int(samples), unit="samples", table="data_samples", where=where)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("duplicate_data", "empty_data", "dropped_samples", "truncated_samples", "tokenizer_coverage"),
        needs=("data_samples",),
        find=lambda t: find_bad_samples(t["data_samples"]),
    ),
)
