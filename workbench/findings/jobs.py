"""Which jobs lie in a directory, and which of them a diagnosis judges."""

from __future__ import annotations

from os.path import commonpath

import pandas as pd

from workbench.analyses.version_change import changed_items, is_other_job, is_other_model
from workbench.findings.rule import Tables
from workbench.overview import plain

PROFILE = ("step_time", "kernels")


def told_jobs(all_runs: Tables) -> tuple[str, ...]:
    """Sentences on the jobs of a directory; none where it holds one, and no profiles that could be another's.

    Args:
        all_runs: tables as `rule_tables.of_all_runs` returns.
    """
    steps = all_runs.get("training_steps")
    if steps is None or steps.empty:
        return ()
    runs = [part for _, part in steps.groupby("run")]
    told = (*(_several(runs, all_runs.get("settings")) if len(runs) > 1 else ()), *_profiled(runs[-1], all_runs))
    return tuple(plain(sentence) for sentence in told)


def _several(runs: list[pd.DataFrame], settings: pd.DataFrame | None) -> tuple[str, ...]:
    """As rules do it: the last run is judged, the first is what it is compared with."""
    first, last = runs[0], runs[-1]
    files = {0: _files(first), 1: _files(last)}
    listed = "; ".join(
        f"{_name(run)} ({_counted(len(_files(run)), 'file')}, {_counted(run['rank_id'].nunique(), 'rank')}, "
        f"steps {run['step'].min()} to {run['step'].max()})"
        for run in runs
    )
    items = changed_items(settings, files)
    if not is_other_job(first, last, items):
        compared = f"Compared with {_name(first)}."
    elif is_other_model(first, last, items):
        compared = f"Not compared with {_name(first)}: its model or its losses are others."
    else:
        compared = f"Compared with {_name(first)} in how it scales, if at all: nothing tells that they are one job."
    return (f"{len(runs)} jobs are here: {listed}.", f"Judged is the latest, {_name(last)}. {compared}")


def _profiled(last: pd.DataFrame, all_runs: Tables) -> tuple[str, ...]:
    profiled = {int(r) for name in PROFILE if name in all_runs for r in all_runs[name]["rank_id"].unique()}
    recorded = {int(r) for r in last["rank_id"].unique()}
    if len(recorded) < 2 or profiled <= recorded:
        return ()  # the log of one rank beside all profiles, and profiles of some ranks, are what one job often leaves
    return (
        f"Profiles are of {_counted(len(profiled), 'rank')}, steps of {_counted(len(recorded), 'rank')}: "
        "they are judged together, as one job. If they are two, give each a directory of its own.",
    )


def _files(run: pd.DataFrame) -> list[str]:
    return sorted(str(s) for s in run["source"].dropna().unique())


def _name(run: pd.DataFrame) -> str:
    """The folder that its files share, else the first file."""
    files = _files(run)
    folder = commonpath([f.rpartition("/")[0] for f in files]) if files else ""
    return folder or (files[0] if files else "steps without a file")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
