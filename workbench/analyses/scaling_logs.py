"""Logs of jobs at several device counts -> one row per job, and the points of a scaling curve.

Few logs say how many devices there are. What they do print tells it: operations or samples per second and device, next
to the batch and the time of a step of the whole job.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import numpy as np
import pandas as pd

from workbench.analyses.log_runs import run_of_source
from workbench.tables import LOG_MESSAGES, SERIES, SETTINGS, TRAINING_STEPS

WORLD_SETTINGS = ("world_size", "device_num", "worker_num", "num_devices", "n_gpus", "num_gpus")
RUNS = ["run", "first_ns", "steps", "step_us", "work_per_step", "ranks", "hosts", "devices", "flops_per_s",
        "compute_us", "compute_max_us", "gradient_sync_us", "gradient_sync_max_us", "input_us"]  # fmt: skip
WHOLE = 0.05  # an estimated ratio of device counts is taken as the whole number that it is this close to
MESSAGES_LEAST = 2  # ranks with a log, from which on their number is taken for the devices
# timers of Megatron, without _ms; of several of a kind the longest encloses the others
TIMERS = {
    "compute": ("forward-backward",),
    "gradient_sync": ("all-grads-sync", "grads-all-reduce", "grads-reduce-scatter", "backward-params-all-reduce"),
    "input": ("batch-generator",),
}


def logged_runs(
    training_steps: pd.DataFrame,
    settings: pd.DataFrame | None = None,
    log_messages: pd.DataFrame | None = None,
    series: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The jobs behind a set of logs: their step time, batch, devices and timers.

    Which logs are one job is for `workbench.analyses.log_runs.run_of_source` to say.

    Args:
        training_steps: table `training_steps` with sources.
        settings: table `settings`; gives the batch and the device count of each log, where printed.
        log_messages: table `log_messages`; gives the hosts and communicator sizes that lines name.
        series: table `series`; gives the timers.

    Returns:
        One row per job in order of time: run (file or folder), first_ns, steps (without those that compile), step_us
        (median), work_per_step (samples of the whole job), ranks (with a log), hosts, devices, flops_per_s (per device,
        median), compute_us and compute_max_us (forward and backward pass of the fastest and slowest rank),
        gradient_sync_us and gradient_sync_max_us (likewise), input_us. Missing where the logs do not tell. Empty where
        no log has step times.

    Raises:
        MissingColumnsError: a column is missing.
    """
    rows = TRAINING_STEPS.check(training_steps)
    timed = rows[rows["source"].notna() & rows["step_us"].gt(0) & ~rows["compiled"].fillna(False).astype(bool)]
    if timed.empty:
        return pd.DataFrame(columns=RUNS)
    run_of = _runs(timed)
    jobs = []
    for run, steps in timed.groupby(timed["source"].map(run_of), sort=True):
        files = [str(f) for f, r in run_of.items() if r == run]
        job = {"run": run, "first_ns": steps["time_ns"].min(), "steps": len(steps)}
        job |= {"step_us": steps["step_us"].median(), "flops_per_s": steps["flops_per_s"].median()}
        job |= _size(steps, files, settings, log_messages) | _timers(files, series)
        jobs.append(job)
    frame = pd.DataFrame(jobs, columns=RUNS).sort_values(["first_ns", "run"], ignore_index=True)
    numbers = [c for c in RUNS if c not in ("run", "first_ns")]
    return frame.astype(dict.fromkeys(numbers, "float64") | {"first_ns": "Int64"})


def logged_points(runs: pd.DataFrame) -> pd.DataFrame:
    """The jobs as points of a scaling curve, as `workbench.analyses.scaling.scaling_efficiency` takes them.

    Args:
        runs: as `logged_runs` returns.

    Returns:
        One row per job whose device count, batch and step time are known: run, devices, work_per_step, step_us,
        computing_us, late_ranks_us and communication_us (from timers; missing without), is_relative (devices counts in
        units of the smallest job, because no log tells their number). Empty where fewer than two differ in devices.
    """
    known = runs.dropna(subset=["step_us", "work_per_step"])
    devices, relative = _devices(known)
    points = pd.DataFrame(
        {
            "run": known["run"],
            "devices": devices,
            "work_per_step": known["work_per_step"],
            "step_us": known["step_us"],
            "computing_us": known["compute_us"],
            "late_ranks_us": known["compute_max_us"] - known["compute_us"],
            "communication_us": known["gradient_sync_us"],
            "is_relative": relative,
        }
    ).dropna(subset=["devices"])
    differ = len(points) and points["devices"].min() < points["devices"].max()
    return points.reset_index(drop=True) if differ else points.iloc[:0]


