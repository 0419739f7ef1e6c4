"""Telemetry of hosts and cards -> how a rank's machine differs from its peers' and from its own beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from workbench.analyses.memory import step_starts
from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.tables import TELEMETRY, TRAINING_STEPS

NOISE_SIGMAS = 5.0  # of the peers, robust: one false alarm in a million normal values
CHANGE_SAMPLES_LEAST = 6  # a beginning and an end of two samples each are too few to tell a change
COLUMNS = ["rank_id", "reason", "metric", "value", "usual", "compared_with", "samples", "during"]
TIMES = ["step", "start_ns", "end_ns"]
BESIDE_SAMPLES = 1.5  # of the time between samples: how far beside a window shorter than that one may lie
IDLE_SHARE = 0.5  # of the peers' use: a card that idles lowers its clock, which is no reason but a consequence
WHOLE_RUN = "whole run"


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A metric that can be the reason for a slow rank: which way is worse, and from which difference on."""

    metric: str
    reason: str  # word for a finding's sub_cause
    worse: Literal["higher", "lower"]
    least_share: float = 0.0  # of the usual value
    least: float = 0.0  # absolute, in the metric's unit


SIGNS = (
    # a card at 95 % of its clock computes 5 % slower: what noise in step times cannot hide
    Sign(metric="device_clock_mhz", reason="device_throttled", worse="lower", least_share=0.05),
    Sign(metric="device_aicore_frequency_mhz", reason="device_throttled", worse="lower", least_share=0.05),
    # a retry frees caches and waits for the device; peers without one are the measure
    Sign(metric="allocation_retries", reason="fragmentation", worse="higher", least_share=0.5, least=1.0),
    Sign(metric="host_cpu_share", reason="host_busy", worse="higher", least=0.2),
    Sign(metric="process_involuntary_switches_per_s", reason="host_busy", worse="higher", least_share=2.0, least=100.0),
    Sign(metric="host_io_wait_share", reason="storage_slow", worse="higher", least=0.1),
    Sign(metric="host_cpu_io_wait_share", reason="storage_slow", worse="higher", least=0.1),
    # one segment in a hundred sent again is a bad link; below one a second it delays nothing
    Sign(metric="tcp_retransmits_per_s", reason="network_retransmits", worse="higher", least_share=2.0, least=1.0),
)
CONTEXT = {  # told beside a sign of that reason
    "device_throttled": ("device_temperature_celsius", "device_power_watts"),
    "fragmentation": ("device_reserved_bytes", "device_max_reserved_bytes", "device_allocated_bytes"),
}


def rank_levels(telemetry: pd.DataFrame) -> pd.DataFrame:
    """Typical value of each metric on each rank: host metrics without a rank count for all ranks of the host.

    Returns:
        One row per (rank_id, metric): value (median), first and last (medians of the first and last third in order of
        time or step), noise (1.4826 MAD within the thirds), samples. Empty in, empty out.

    Raises:
        MissingColumnsError: `telemetry` lacks a column.
    """
    rows = TELEMETRY.check(telemetry).dropna(subset=["value"])
    rows = with_ranks(rows).sort_values(["time_ns", "step", "time_us", "value"], kind="stable")
    found = [
        (int(rank_id), metric, *_levels(one["value"].to_numpy(float)))
        for (rank_id, metric), one in rows.groupby(["rank_id", "metric"])
    ]
    return pd.DataFrame(found, columns=["rank_id", "metric", "value", "first", "last", "noise", "samples"])


def step_times(training_steps: pd.DataFrame | None, kernels: pd.DataFrame | None = None) -> pd.DataFrame:
    """When each step ran, over all ranks: step, start_ns, end_ns; of `training_steps`, else of a profile's tasks.

    Args:
        training_steps: table `training_steps`, or None.
        kernels: table `kernels`, or None; its steps end where the next begins, the last one has no end and is left out.
    """
    if training_steps is not None and len(training_steps):
        rows = TRAINING_STEPS.check(training_steps).dropna(subset=["time_ns", "step_us"])
        length_ns = (rows["step_us"] * 1e3).round().astype("int64")
        timed = rows.assign(
            end_ns=rows["time_ns"].astype("int64"), start_ns=rows["time_ns"].astype("int64") - length_ns
        )
    elif kernels is not None and len(kernels):
        starts = step_starts(kernels).sort_values(["rank_id", "window", "step"])
        next_ns = starts.groupby(["rank_id", "window"], dropna=False)["start_ns"].shift(-1)
        timed = starts.assign(end_ns=next_ns).dropna(subset=["end_ns"])
    else:
        return pd.DataFrame(columns=TIMES)
    return timed.groupby("step", as_index=False).agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))[TIMES]


