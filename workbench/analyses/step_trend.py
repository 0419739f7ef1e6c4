"""Step times in order -> levels that last, where they change, and whether the time creeps up.

The same analysis takes recorded steps (`job_step_times`) and profiled steps (`job_device_times`).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.device_steps import PARTS
from workbench.analyses.statistics import MAD_TO_SIGMA, FloatArray, mad
from workbench.analyses.step_records import work_scale
from workbench.analyses.step_time import timed_steps
from workbench.tables import TRAINING_STEPS

STEPS_LEAST = 30  # fewer show no course
BLOCKS_MOST = 120  # medians of blocks: single stalls vanish, neighbours depend less on each other
GRAIN_BLOCKS = 5  # the shortest level that is told from a run of odd steps
CHANGE_SHARE = 0.05  # of the level: what data, cache and clock do to healthy runs is less
CHANGE_SIGMAS = 4.0  # of the blocks' scatter around their level
_SERIES = ["step", "wall_us"]
_LEVELS = ["first_step", "last_step", "steps", "level_us", "excess_us", "excess_share"]


def job_step_times(training_steps: pd.DataFrame) -> pd.DataFrame:
    """Steady recorded steps of the job: medians over ranks, callbacks (saving, evaluating) excluded.

    Where the batch size varies, times are those of a typical batch: longer sequences are no slowdown.

    Returns:
        One row per step: wall_us, data_wait_us, run_us. Sorted. Empty in, empty out.
    """
    timed = timed_steps(training_steps)
    work = TRAINING_STEPS.check(training_steps)[["rank_id", "step", "tokens", "sequence_length"]]
    rows = timed.merge(work, on=["rank_id", "step"], how="left")
    rows = rows[rows["excluded"] == ""].rename(
        columns={"step_us": "wall", "data_wait_us": "data_wait", "run_us": "run"}
    )
    scale = work_scale(rows)
    parts = {f"{name}_us": rows[name] / scale for name in ("wall", "data_wait", "run")}
    return rows[["step"]].assign(**parts).groupby("step", as_index=False).median()


def job_device_times(steps: pd.DataFrame) -> pd.DataFrame:
    """Profiled steps of the job: medians over ranks of wall_us and of each part. The first of a window is left out.

    Args:
        steps: as `device_steps` returns.

    Returns:
        One row per step: wall_us and `PARTS`. Sorted. Empty in, empty out.
    """
    later = steps[steps.duplicated(["rank_id", "window"])].dropna(subset=["step"])
    return later.groupby("step", as_index=False)[["wall_us", *PARTS]].median()


def step_levels(series: pd.DataFrame) -> pd.DataFrame:
    """The levels on which the step time stayed: one row if it never changed.

    Neighbouring blocks of steps are merged, the most alike first, until all neighbours differ by 5 % and by four
    robust standard deviations of the blocks. Medians throughout, so that stalls of single steps make no level.

    Args:
        series: step and wall_us, in step order.

    Returns:
        One row per level, in step order: first_step, last_step, steps, level_us (median), excess_us and excess_share
        (above the lowest level that holds a fifth of the steps; 0 there). Empty where there are fewer than 30 steps.
    """
    rows = series[_SERIES].dropna().sort_values("step", ignore_index=True)
    if len(rows) < STEPS_LEAST:
        return pd.DataFrame(columns=_LEVELS)
    times = rows["wall_us"].to_numpy(dtype=np.float64)
    cuts = _cuts(times)
    parts = [times[a:b] for a, b in pairwise(cuts)]
    level = np.array([np.median(p) for p in parts])
    count = np.array([len(p) for p in parts])
    lasting = level[count >= 0.2 * len(times)]
    base = float((lasting if len(lasting) else level).min())
    step = rows["step"].to_numpy()
    excess = np.maximum(level - base, 0.0)
    return pd.DataFrame(
        {"first_step": step[cuts[:-1]], "last_step": step[np.array(cuts[1:]) - 1], "steps": count, "level_us": level,
         "excess_us": excess, "excess_share": excess / base if base > 0 else np.nan}
    )  # fmt: skip


def step_trend(series: pd.DataFrame) -> dict[str, float]:
    """How much the step time creeps over all steps, by the Theil-Sen line through medians of blocks.

    Args:
        series: step and wall_us, in step order.

    Returns:
        change_share of the line's start, sigmas (the change over the scatter around the line), p_value (Kendall's tau);
        first_us, last_us (medians of the first and last tenth: what was measured, also where no line fits), mean_us of
        the blocks. All NaN where there are fewer than 30 steps.
    """
    times = series.sort_values("step")["wall_us"].dropna().to_numpy(dtype=np.float64)
    if len(times) < STEPS_LEAST:
        return dict.fromkeys(("first_us", "last_us", "mean_us", "change_share", "sigmas", "p_value"), float("nan"))
    blocks = _block_medians(times, _block_size(len(times)))
    place = np.arange(len(blocks))
    slope, intercept, _, _ = stats.theilslopes(blocks, place)
    change = float(slope) * (len(blocks) - 1)
    scatter = MAD_TO_SIGMA * mad(blocks - (intercept + slope * place))
    tenth = max(1, len(blocks) // 10)
    return {
        "first_us": float(np.median(blocks[:tenth])),
        "last_us": float(np.median(blocks[-tenth:])),
        "mean_us": float(blocks.mean()),
        "change_share": change / float(intercept) if intercept > 0 else float("nan"),
        "sigmas": change / scatter if scatter > 0 else math.copysign(math.inf, change) if change else 0.0,
        "p_value": float(stats.kendalltau(place, blocks).pvalue) if len(set(blocks)) > 1 else 1.0,
    }


def grown_part(series: pd.DataFrame, first_step: int, last_step: int) -> tuple[str, float]:
    """The part of the step that grew most between `first_step` and `last_step`, against all other steps.

    Returns:
        Its column and by how much its median is above that of the other steps; ("wall_us", ...) without parts.
    """
    inside = series["step"].between(first_step, last_step)
    parts = [c for c in series.columns if c not in _SERIES] or ["wall_us"]
    growth = series.loc[inside, parts].median() - series.loc[~inside, parts].median()
    part = str(growth.fillna(-np.inf).idxmax())
    return part, float(growth[part])


def _block_size(count: int) -> int:
    return max(1, math.ceil(count / BLOCKS_MOST))


def _block_medians(times: FloatArray, size: int) -> FloatArray:
    return np.array([np.median(times[i : i + size]) for i in range(0, len(times) - size + 1, size)])


def _cuts(times: FloatArray) -> list[int]:
    """Places where levels begin, and the end."""
    size = _block_size(len(times))
    blocks = _block_medians(times, size)
    cuts = [*range(0, len(blocks) - GRAIN_BLOCKS + 1, GRAIN_BLOCKS), len(blocks)]
    while len(cuts) > 2:
        level = np.array([np.median(blocks[a:b]) for a, b in pairwise(cuts)])
        lower = np.minimum(level[1:], level[:-1])
        limit = np.maximum(CHANGE_SHARE * lower, CHANGE_SIGMAS * _scatter(blocks, cuts))
        ratio = np.abs(np.diff(level)) / np.where(limit > 0, limit, np.inf)
        if ratio.min() >= 1:
            break
        del cuts[int(ratio.argmin()) + 1]
    sharp = [_sharpened(blocks, *cuts[i - 1 : i + 2]) for i in range(1, len(cuts) - 1)]
    return [0, *(c * size for c in sharp), len(times)]


def _scatter(blocks: FloatArray, cuts: list[int]) -> float:
    """Robust standard deviation of the blocks around the median of their level."""
    around = [blocks[a:b] - np.median(blocks[a:b]) for a, b in pairwise(cuts)]
    return MAD_TO_SIGMA * mad(np.concatenate(around))


def _sharpened(blocks: FloatArray, first: int, cut: int, last: int) -> int:
    """The cut moved to where the two levels leave least: levels were merged in steps of GRAIN_BLOCKS."""
    before, after = np.median(blocks[first:cut]), np.median(blocks[cut:last])
    places = range(max(first + 1, cut - GRAIN_BLOCKS), min(last - 1, cut + GRAIN_BLOCKS) + 1)
    left = [np.abs(blocks[first:k] - before).sum() + np.abs(blocks[k:last] - after).sum() for k in places]
    return places[int(np.argmin(left))]
