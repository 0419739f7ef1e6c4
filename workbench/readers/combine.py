"""Rows that several files wrote about the same thing -> one row with what each of them knows.

MindData splits an operator over a queue file and a CPU file; MindInsight-era profiles split a step over step trace and
cluster file, and a collective over step trace and hccl_raw. No file alone answers a question.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

# table -> columns that name a thing
KEYS: Mapping[str, tuple[str, ...]] = {
    "data_ops": ("rank_id", "op_id"),
    "data_queue_samples": ("rank_id", "op_id", "sample"),
    "step_time": ("rank_id", "window", "step"),
    "collectives": ("rank_id", "window", "step", "name"),
}
# columns that are missing in one of the files; a table without rows that lack them has nothing to combine
SPLIT: Mapping[str, tuple[str, ...]] = {"step_time": ("step_us", "computing_us"), "collectives": ("elapsed_us",)}


def combine(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Table `name` with one row per thing: of each column the first value that is not missing; other rows unchanged.

    Rows whose key is incomplete stay as they are. A step of an old profile gets `free_us` = step_us - computing_us -
    communication_not_overlapped_us. Tables that no two files share come back unchanged.
    """
    keys = list(KEYS.get(name, ()))
    if not keys or not _is_split(name, table):
        return table
    repeated = table.duplicated(keys, keep=False) & table[keys].notna().all(axis=1)
    if not repeated.any():
        return table
    rows = table[repeated]
    if name == "data_ops":
        rows = rows.sort_values("samples", na_position="last", kind="stable")  # measured before derived figures
    order = rows.index.to_series().groupby([rows[k] for k in keys], sort=False).min()
    merged = (
        rows.groupby(keys, sort=False).first().reindex(order.index).reset_index().set_axis(order.to_numpy(), axis=0)
    )
    whole = pd.concat([table[~repeated], merged[list(table.columns)]]).sort_index().reset_index(drop=True)
    return _with_free_time(whole) if name == "step_time" else whole


def _is_split(name: str, table: pd.DataFrame) -> bool:
    columns = SPLIT.get(name)
    if columns is None:
        return True
    lacking = [table[c].isna() for c in columns]
    return any(bool(missing.any()) and not bool(missing.all()) for missing in lacking)


def _with_free_time(steps: pd.DataFrame) -> pd.DataFrame:
    free = steps["step_us"] - steps["computing_us"] - steps["communication_not_overlapped_us"]
    return steps.assign(free_us=steps["free_us"].fillna(free.where(free >= 0)))
