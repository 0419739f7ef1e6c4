"""What changed between the settings of two runs."""

from __future__ import annotations

import pandas as pd

from workbench.tables import SETTINGS

COMPARED = ("config.", "seeds.", "versions.", "data_fingerprint", "world_size", "device_target", "mode")


def changed_settings(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Settings that differ between two runs, those that decide results first.

    Args:
        before: table `settings` of the earlier run.
        after: table `settings` of the later one.

    Returns:
        One row per setting whose name starts with one of `COMPARED` and whose value differs: name, before, after
        (missing where a run has no such setting), in the order of `COMPARED`, then by name. Empty where all agree.
    """
    values = [_values(t) for t in (before, after)]
    names = sorted(set(values[0]) | set(values[1]), key=lambda n: (_place(n), n))
    rows = [
        {"name": n, "before": values[0].get(n), "after": values[1].get(n)}
        for n in names
        if _place(n) < len(COMPARED) and values[0].get(n) != values[1].get(n)
    ]
    return pd.DataFrame(rows, columns=["name", "before", "after"], dtype="string")


def _values(settings: pd.DataFrame) -> dict[str, str]:
    table = SETTINGS.check(settings).dropna(subset=["name"])
    return dict(zip(table["name"].astype(str), table["value"].astype(str), strict=True))


def _place(name: str) -> int:
    return next((i for i, prefix in enumerate(COMPARED) if name.startswith(prefix)), len(COMPARED))
