"""Table `settings`: single values by name, and what changed between two runs."""

from __future__ import annotations

import re

import pandas as pd

from workbench.tables import SETTINGS

COMPARED = ("config.", "seeds.", "versions.", "data_fingerprint", "world_size", "device_target", "mode")

BYTES = {"": 1.0, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", re.IGNORECASE)


def setting(settings: pd.DataFrame | None, *names: str) -> str | None:
    """Value of the first of `names` that the settings have, as text; a dotted name is compared by its last part."""
    if settings is None:
        return None
    rows = SETTINGS.check(settings).dropna(subset=["name", "value"])
    last = rows["name"].str.rsplit(".", n=1).str[-1]
    for name in names:
        found = rows.loc[last == name, "value"]
        if len(found):
            return str(found.iloc[0])
    return None


def size_setting(settings: pd.DataFrame | None, *names: str) -> float | None:
    """A setting such as `58GB` in bytes (MindSpore's GB is 1024**3); None where it is absent or no size."""
    match = _SIZE.fullmatch(setting(settings, *names) or "")
    return float(match[1]) * BYTES[match[2].upper()] if match else None


def changed_settings(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Settings that differ between two runs, those that decide results first.

    Args:
        before: table `settings` of the earlier run.
        after: table `settings` of the later one.

    Returns:
        One row per setting whose value differs, of those whose name starts with one of `COMPARED` and those of YAML
        files: name, before, after (missing where a run has no such setting), in the order of `COMPARED`, then by name.
        Empty where all agree.
    """
    values = [_values(t) for t in (before, after)]
    configured = _of_yaml(before) | _of_yaml(after)
    names = sorted(set(values[0]) | set(values[1]), key=lambda n: (_place(n), n))
    rows = [
        {"name": n, "before": values[0].get(n), "after": values[1].get(n)}
        for n in names
        if (_place(n) < len(COMPARED) or n in configured) and values[0].get(n) != values[1].get(n)
    ]
    return pd.DataFrame(rows, columns=["name", "before", "after"], dtype="string")


def stated_changes(settings: pd.DataFrame | None) -> pd.DataFrame:
    """What a file with the columns before and after says has changed: name, before, after. Empty where nothing has."""
    columns = ["name", "before", "after"]
    if settings is None:
        return pd.DataFrame(columns=columns, dtype="string")
    values = _values(settings)
    named = {n.removeprefix("before."): v for n, v in values.items() if n.startswith("before.")}
    rows = [(n, old, values[f"after.{n}"]) for n, old in named.items() if values.get(f"after.{n}", old) != old]
    return pd.DataFrame(rows, columns=columns, dtype="string")


def _values(settings: pd.DataFrame) -> dict[str, str]:
    table = SETTINGS.check(settings).dropna(subset=["name"])
    return dict(zip(table["name"].astype(str), table["value"].astype(str), strict=True))


def _of_yaml(settings: pd.DataFrame) -> set[str]:
    table = SETTINGS.check(settings).dropna(subset=["name", "source"])
    return set(table.loc[table["source"].str.lower().str.endswith((".yaml", ".yml")), "name"].astype(str))


def _place(name: str) -> int:
    return next((i for i, prefix in enumerate(COMPARED) if name.startswith(prefix)), len(COMPARED))