def during_steps(telemetry: pd.DataFrame, steps: tuple[int, int], times: pd.DataFrame) -> pd.DataFrame:
    """The samples taken during a range of steps: by their step where they have one, else by time.

    A range that is shorter than the time between samples takes the samples beside it.

    Args:
        telemetry: table `telemetry`.
        steps: first and last step.
        times: as `step_times` returns.
    """
    rows = TELEMETRY.check(telemetry)
    numbered = rows["step"].between(*steps).fillna(False).astype(bool)
    ran = times[times["step"].between(*steps)]
    if ran.empty:
        return rows[numbered]
    start, end = int(ran["start_ns"].min()), int(ran["end_ns"].max())
    inside = rows["time_ns"].between(start, end).fillna(False).astype(bool)
    if not inside.any():
        beside = BESIDE_SAMPLES * _sample_interval_ns(rows)
        inside = rows["time_ns"].between(start - beside, end + beside).fillna(False).astype(bool)
    return rows[numbered | inside]


def physical_reasons(
    telemetry: pd.DataFrame,
    rank_id: int,
    *,
    steps: tuple[int, int] | None = None,
    times: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """What about a rank's card and host explains that it is slow.

    A metric of `SIGNS` counts if the rank's median differs from the median of the other ranks by more than
    `NOISE_SIGMAS` of their spread and by the sign's own least difference; a clock also if it fell against its own
    beginning (against the time before the steps) by as much. A clock of a card that is less busy than half of the
    others' is none: idling lowers it.

    Args:
        telemetry: table `telemetry`.
        rank_id: the slow rank.
        steps: first and last step at which it is slow; all samples count where none was taken then.
        times: as `step_times` returns.

    Returns:
        One row per sign found, those of one reason together: rank_id, reason, metric, value, usual, compared_with
        ("other ranks" or "its beginning"), samples, during ("steps 5 to 14", or `WHOLE_RUN`). `CONTEXT` metrics follow
        their reason, with reason "context". Empty where nothing explains it.
    """
    chosen = (
        None
        if steps is None
        else during_steps(telemetry, steps, pd.DataFrame(columns=TIMES) if times is None else times)
    )
    inside = telemetry if chosen is None or rank_id not in set(rank_levels(chosen)["rank_id"]) else chosen
    levels = rank_levels(inside)
    own = levels[levels["rank_id"] == rank_id].set_index("metric")
    others = levels[levels["rank_id"] != rank_id]
    before = _before(telemetry, inside, rank_id)
    found: list[Row] = []
    for sign in SIGNS:
        if sign.metric not in own.index or (sign.reason == "device_throttled" and _is_idle(own, others)):
            continue
        peers = others.loc[others["metric"] == sign.metric, "value"].to_numpy(float)
        mine = own.loc[sign.metric]
        found += _against_peers(sign, mine, peers) or _against_beginning(sign, _with_beginning(mine, before))
    for reason, metrics in CONTEXT.items():
        if any(row[0] == reason for row in found):
            found += [_context(metric, own.loc[metric], others) for metric in metrics if metric in own.index]
    when = WHOLE_RUN if inside is telemetry or steps is None else f"steps {steps[0]} to {steps[1]}"
    return pd.DataFrame([(rank_id, *row, when) for row in found], columns=COLUMNS)


def _sample_interval_ns(rows: pd.DataFrame) -> float:
    """Usual time between two samples of a metric."""
    timed = rows.dropna(subset=["time_ns"]).sort_values("time_ns")
    between = timed.groupby(["host", "rank_id", "device_id", "metric"], dropna=False)["time_ns"].diff().dropna()
    return float(between.median()) if len(between) else 0.0


def _before(telemetry: pd.DataFrame, inside: pd.DataFrame, rank_id: int) -> pd.DataFrame:
    """Levels of the rank before the samples of `inside`; empty where those are all."""
    if inside is telemetry or inside["time_ns"].notna().sum() == 0:
        return pd.DataFrame(columns=["value", "noise", "samples"])
    earlier = telemetry[(telemetry["time_ns"] < inside["time_ns"].min()).fillna(False).astype(bool)]
    levels = rank_levels(earlier)
    return levels[levels["rank_id"] == rank_id].set_index("metric")


def _with_beginning(own: pd.Series, before: pd.DataFrame) -> pd.Series:
    """The levels of a metric with what was before the steps as its beginning, where that was sampled."""
    if own.name not in before.index:
        return own
    earlier = before.loc[own.name]
    changed = {
        "first": earlier["value"],
        "last": own["value"],
        "noise": max(float(earlier["noise"]), float(own["noise"])),
        "samples": int(earlier["samples"]) + int(own["samples"]),
    }
    return pd.Series({**own.to_dict(), **changed}, name=own.name)


def _is_idle(own: pd.DataFrame, others: pd.DataFrame) -> bool:
    """Whether the rank's card is used far less than the others'."""
    metric = "device_utilization_share"
    peers = others.loc[others["metric"] == metric, "value"]
    return metric in own.index and len(peers) > 0 and bool(own.loc[metric, "value"] < IDLE_SHARE * peers.median())


def with_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with a rank; those of a host alone once for each rank on that host.

    Rows of a card without a rank are left out, but where one host is all there is, a card's number is its rank.
    """
    if rows["rank_id"].isna().all() and len(rows["host"].drop_duplicates()) == 1:
        rows = rows.assign(rank_id=rows["device_id"])
    ranked = rows[rows["rank_id"].notna()]
    places = ranked[["host", "rank_id"]].drop_duplicates()
    shared = rows[rows["rank_id"].isna() & rows["device_id"].isna()].drop(columns="rank_id").merge(places, on="host")
    return pd.concat([ranked, shared], ignore_index=True)


def _levels(values: np.ndarray) -> tuple[float, float, float, float, int]:
    third = max(len(values) // 3, 1)
    first, last = values[:third], values[-third:]
    noise = MAD_TO_SIGMA * max(mad(first), mad(last))
    return float(np.median(values)), float(np.median(first)), float(np.median(last)), noise, len(values)


def _is_worse(sign: Sign, value: float, usual: float, noise: float) -> bool:
    worse_by = usual - value if sign.worse == "lower" else value - usual
    return worse_by > NOISE_SIGMAS * noise and worse_by >= sign.least and worse_by >= sign.least_share * abs(usual)


Row = tuple[str, str, float, float, str, int]


def _against_peers(sign: Sign, own: pd.Series, peers: np.ndarray) -> list[Row]:
    if len(peers) == 0:
        return []
    usual = float(np.median(peers))
    noise = MAD_TO_SIGMA * mad(peers)
    if not _is_worse(sign, float(own["value"]), usual, noise):
        return []
    return [(sign.reason, sign.metric, float(own["value"]), usual, "other ranks", int(own["samples"]))]


def _against_beginning(sign: Sign, own: pd.Series) -> list[Row]:
    """A clock that fell; other metrics change over a run for many reasons."""
    if sign.reason != "device_throttled" or own["samples"] < CHANGE_SAMPLES_LEAST:
        return []
    if not _is_worse(sign, float(own["last"]), float(own["first"]), float(own["noise"])):
        return []
    return [(sign.reason, sign.metric, float(own["last"]), float(own["first"]), "its beginning", int(own["samples"]))]


def _context(metric: str, own: pd.Series, others: pd.DataFrame) -> Row:
    peers = others.loc[others["metric"] == metric, "value"]
    usual, against = (float(peers.median()), "other ranks") if len(peers) else (float(own["first"]), "its beginning")
    return ("context", metric, float(own["last"]), usual, against, int(own["samples"]))
