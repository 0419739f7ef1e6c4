"""Runs at several device counts -> speed-up, efficiency, where it bends, what the loss is made of, and a forecast.

Everything is counted in device time per unit of work, so that strong scaling (the same work on more devices), weak
scaling (more work on more devices) and anything between them are measured alike, and the parts of the loss add up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import optimize, stats

from workbench.analyses.changes import all_as_peers, without_data_wait
from workbench.analyses.statistics import FloatArray
from workbench.analyses.step_model import Durations, StepModel
from workbench.analyses.what_if import step_model
from workbench.errors import MissingColumnsError, UnknownParameterError

PARTS = ("computing", "input", "late_ranks", "communication", "bubble", "launch_gaps")
PART_COLUMNS = [f"{part}_us" for part in PARTS]
BEND_EXPONENT = 0.85  # doubling the devices gives less than 2^0.85 = 1.8 times the throughput
CONFIDENCE = 0.95


def scaling_point(
    tables: Mapping[str, pd.DataFrame], *, devices: int | None = None, work_per_step: float | None = None
) -> pd.DataFrame:
    """What the steps of one run are made of, by taking away one cause of lost time after the other in the replay.

    Args:
        tables: as `workbench.analyses.what_if.step_model` takes them.
        devices: devices of the job; by default the ranks in the tables.
        work_per_step: samples or tokens of a step of the whole job; by default 1 per device (weak scaling).

    Returns:
        One row: devices, work_per_step, step_us (mean), and its parts, which sum to it: input_us (waiting for data),
        late_ranks_us (unequal ranks), launch_gaps_us (host), communication_us (exposed), bubble_us (pipeline stages
        that wait for each other), computing_us (mean over ranks). What two causes hide together counts for the later
        one.
    """
    model = step_model(tables)
    table = model.recorded.operations
    now = Durations.recorded(model)
    lengths = [_mean(model, now)]
    now = without_data_wait(model, now, {})
    lengths.append(_mean(model, now))
    now = all_as_peers(model, now)
    lengths.append(_mean(model, now))
    work = now.work_us
    lengths.append(_mean(model, Durations(np.zeros(len(work)), work)))
    work = np.where(table["role"] == "compute", work, 0.0)
    lengths.append(_mean(model, Durations(np.zeros(len(work)), work)))
    steps, ranks = len(model.recorded.steps), table["rank_id"].nunique()
    lengths.append(float(work.sum()) / steps / ranks)
    parts = dict(zip(("input", "late_ranks", "launch_gaps", "communication", "bubble"), -np.diff(lengths), strict=True))
    count = ranks if devices is None else devices
    row = {"devices": count, "work_per_step": float(count if work_per_step is None else work_per_step)}
    row |= {"step_us": lengths[0], "computing_us": lengths[-1]} | {f"{p}_us": float(us) for p, us in parts.items()}
    return pd.DataFrame([row])[["devices", "work_per_step", "step_us", *PART_COLUMNS]]


def scaling_efficiency(points: pd.DataFrame) -> pd.DataFrame:
    """Speed-up and efficiency against the smallest run, and what the loss is made of.

    Args:
        points: one row per run: devices, work_per_step, step_us, and where known the parts of `PART_COLUMNS`. Several
            runs at one device count are averaged.

    Returns:
        One row per device count: devices, throughput_per_s, speed_up, ideal_speed_up, efficiency_share, exponent (1:
        doubling doubles the throughput, against the count before; NaN for the first), is_bend (the first count whose
        exponent is below `BEND_EXPONENT`), and per part lost_<part>_share: efficiency_share and these sum to 1 (NaN
        where the parts are not known; a part that shrank is negative). lost_unknown_share: time outside the parts.

    Raises:
        MissingColumnsError: a column is missing.
        UnknownParameterError: a device count, work or step time is not above 0.
    """
    runs = _checked(points).groupby("devices", as_index=False).mean(numeric_only=True).sort_values("devices")
    cost = runs["devices"] * runs["step_us"] / runs["work_per_step"]
    throughput = runs["work_per_step"] / runs["step_us"] * 1e6
    speed_up, ideal = throughput / throughput.iloc[0], runs["devices"] / runs["devices"].iloc[0]
    exponent = np.log(speed_up).diff() / np.log(ideal).diff()
    low = (exponent < BEND_EXPONENT).to_numpy()
    frame = pd.DataFrame(
        {
            "devices": runs["devices"],
            "throughput_per_s": throughput,
            "speed_up": speed_up,
            "ideal_speed_up": ideal,
            "efficiency_share": cost.iloc[0] / cost,
            "exponent": exponent,
            "is_bend": low & (np.cumsum(low) == 1),
        }
    )
    known = np.zeros(len(runs))
    for part in PARTS:
        column = runs[f"{part}_us"] if f"{part}_us" in runs else pd.Series(np.nan, runs.index)
        per_work = runs["devices"] * column / runs["work_per_step"]
        frame[f"lost_{part}_share"] = (per_work - per_work.iloc[0]) / cost
        known = known + frame[f"lost_{part}_share"].fillna(0.0)
    frame["lost_unknown_share"] = 1 - frame["efficiency_share"] - known
    return frame.reset_index(drop=True)


def scaling_forecast(points: pd.DataFrame, devices: list[int]) -> pd.DataFrame:
    """Throughput at other device counts, by the universal scalability law fitted to the runs.

    Device time per work = c (1 + contention (n - 1) + coherency n (n - 1)), n: devices over those of the smallest run.
    Neither coefficient is negative; contention is work that does not spread, coherency what grows with every pair.

    Args:
        points: as for `scaling_efficiency`; runs at one device count count as repeats.
        devices: counts to forecast.

    Returns:
        One row per count: devices, throughput_per_s, low_per_s and high_per_s (95 % prediction interval of a run; NaN
        with 3 runs or fewer, and an upper end beyond all bounds is NaN), speed_up and efficiency_share (against the
        fitted smallest run), contention, coherency.

    Raises:
        MissingColumnsError: a column is missing.
        UnknownParameterError: all runs have one device count, or a value is not above 0.

    Source: Gunther, Guerrilla Capacity Planning (2007), chapter 4.
    """
    runs = _checked(points)
    first = float(runs["devices"].min())
    if runs["devices"].nunique() < 2:
        raise UnknownParameterError("All runs have the same device count.", fix="give runs at two counts or more")
    cost = (runs["devices"] * runs["step_us"] / runs["work_per_step"]).to_numpy(dtype=np.float64)
    x = _terms(runs["devices"].to_numpy(dtype=np.float64) / first) / cost[:, None]  # noise is a share of the step time
    fitted, _ = optimize.nnls(x, np.ones(len(cost)))
    count = np.asarray(devices, dtype=np.float64)
    at = _terms(count / first)
    expected = at @ fitted
    margin = _margin(x, fitted, at, expected)
    linear = _terms(np.ones(1))  # the law knows nothing faster than linear scaling
    lowest = np.fmax(expected - margin, fitted[0] - _margin(x, fitted, linear, linear @ fitted))
    return pd.DataFrame(
        {
            "devices": devices,
            "throughput_per_s": count / expected * 1e6,
            "low_per_s": count / (expected + margin) * 1e6,
            "high_per_s": count / np.where(lowest > 0, lowest, np.nan) * 1e6,
            "speed_up": count / first * fitted[0] / expected,
            "efficiency_share": fitted[0] / expected,
            "contention": fitted[1] / fitted[0],
            "coherency": fitted[2] / fitted[0],
        }
    )


def _terms(n: FloatArray) -> FloatArray:
    return np.column_stack([np.ones_like(n), n - 1, n * (n - 1)])


def _margin(x: FloatArray, fitted: FloatArray, at: FloatArray, expected: FloatArray) -> FloatArray:
    """Half width of the prediction interval: of the fitted curve, and of one run around it."""
    freedom = len(x) - x.shape[1]
    if freedom < 1:
        return np.full(len(at), np.nan)
    residual = float(np.sqrt(((1 - x @ fitted) ** 2).sum() / freedom))
    curve = np.einsum("ij,jk,ik->i", at, np.linalg.pinv(x.T @ x), at)
    quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))
    return quantile * residual * np.sqrt(curve + expected**2)


def _mean(model: StepModel, durations: Durations) -> float:
    return float(model.recorded.step_us(durations.delay_us, durations.work_us).mean())


def _checked(points: pd.DataFrame) -> pd.DataFrame:
    needed = ["devices", "work_per_step", "step_us"]
    missing = [c for c in needed if c not in points]
    if missing:
        raise MissingColumnsError(
            f"The points lack {missing}; they have {list(points)}.", fix="make them with `scaling_point`"
        )
    if points.empty or not bool((points[needed] > 0).all(axis=None)):
        raise UnknownParameterError(
            "Every run needs devices, work_per_step and step_us above 0.", fix="leave out runs that have none"
        )
    return points
