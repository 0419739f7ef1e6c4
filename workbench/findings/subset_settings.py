"""What explains a drop of a subset; settings that do: the tokenizer or the context length changed between two runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from workbench.analyses.settings import stated_changes
from workbench.findings.finding import Confidence, Evidence
from workbench.findings.rule import Tables

NAMES = {  # cause -> names of settings that bring it about
    "tokenizer_special_tokens": re.compile(
        r"token(?:izer|s$)|special|chat_template|(?:^|_)(?:bos|eos|pad)(?:_|$)|vocab", re.IGNORECASE
    ),
    "context_length_shift": re.compile(
        r"seq(?:uence)?_?len|context_?(?:len|size|window)|max_(?:length|position|len)|rope|block_size", re.IGNORECASE
    ),
}
FIXES = {
    "tokenizer_special_tokens": "Evaluate with the tokenizer and the special tokens (begin, end, chat template) of the "
    "training: set {name} back to {before}, and score the same checkpoint both ways.",
    "context_length_shift": "Train and evaluate at one context length: set {name} back to {before}, or evaluate within "
    "the trained length; score the samples by their length.",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What explains a drop: cause, how sure, its facts, and the step at which it happened (None: not known)."""

    cause: str
    confidence: Confidence
    because: str  # ends the title
    fix: str
    evidence: tuple[Evidence, ...] = ()
    step: int | None = None


def by_settings(_row: dict, _courses: pd.DataFrame, tables: Tables) -> Explanation | None:
    """A setting of the tokenizer or of the context length that a file says has changed; when is not known."""
    changes = stated_changes(tables.get("settings"))
    for cause, names in NAMES.items():
        changed = changes[changes["name"].str.contains(names)]
        if changed.empty:
            continue
        name, before, after = changed.iloc[0]
        return Explanation(
            cause=cause,
            confidence="medium",
            because=f"; {name} changed from {before} to {after}",
            fix=FIXES[cause].format(name=name, before=before),
            evidence=tuple(
                Evidence(fact=f"changed: {c.setting}", value=f"{c.before} to {c.after}", table="settings")
                for c in changed.rename(columns={"name": "setting"}).itertuples()
            ),
        )
    return None
