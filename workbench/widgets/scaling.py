"""Runs at several device counts, or a CSV of points -> the points of a scaling curve."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from workbench.analyses.scaling import scaling_point
from workbench.errors import UnknownContentError
from workbench.run import open_run

NAMES = ("kernels", "collectives", "step_time", "links")


def scaling_points(
    run_paths: Collection[str | os.PathLike[str]] = (), points_path: str | os.PathLike[str] | None = None
) -> pd.DataFrame:
    """Points of profiled runs (one each, the same work per device), after those of a CSV.

    Args:
        run_paths: runs with the profiles of all their ranks.
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
        parts.append(
            scaling_point({name: run.table(name) for name in NAMES if name in run.tables or name == "kernels"})
        )
    if not parts:
        raise UnknownContentError("There is no run and no CSV of points.", fix="give run_paths or points_path")
    return pd.concat(parts, ignore_index=True)
