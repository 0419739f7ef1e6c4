"""Step times that grow -> in a straight line, in jumps or as a saw-tooth, and what grows with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.statistics import FloatArray
from workbench.analyses.step_records import between_records_us, measured_us, work_scale
from workbench.tables import TRAINING_STEPS

POINTS_LEAST = 20
BLOCKS = 5
SLOPE_POINTS = 400  # Theil-Sen looks at all pairs
MEMORY = {
    "host_memory_bytes": "host memory",
    "device_allocated_bytes": "device memory in use",
    "device_reserved_bytes": "device memory held by the pool",
    "live_tensors": "live tensors",
}


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a series grows over the steps.

    Attributes:
        name: column or metric; rank_id: rank, -1 where the source names none.
        first_step, last_step, points: where it is known.
        first, last: level at the ends of the straight line through it (Theil-Sen, Sen, JASA 63, 1968).
        slope, slope_low, slope_high: per step, with the 95 % interval.
        r2: share of the spread that the line explains; jump_r2: what one jump at the best place explains.
        growing_blocks: of `BLOCKS` - 1 neighbouring fifths, how many rise by at least a quarter of the mean rise.
        beside: typical level of what the series is a part of, without it: of the steps, for their callbacks.
    """

    name: str
    rank_id: int
    first_step: int
    last_step: int
    points: int
    first: float
    last: float
    slope: float
    slope_low: float
    slope_high: float
    r2: float
    jump_r2: float
    growing_blocks: int
    beside: float = 0.0

    @property
    def share(self) -> float:
        """Growth over the first level, with what is beside it."""
        level = max(self.first, 0.0) + self.beside
        return (self.last - self.first) / level if level > 0 else float("nan")

    @property
    def is_steady(self) -> bool:
        """Whether it grows all the time in a straight line: not in one jump, not in some parts only."""
        return self.slope_low > 0 and self.growing_blocks == BLOCKS - 1 and self.r2 > self.jump_r2


def step_time_growth(training_steps: pd.DataFrame, *, part: str = "step_us", warmup_steps: int = 2) -> Growth | None:
    """Growth of the step time on the rank where it grows most; None where too few steady steps are known.

    Longer sequences are no growth: times are those of a typical batch. Where no step time is stated, it is the time
    between two records of a rank, over the steps between them.

    Args:
        training_steps: table `training_steps`.
        part: step_us, or callbacks_us: the time between the steps, beside the median step.
        warmup_steps: first steps of each rank to leave out.
    """
    steps = TRAINING_STEPS.check(training_steps).sort_values(["rank_id", "step"])
    stated = measured_us(steps)
    steps["step_us"] = (stated if stated.notna().any() else between_records_us(steps)) / work_scale(steps)
    compiled = steps["compiled"].fillna(False).astype(bool)
    steady = steps[(steps.groupby("rank_id").cumcount() >= warmup_steps) & ~compiled]
    if not steady[part].notna().any():
        return None
    found = []
    for rank_id, of_rank in steady.groupby("rank_id"):
        growth = _growth(of_rank, part, int(str(rank_id)))
        if growth is not None:
            beside = 0.0 if part == "step_us" else float(of_rank["step_us"].median())
            found.append(replace(growth, beside=beside))
    return max(found, key=lambda g: g.slope, default=None)


def other_growths(training_steps: pd.DataFrame, telemetry: pd.DataFrame | None, rank_id: int) -> dict[str, Growth]:
    """Growth of memory, live tensors and data waits of a rank, where they are recorded per step.

    Rows of telemetry without a rank count for the rank: a lone CSV beside its log.

    Returns:
        By name: keys of `MEMORY`, and data_wait_us.
    """
    own = training_steps[training_steps["rank_id"] == rank_id]
    found = {}
    for name in (*MEMORY, "data_wait_us"):
        series = own[["step", name]].dropna() if name in own else pd.DataFrame(columns=["step", name])
        if len(series) < POINTS_LEAST and telemetry is not None and name in MEMORY:
            rows = telemetry[(telemetry["metric"] == name) & telemetry["step"].notna()]
            rows = rows[(rows["rank_id"] == rank_id).fillna(True)]
            series = rows.rename(columns={"value": name})[["step", name]]
        if (growth := _growth(series, name, rank_id)) is not None:
            found[name] = growth
    return found


def _growth(series: pd.DataFrame, name: str, rank_id: int) -> Growth | None:
    known = series[["step", name]].dropna().sort_values("step")
    if len(known) < POINTS_LEAST:
        return None
    step, value = known["step"].to_numpy("float64"), known[name].to_numpy("float64")
    some = np.linspace(0, len(known) - 1, min(len(known), SLOPE_POINTS)).astype(int)
    slope, level, low, high = stats.theilslopes(value[some], step[some], 0.95)
    blocks = np.array([float(np.median(part)) for part in np.array_split(value, BLOCKS)])
    rises = np.diff(blocks)
    return Growth(
        name=name,
        rank_id=rank_id,
        first_step=int(step[0]),
        last_step=int(step[-1]),
        points=len(known),
        first=float(level + slope * step[0]),
        last=float(level + slope * step[-1]),
        slope=float(slope),
        slope_low=float(low),
        slope_high=float(high),
        r2=_explained(value, level + slope * step),
        jump_r2=_jump(value),
        growing_blocks=int(((rises > 0) & (rises >= rises.mean() / 4)).sum()),
    )


def _explained(value: FloatArray, line: FloatArray) -> float:
    whole = float(((value - value.mean()) ** 2).sum())
    return 1 - float(((value - line) ** 2).sum()) / whole if whole > 0 else 0.0


def _jump(value: FloatArray) -> float:
    """Share of the spread that the best split into two levels explains."""
    count = np.arange(1, len(value))
    left, total = np.cumsum(value)[:-1], float(value.sum())
    between = left**2 / count + (total - left) ** 2 / (len(value) - count) - total**2 / len(value)
    whole = float(((value - value.mean()) ** 2).sum())
    return float(between.max()) / whole if whole > 0 else 0.0
