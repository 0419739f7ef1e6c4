"""Steps of several runs -> one table with a column `run`: courses over steps, and where a mean step's time goes."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analyses.device_steps import PARTS
from workbench.analyses.downsample import downsample
from workbench.analyses.step_time import time_shares, timed_steps
from workbench.analyses.training import job_steps


def courses(runs: Mapping[str, pd.DataFrame], column: str) -> pd.DataFrame:
    """One column of the jobs' steps, thinned for drawing.

    Args:
        runs: table `training_steps` by the name of the run.
        column: a numeric column of `job_steps`.

    Returns:
        One row per (run, step): run, step and `column`, without missing values. Empty in, empty out.
    """
    parts = []
    for name, steps in runs.items():
        job = job_steps(steps)[["step", column]].dropna()
        parts.append(downsample(job, [column]).assign(run=name) if len(job) else job.assign(run=name))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["step", column, "run"])


def recorded_parts(runs: Mapping[str, tuple[pd.DataFrame, pd.DataFrame | None]]) -> pd.DataFrame:
    """Where the wall time of a mean recorded step goes, mean over ranks.

    Args:
        runs: tables `training_steps` and `events` (or None) by the name of the run.

    Returns:
        One row per (run, part) with the parts of `time_shares`: run, part, us_per_step. Empty in, empty out.
    """
    parts = []
    for name, (steps, events) in runs.items():
        timed = timed_steps(steps, warmup_steps=0)
        count = timed[timed["excluded"] != "no time"].groupby("rank_id").size()
        shares = time_shares(steps, events)
        shares["us_per_step"] = shares["total_us"] / shares["rank_id"].map(count)
        parts.append(shares.groupby("part", as_index=False)["us_per_step"].mean().assign(run=name))
    columns = ["run", "part", "us_per_step"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def profiled_parts(runs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The same of profiled steps, with the parts of `device_steps`.

    Args:
        runs: as `device_steps` returns, by the name of the run.
    """
    parts = [
        steps[list(PARTS)].mean().rename_axis("part").rename("us_per_step").reset_index().assign(run=name)
        for name, steps in runs.items()
        if len(steps)
    ]
    columns = ["run", "part", "us_per_step"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
