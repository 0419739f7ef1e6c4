"""Memory curves of a profile -> the pool of each rank over time, its peaks, growth per step and imbalance."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from workbench.tables import KERNELS, MEMORY_TIMELINE, SETTINGS

# the framework's own pool first: allocations are recorded of it; combined curves where it is alone
POOLS = ("MindSpore", "PTA", "CPU", "process", "MindSpore+GE", "PTA+GE", "GE")
STAGE_SETTINGS = ("pipeline_model_parallel_size", "pipeline_stage", "pipeline_stages", "pp")
CURVE = ["rank_id", "window", "component", "time_ns", "allocated_bytes", "reserved_bytes", "active_bytes"]


def memory_curve(memory_timeline: pd.DataFrame) -> pd.DataFrame:
    """The pool of each rank over time: one component, because the components of a file count memory several times.

    Returns:
        Table `memory_timeline` without the device, of each rank's and window's first component in `POOLS` (else its
        first by name) that has allocated bytes, ordered by rank, window and time. Empty in, empty out.

    Raises:
        MissingColumnsError: `memory_timeline` lacks a column.
    """
    rows = MEMORY_TIMELINE.check(memory_timeline)
    rows = rows[rows["allocated_bytes"].notna()]
    order = {name: place for place, name in enumerate(POOLS)}
    place = rows["component"].map(order).astype("float64").fillna(len(POOLS))
    ordered = rows.assign(place=place).sort_values(
        ["rank_id", "window", "place", "component", "time_ns", "allocated_bytes"], kind="stable"
    )
    ranks = ordered.groupby(["rank_id", "window"], dropna=False)["component"]
    first = ranks.transform("first")
    same = (ordered["component"] == first).fillna(False) | (ordered["component"].isna() & first.isna())
    return ordered.loc[same, CURVE].reset_index(drop=True)


def memory_peaks(memory_timeline: pd.DataFrame) -> pd.DataFrame:
    """Largest allocated, reserved and active memory of each rank.

    Returns:
        One row per rank_id (over its windows): component, samples, peak_allocated_bytes, peak_at_ns,
        peak_reserved_bytes, peak_active_bytes, first_reserved_bytes (when the record began), last_allocated_bytes,
        unused_bytes (peak reserved - peak allocated: what the pool holds beyond what was ever in use at once) and
        unused_share (of peak reserved, in [0, 1]). Empty in, empty out.
    """
    curve = memory_curve(memory_timeline)
    groups = curve.groupby("rank_id")
    peaks = groups.agg(
        component=("component", "first"),
        samples=("allocated_bytes", "size"),
        peak_allocated_bytes=("allocated_bytes", "max"),
        peak_reserved_bytes=("reserved_bytes", "max"),
        peak_active_bytes=("active_bytes", "max"),
        first_reserved_bytes=("reserved_bytes", "first"),
        last_allocated_bytes=("allocated_bytes", "last"),
    )
    highest = curve.sort_values(["allocated_bytes", "time_ns"], ascending=[False, True], kind="stable")
    peak_at = highest.drop_duplicates("rank_id").set_index("rank_id")["time_ns"]
    unused = (peaks["peak_reserved_bytes"] - peaks["peak_allocated_bytes"]).clip(lower=0.0)
    share = unused / peaks["peak_reserved_bytes"].where(peaks["peak_reserved_bytes"] > 0)
    return peaks.assign(peak_at_ns=peak_at, unused_bytes=unused, unused_share=share).reset_index()


def step_starts(kernels: pd.DataFrame) -> pd.DataFrame:
    """When each profiled step begins: rank_id, window, step, start_ns of its first task. Rows without step left out."""
    rows = KERNELS.check(kernels)[["rank_id", "window", "step", "start_ns"]].dropna(subset=["step", "start_ns"])
    return rows.groupby(["rank_id", "window", "step"], as_index=False, dropna=False)["start_ns"].min()


def step_floors(memory_timeline: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Least memory in use during each step: what is there between the steps' own rises and falls.

    The level that holds when a step begins counts to it. A pool's reserved memory never falls, so only allocated memory
    shows a leak before the end.

    Args:
        memory_timeline: table `memory_timeline`, with times.
        steps: as `step_starts` returns.

    Returns:
        One row per (rank_id, window, step) with a sample at or before its end: floor_bytes, top_bytes.
    """
    curve = memory_curve(memory_timeline).dropna(subset=["time_ns"])
    frames = []
    for (rank_id, window), one in steps.groupby(["rank_id", "window"], dropna=False):
        same_window = curve["window"].isna() if pd.isna(window) else curve["window"] == window
        samples = curve[(curve["rank_id"] == rank_id) & same_window.fillna(False)]
        if len(samples):
            frames.append(_floors(samples, one.sort_values("start_ns")).assign(rank_id=rank_id, window=window))
    columns = ["rank_id", "window", "step", "floor_bytes", "top_bytes"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def floor_growth(floors: pd.DataFrame) -> pd.DataFrame:
    """Growth of the memory floor per step, with its 95 % interval.

    Args:
        floors: as `step_floors` returns.

    Returns:
        One row per rank_id with at least 3 steps: steps, first_step, last_step, first_bytes, last_bytes,
        growth_bytes_per_step with low and high, rising_steps (changes between neighbouring steps above 0).

    Source: Theil-Sen slope and interval (Sen, JASA 63, 1968), which single steps do not bend.
    """
    rows = []
    for rank_id, rank in floors.sort_values(["rank_id", "step"]).groupby("rank_id"):
        if len(rank) < 3:
            continue
        level, step = rank["floor_bytes"].to_numpy(float), rank["step"].to_numpy(float)
        slope, _, low, high = stats.theilslopes(level, step, 0.95)
        rows.append((rank_id, len(rank), int(step[0]), int(step[-1]), level[0], level[-1], slope, low, high,
                     int((np.diff(level) > 0).sum())))  # fmt: skip
    columns = ["rank_id", "steps", "first_step", "last_step", "first_bytes", "last_bytes", "growth_bytes_per_step",
               "low_bytes_per_step", "high_bytes_per_step", "rising_steps"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def pipeline_stages(settings: pd.DataFrame | None, ranks: int) -> int | None:
    """Pipeline stages that the settings name, if they divide the number of ranks; None where they tell none."""
    if settings is None:
        return None
    rows = SETTINGS.check(settings)
    last = rows["name"].str.rsplit(".", n=1).str[-1]
    values = pd.to_numeric(rows.loc[last.isin(STAGE_SETTINGS), "value"], errors="coerce").dropna()
    stages = int(values.max()) if len(values) else 0
    return stages if stages > 0 and ranks % stages == 0 else None


def stage_peaks(peaks: pd.DataFrame, stages: int, world_size: int) -> pd.DataFrame:
    """Peaks per pipeline stage; MindSpore gives stage s the ranks from s x world_size / stages on.

    Args:
        peaks: as `memory_peaks` returns.
        stages: pipeline stages.
        world_size: ranks of the job.

    Returns:
        One row per stage with a rank: ranks, peak_allocated_bytes, peak_reserved_bytes (medians over its ranks).
    """
    staged = peaks.assign(stage=peaks["rank_id"] // (world_size // stages))
    groups = staged.groupby("stage")
    medians = groups[["peak_allocated_bytes", "peak_reserved_bytes"]].median()
    return medians.assign(ranks=groups.size()).reset_index()


def _floors(samples: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Floor and top of each step of one rank; the last step ends with the samples."""
    times = samples["time_ns"].to_numpy(np.int64)
    level = samples["allocated_bytes"].to_numpy(float)
    start = steps["start_ns"].to_numpy(np.int64)
    first = np.maximum(np.searchsorted(times, start, side="right") - 1, 0)
    last = np.append(np.searchsorted(times, start[1:], side="left"), len(times))
    seen = last > first
    parts = [level[a:b] for a, b in zip(first[seen], last[seen], strict=True)]
    return pd.DataFrame(
        {
            "step": steps["step"].to_numpy()[seen],
            "floor_bytes": [float(part.min()) for part in parts],
            "top_bytes": [float(part.max()) for part in parts],
        }
    )
