"""Telemetry of hosts and cards -> how a rank's machine differs from its peers' and from its own beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.tables import TELEMETRY

NOISE_SIGMAS = 5.0  # of the peers, robust: one false alarm in a million normal values
CHANGE_SAMPLES_LEAST = 6  # a beginning and an end of two samples each are too few to tell a change
COLUMNS = ["rank_id", "reason", "metric", "value", "usual", "compared_with", "samples"]


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
CONTEXT = ("device_temperature_celsius", "device_power_watts")  # told beside a throttled clock


def rank_levels(telemetry: pd.DataFrame) -> pd.DataFrame:
    """Typical value of each metric on each rank: host metrics without a rank count for all ranks of the host.

    Returns:
        One row per (rank_id, metric): value (median), first and last (medians of the first and last third in order of
        time or step), noise (1.4826 MAD within the thirds), samples. Empty in, empty out.

    Raises:
        MissingColumnsError: `telemetry` lacks a column.
    """
    rows = TELEMETRY.check(telemetry).dropna(subset=["value"])
    rows = _with_ranks(rows).sort_values(["time_ns", "step", "time_us", "value"], kind="stable")
    found = [
        (int(rank_id), metric, *_levels(one["value"].to_numpy(float)))
        for (rank_id, metric), one in rows.groupby(["rank_id", "metric"])
    ]
    return pd.DataFrame(found, columns=["rank_id", "metric", "value", "first", "last", "noise", "samples"])


def physical_reasons(telemetry: pd.DataFrame, rank_id: int) -> pd.DataFrame:
    """What about a rank's card and host explains that it is slow.

    A metric of `SIGNS` counts if the rank's median differs from the median of the other ranks by more than
    `NOISE_SIGMAS` of their spread and by the sign's own least difference; a clock also if it fell against its own
    beginning by as much.

    Args:
        telemetry: table `telemetry`.
        rank_id: the slow rank.

    Returns:
        One row per sign found, those of one reason together: rank_id, reason, metric, value, usual, compared_with
        ("other ranks" or "its beginning"), samples. `CONTEXT` metrics follow a throttled clock, with reason "context".
        Empty where nothing explains it.
    """
    levels = rank_levels(telemetry)
    own = levels[levels["rank_id"] == rank_id].set_index("metric")
    others = levels[levels["rank_id"] != rank_id]
    found = []
    for sign in SIGNS:
        if sign.metric in own.index:
            peers = others.loc[others["metric"] == sign.metric, "value"].to_numpy(float)
            found += _against_peers(sign, own.loc[sign.metric], peers) or _against_beginning(sign, own.loc[sign.metric])
    if any(row[0] == "device_throttled" for row in found):
        found += [_context(metric, own.loc[metric], others) for metric in CONTEXT if metric in own.index]
    return pd.DataFrame([(rank_id, *row) for row in found], columns=COLUMNS)


def _with_ranks(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with a rank; those of a host alone once for each rank on that host, those of a card without a rank not."""
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
