"""Rows of a run's tables that a filter leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd


def select(
    tables: Mapping[str, pd.DataFrame],
    *,
    ranks: Collection[int] | None = None,
    steps: tuple[int, int] | None = None,
    subset: str | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables with the rows of these ranks, steps and subset.

    Args:
        tables: tables by name.
        ranks: ranks to keep in tables with a rank; rows of no rank are kept. None keeps all.
        steps: first and last step to keep in tables with a step; rows without a step are kept. None keeps all.
        subset: subset to keep in tables with a subset; rows of no subset are kept. None keeps all.
    """
    return {name: _select(table, ranks, steps, subset) for name, table in tables.items()}


def _select(
    table: pd.DataFrame, ranks: Collection[int] | None, steps: tuple[int, int] | None, subset: str | None
) -> pd.DataFrame:
    keep = pd.Series(True, index=table.index)
    if ranks is not None and "rank_id" in table:
        keep &= table["rank_id"].isin(list(ranks)) | table["rank_id"].isna()
    if steps is not None and "step" in table:
        keep &= (table["step"].between(*steps) | table["step"].isna()).fillna(True).astype(bool)
    if subset is not None and "subset" in table:
        keep &= (table["subset"].eq(subset) | table["subset"].isna()).fillna(True).astype(bool)
    return table[keep]