def _runs(timed: pd.DataFrame) -> dict[str, str]:
    """Job of each log, named by its folder, or by itself where it is the only log of its job."""
    jobs = run_of_source(timed)
    names: dict[str, str] = {}
    for _, logs in jobs.groupby(jobs):
        own = str(logs.index[0]) if len(logs) == 1 else str(PurePosixPath(str(logs.index[0])).parent)
        names |= dict.fromkeys(map(str, logs.index), own)
    return names


def _size(
    steps: pd.DataFrame, files: list[str], settings: pd.DataFrame | None, log_messages: pd.DataFrame | None
) -> dict[str, float]:
    work = _setting(settings, files, ("global_batch_size",))
    ranks = int(steps["rank_id"].nunique())
    hosts, communicator = _hosts(log_messages, files)
    per_device = float(steps["samples_per_s"].median())
    devices = _setting(settings, files, WORLD_SETTINGS)
    if np.isnan(devices) and work > 0 and per_device > 0:
        devices = _nearly_whole(work / (per_device * float(steps["step_us"].median()) / 1e6))
    if np.isnan(devices):
        devices = communicator if communicator > 0 else float(ranks) if ranks >= MESSAGES_LEAST else float("nan")
    return {"work_per_step": work, "ranks": ranks, "hosts": hosts, "devices": devices}


def _setting(settings: pd.DataFrame | None, files: list[str], names: tuple[str, ...]) -> float:
    if settings is None:
        return float("nan")
    rows = SETTINGS.check(settings)
    last = rows["name"].str.rsplit(".", n=1).str[-1]
    found = pd.to_numeric(rows.loc[last.isin(names) & rows["source"].isin(files), "value"], errors="coerce").dropna()
    return float(found.max()) if len(found) and found.max() > 0 else float("nan")


def _hosts(log_messages: pd.DataFrame | None, files: list[str]) -> tuple[float, float]:
    """Hosts that the lines of a job name, and the size of its largest communicator; NaN and 0 where none does."""
    if log_messages is None:
        return float("nan"), 0.0
    rows = LOG_MESSAGES.check(log_messages)
    mine = rows[rows["file"].isin(files) & (rows["kind"] == "network_transport")]
    facts = [json.loads(f) for f in mine["fields"].dropna()]
    hosts = {f["host"] for f in facts if "host" in f}
    return float(len(hosts)) if hosts else float("nan"), float(max((f.get("ranks", 0) for f in facts), default=0))


def _timers(files: list[str], series: pd.DataFrame | None) -> dict[str, float]:
    if series is None:
        return {}
    rows = SERIES.check(series)
    medians = rows[rows["file"].isin(files)].groupby("column")["value"].median()
    found: dict[str, float] = {}
    for part, names in TIMERS.items():
        low = [medians[c] for n in names for c in (f"{n}_min_ms", f"{n}_ms") if c in medians]
        high = [medians[c] for n in names for c in (f"{n}_max_ms", f"{n}_ms") if c in medians]
        if low and high:
            found |= {f"{part}_us": max(low) * 1e3, f"{part}_max_us": max(high) * 1e3}
    return {name: value for name, value in found.items() if name in RUNS}


def _devices(runs: pd.DataFrame) -> tuple[pd.Series, bool]:
    """Devices of each job: as known, else by the operations per second and device; relative where none is known."""
    known = runs["devices"]
    spent = runs["work_per_step"] / (runs["step_us"] * runs["flops_per_s"])  # proportional to the devices
    if known.notna().all():
        return known, False
    anchored = known.notna() & spent.notna()
    if anchored.any():
        unit = float((spent[anchored] / known[anchored]).median())
        return known.fillna((spent / unit).map(_nearly_whole)), False
    if spent.notna().sum() >= 2:
        return (spent / spent.min()).map(_nearly_whole), True
    return runs["hosts"] if runs["hosts"].notna().all() else known, True


def _nearly_whole(value: float) -> float:
    nearest = round(value) if np.isfinite(value) else 0
    return float(nearest) if nearest and abs(value - nearest) <= WHOLE * nearest else value
