"""Rule on generated texts: what of the last checkpoint's output is degenerate, and what got worse."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.evaluation import checkpoints_in_order
from workbench.analyses.generated_text import RULES as TEXT_RULES
from workbench.analyses.generated_text import (
    check_generations,
    problem_rates,
    rate_changes,
    worst_examples,
)
from workbench.findings.finding import Culprit, Evidence, Finding, Severity, Steps
from workbench.findings.rule import Rule

# Lower ends of the interval from which on a rate alone is a finding. Texts of people broke them in at most 1 %
# (docs/post_training.md). What is an ability (code, equations, brackets) counts only when it gets worse.
LIMITS = {"empty": 0.02, "repetition": 0.05, "mixed_scripts": 0.05, "broken_characters": 0.02}
CRITICAL_RATE = 0.5
RISE = 0.10  # a rate that rises by less is no finding on its own
RISE_P = 0.01  # Holm-adjusted over subsets and rules
EXAMPLE_CHARACTERS = 160
NOT_DEGENERATE = ("truncated",)  # a limit of the generation, not of the model; shown, and counted when it rises
FIXES = {
    "empty": "Look at the prompts that give nothing, the end token and the chat template.",
    "repetition": "Compare with another decoding (temperature, repetition penalty) and with the checkpoint before; "
    "look for duplicates in the training data.",
    "mixed_scripts": "Look at the language mix of the training data and at the tokenizer's coverage of this language.",
    "broken_characters": "Look at the byte fallback of the tokenizer and at how the outputs were decoded.",
}
OTHER_FIX = "Compare the examples with those of the checkpoint before, and the training data between the two."


def find_degenerate_output(generations: pd.DataFrame) -> list[Finding]:
    """One finding per rule that the last checkpoint's texts break too often, or more often than those before.

    Args:
        generations: table `generations`; texts without a checkpoint are judged as one model's. Where steps are not
            known, every model is judged by itself.
    """
    named = generations.assign(checkpoint=generations["checkpoint"].fillna("the model"))
    checked = check_generations(named)
    rates = problem_rates(checked)
    order = checkpoints_in_order(named)
    if not order:
        return []
    trained = order[-2:] if named["step"].notna().all() else []  # states of one training can be compared in their order
    judged = order[-1:] if trained else order
    rises = rate_changes(rates, *trained) if len(trained) == 2 else pd.DataFrame()
    found = [
        _finding(rule, rates[(rates["checkpoint"] == name) & (rates["rule"] == rule)], _risen(rises, rule),
                 checked[checked["checkpoint"] == name], (name, trained[0] if trained else ""))
        for name in judged
        for rule in TEXT_RULES
    ]  # fmt: skip
    return [f for f in found if f is not None]


def _risen(rises: pd.DataFrame, rule: str) -> pd.DataFrame:
    if rises.empty:
        return rises
    return rises[(rises["rule"] == rule) & (rises["change"] >= RISE) & (rises["p_holm"] < RISE_P)]


def _finding(
    rule: str, rates: pd.DataFrame, risen: pd.DataFrame, checked: pd.DataFrame, names: tuple[str, str]
) -> Finding | None:
    high = rates[rates["low"] >= LIMITS[rule]] if rule in LIMITS else rates.iloc[:0]
    subsets = [*high["subset"], *(() if risen.empty else risen["subset"])]
    if not subsets:
        return None
    hit = rates[rates["subset"].isin(subsets)].sort_values("rate", ascending=False)
    worst = hit.iloc[0]
    severity: Severity = "critical" if len(high) and worst["rate"] >= CRITICAL_RATE else "warning"
    before = "" if risen.empty else f", {risen['before'].max():.0%} at {names[1]}"
    step = None if pd.isna(worst["step"]) else int(worst["step"])
    return Finding(
        cause="degenerate_output",
        sub_cause=rule,
        playbook="T5",
        severity="info" if rule in NOT_DEGENERATE else severity,
        confidence="high" if worst["prompts"] >= 30 else "medium",
        title=f"{worst['rate']:.0%} of the texts that {names[0]} wrote on {worst['subset']} break the rule {rule!r} "
        f"({worst['low']:.0%} to {worst['high']:.0%}{before}).",
        fix=FIXES.get(rule, OTHER_FIX),
        source=f"rule: {TEXT_RULES[rule]} (workbench.analyses.generated_text); limits ours",
        culprit=Culprit(subset=str(worst["subset"])),
        steps=Steps(first=step, last=step),
        evidence=(*_numbers(hit), *_examples(checked, rule, str(worst["subset"]))),
    )


def _numbers(hit: pd.DataFrame) -> list[Evidence]:
    return [
        Evidence(fact=f"texts that break it on {row.subset}", value=float(row.rate), unit="share", table="generations",
                 where=f"{row.hits} of {row.n} texts, {row.prompts} prompts")
        for row in hit.itertuples()
    ]  # fmt: skip


def _examples(checked: pd.DataFrame, rule: str, subset: str) -> list[Evidence]:
    shown = worst_examples(checked[checked["subset"] == subset], rule, count=2)
    return [
        Evidence(fact=f"example {row.sample_id}", value=f"…{row.output[-EXAMPLE_CHARACTERS:]}", table="generations")
        for row in shown.itertuples()
    ]


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("degenerate_output",), needs=("generations",), find=lambda t: find_degenerate_output(t["generations"])
    ),
)
