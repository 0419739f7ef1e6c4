"""Checkpoints of a run, their evaluation and who refers to them -> which to keep, and why."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.errors import UnknownParameterError

KEEP_LAST = 2
COLUMNS = ["checkpoint", "step", "size_bytes", "keep", "why"]


def retention_plan(
    checkpoints: pd.DataFrame,
    ranked: pd.DataFrame | None,
    referenced: Mapping[str, str],
    *,
    keep_last: int = KEEP_LAST,
) -> pd.DataFrame:
    """What to keep: where the evaluation improved, the best set, the last ones, what is referred to or not yet scored.

    Args:
        checkpoints: one row per file, in order of training: checkpoint, step, size_bytes.
        ranked: what `rank_checkpoints` returns; None where nothing was evaluated, then everything is kept.
        referenced: checkpoint -> who refers to it.
        keep_last: how many of the last ones to keep in any case, to resume from.

    Returns:
        One row per checkpoint, in the same order: checkpoint, step, size_bytes, keep, why (all reasons).

    Raises:
        UnknownParameterError: `keep_last` is below 1: nothing would be left to resume from.
    """
    if keep_last < 1:
        raise UnknownParameterError(f"keep_last is {keep_last}.", fix="keep at least the last checkpoint to resume")
    known = pd.DataFrame(columns=["improved", "in_best_set", "recommended"])
    scores = known if ranked is None else ranked.set_index("checkpoint")
    last = set(checkpoints["checkpoint"].iloc[-keep_last:])
    rows = []
    for row in checkpoints.itertuples():
        name = str(row.checkpoint)
        reasons = _reasons(name, scores)
        if name in last:
            reasons.append(f"one of the last {keep_last}")
        if name in referenced:
            reasons.append(referenced[name])
        rows.append((name, row.step, row.size_bytes, bool(reasons), "; ".join(reasons) or _spare(name, scores)))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"step": "Int64", "keep": "bool"})


def _reasons(name: str, scores: pd.DataFrame) -> list[str]:
    if name not in scores.index:
        return ["not evaluated yet"]
    own = scores.loc[name]
    words = {"recommended": "recommended", "in_best_set": "cannot be told from the best", "improved": "improved"}
    found = [text for column, text in words.items() if bool(own[column])]
    return [w for w in found if not (w == "cannot be told from the best" and "recommended" in found)]


def _spare(name: str, scores: pd.DataFrame) -> str:
    return f"no improvement; {scores.loc[name, 'why']}"
