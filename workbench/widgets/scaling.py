"""Runs at several device counts, or a CSV of points -> the points of a scaling curve."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from workbench.analyses.scaling import scaling_point
from workbench.analyses.scaling_logs import logged_points, logged_runs
from workbench.errors import UnknownContentError
from workbench.findings.finding import CAUSES
from workbench.findings.scaling import find_poor_scaling
from workbench.run import Run, open_run
from workbench.widgets.sections import Text

LOG_NAMES = ("training_steps", "settings", "log_messages", "series")
NAMES = ("kernels", "collectives", "step_time", "links")


def scaling_points(
    run_paths: Collection[str | os.PathLike[str]] = (), points_path: str | os.PathLike[str] | None = None
) -> pd.DataFrame:
    """Points of runs (of profiles one each, the same work per device), after those of a CSV.

    Args:
        run_paths: runs with the profiles of all their ranks; or folders of logs of jobs at several device counts, which
            give a point per job (without parts where the logs print no timers).
        points_path: CSV with the columns devices, work_per_step, step_us and, where known, their parts.

    Raises:
        UnknownContentError: neither is given, or the CSV is not there.
    """
    if points_path is not None and not Path(points_path).is_file():
        raise UnknownContentError(
            f"There is no file {points_path}.", fix="give a CSV with devices, work_per_step, step_us"
        )
    parts = [] if points_path is None else [pd.read_csv(points_path)]
    for path in run_paths:
        run = open_run(path, quiet=True)
        profiled = run.has("kernels") or not run.has("training_steps")
        parts.append(_of_profile(run) if profiled else _of_logs(run))
    if not parts:
        raise UnknownContentError("There is no run and no CSV of points.", fix="give run_paths or points_path")
    return pd.concat(parts, ignore_index=True)


def scaling_verdict(points: pd.DataFrame) -> Text:
    """One line on what the largest job loses, why, and what to do."""
    found = find_poor_scaling(points)
    if found:
        return Text(f"{found[0].title} {CAUSES[found[0].cause].capitalize()}. {found[0].fix}", quiet=False)
    return Text("The largest job uses its devices as the smallest one does, within a fifth.", quiet=False)


def _of_profile(run: Run) -> pd.DataFrame:
    return scaling_point({name: run.table(name) for name in NAMES if run.has(name) or name == "kernels"})


def _of_logs(run: Run) -> pd.DataFrame:
    tables = {name: run.table(name) for name in LOG_NAMES if name in run.tables}
    points = logged_points(logged_runs(**tables))
    if points.empty:
        raise UnknownContentError(
            f"The logs in {run.run_id} do not tell of jobs at several device counts.",
            fix="give logs that print the global batch size and samples or operations per second and device, or a CSV "
            "with devices, work_per_step, step_us",
        )
    return points
