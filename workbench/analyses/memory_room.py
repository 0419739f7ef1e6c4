"""Memory figures of a profile, recorded steps, logs and telemetry -> how much of each rank's limit was never used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from workbench.analyses.memory import memory_peaks
from workbench.analyses.settings import size_setting
from workbench.tables import LOG_MESSAGES, TELEMETRY

TABLES = ("memory_timeline", "training_steps", "log_messages", "telemetry", "settings")
PEAK, LIMIT = "peak", "limit"
LIMIT_SETTINGS = ("max_device_memory", "max_size")
STEP_PEAKS = ("device_reserved_bytes", "device_allocated_bytes")
LOG_FIGURES = {"actual_peak_bytes": PEAK, "budget_bytes": LIMIT, "device_memory_bytes": LIMIT}
METRICS = {"device_memory_used_bytes": PEAK, "device_memory_total_bytes": LIMIT}
Fact = tuple[object, str, float, str]  # rank (<NA>: all), PEAK or LIMIT, bytes, where it stands


def memory_room(tables: Mapping[str, pd.DataFrame], ranks: Sequence[int]) -> pd.DataFrame:
    """Highest known memory of each rank against its lowest known limit.

    Peaks are those of the pool with what it reserves, from whichever source says most; the limit is that of the pool
    (setting, log) or the size of the card. What is told without a rank holds for all ranks.

    Args:
        tables: any of TABLES.
        ranks: ranks to tell of.

    Returns:
        One row per rank_id: peak_bytes, peak_from, limit_bytes, limit_from (tables, or the setting), room_bytes
        (limit - peak, at least 0). Missing where not known.
    """
    facts = pd.DataFrame(
        [*_curves(tables), *_log_figures(tables.get("log_messages")), *_metrics(tables.get("telemetry")),
         *_settings(tables.get("settings"))],
        columns=["rank_id", "what", "bytes", "where"],
    ).astype({"rank_id": "Int64", "bytes": "float64"})  # fmt: skip
    rows = []
    for rank in ranks:
        own = facts[(facts["rank_id"].isna() | (facts["rank_id"] == rank)) & (facts["bytes"] > 0)]
        peak, peak_from = _first(own[own["what"] == PEAK].sort_values("bytes", ascending=False, kind="stable"))
        limit, limit_from = _first(own[own["what"] == LIMIT].sort_values("bytes", kind="stable"))
        rows.append((rank, peak, peak_from, limit, limit_from))
    room = pd.DataFrame(rows, columns=["rank_id", "peak_bytes", "peak_from", "limit_bytes", "limit_from"])
    return room.assign(room_bytes=(room["limit_bytes"] - room["peak_bytes"]).clip(lower=0.0))


def _first(facts: pd.DataFrame) -> tuple[float, str | None]:
    return (float("nan"), None) if facts.empty else (float(facts["bytes"].iloc[0]), str(facts["where"].iloc[0]))


def _curves(tables: Mapping[str, pd.DataFrame]) -> Iterable[Fact]:
    """Peaks of the profiled pool (reserved, else allocated) and of the recorded steps."""
    if "memory_timeline" in tables:
        peaks = memory_peaks(tables["memory_timeline"])
        size = peaks["peak_reserved_bytes"].fillna(peaks["peak_allocated_bytes"])
        yield from _by_rank(size.set_axis(peaks["rank_id"]), PEAK, "memory_timeline")
    if "training_steps" in tables:
        for column in STEP_PEAKS:
            yield from _by_rank(tables["training_steps"].groupby("rank_id")[column].max(), PEAK, "training_steps")


def _log_figures(log_messages: pd.DataFrame | None) -> Iterable[Fact]:
    """Figures of the memory summaries of MindSpore's log."""
    if log_messages is None:
        return
    rows = LOG_MESSAGES.check(log_messages)
    rows = rows[rows["kind"].eq("memory_summary").fillna(False)]
    for name, what in LOG_FIGURES.items():
        size = rows["fields"].str.extract(rf'"{name}":\s*([\d.]+)')[0].astype("float64")
        yield from _by_rank(size.set_axis(rows["rank_id"]), what, "log_messages")


def _metrics(telemetry: pd.DataFrame | None) -> Iterable[Fact]:
    """Memory of the card, used and total, where a sample names its rank."""
    if telemetry is None:
        return
    rows = TELEMETRY.check(telemetry).dropna(subset=["rank_id"])
    for name, what in METRICS.items():
        size = rows[rows["metric"].eq(name).fillna(False)].groupby("rank_id")["value"]
        yield from _by_rank(size.max() if what == PEAK else size.min(), what, "telemetry")


def _settings(settings: pd.DataFrame | None) -> Iterable[Fact]:
    for name in LIMIT_SETTINGS:
        size = size_setting(settings, name)
        if size is not None:
            yield (pd.NA, LIMIT, size, f"settings, {name}")


def _by_rank(sizes: pd.Series, what: str, where: str) -> Iterable[Fact]:
    return ((rank, what, float(size), where) for rank, size in sizes.dropna().items())
