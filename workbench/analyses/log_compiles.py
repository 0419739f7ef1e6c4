"""Compilations and step times of a log -> what was compiled again, when, for which shapes, and what it cost."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.step_records import steps_per_row

SLOW_TIMES = 3.0  # the typical step
STEPS_LEAST = 8
_IDS = re.compile(r"\d{10,}")  # creation times and object ids in a phase


@dataclass(frozen=True, kw_only=True)
class NewShapes:
    """Steps with a sequence length that had not come before, against the slow steps.

    Attributes:
        lengths: distinct lengths; first_steps: step at which each came first.
        slow_steps: steps that took more than `SLOW_TIMES` the typical step.
        slow_first_share: share of the first occurrences that were slow; slow_later: slow steps that were none.
        typical_us: median step; slow_us: median slow step; lost_us: what slow steps took beyond the typical one, the
            first step apart.
    """

    lengths: int
    first_steps: tuple[int, ...]
    slow_steps: tuple[int, ...]
    slow_first_share: float
    slow_later: int
    typical_us: float
    slow_us: float
    lost_us: float


@dataclass(frozen=True, kw_only=True)
class WarnedSteps:
    """Steps behind a warning that a function is compiled again, against the slow steps of that rank.

    Attributes:
        steps: slow steps right behind a warning.
        slow_others: slow steps without one, the first step apart.
        typical_us: median step; lost_us: what `steps` took beyond it.
    """

    steps: tuple[int, ...]
    slow_others: int
    typical_us: float
    lost_us: float


def compiled_functions(events: pd.DataFrame | None) -> pd.DataFrame:
    """Each function that was compiled, per rank.

    Returns:
        One row per (rank_id, function, phase without its counter), most often compiled first: compiles, made_again
        (whether the object was made again: other creation times at one place, instead of a rising counter), total_us,
        again_us (all but the first), first_us, start_ns and end_ns, steps (tuple, of all but the first), first_step.
    """
    columns = ["rank_id", "function", "phase", "compiles", "made_again", "total_us", "again_us", "first_us",
               "start_ns", "end_ns", "steps", "first_step"]  # fmt: skip
    compiles = pd.DataFrame() if events is None else events[(events["kind"] == "compile") & events["step"].notna()]
    if compiles.empty:
        return pd.DataFrame(columns=columns)
    detail = compiles["detail"].fillna("{}").map(json.loads)
    phase = detail.map(lambda d: str(d.get("phase", "")))
    place = phase.str.replace(_IDS, "#", regex=True)
    named = compiles.assign(function=compiles["name"].fillna(""), exact=phase, phase=place)
    rows = [_function(rank, function, place, part) for (rank, function, place), part in
            named.sort_values(["start_ns", "step"]).groupby(["rank_id", "function", "phase"])]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).sort_values(
        "compiles", ascending=False, kind="stable", ignore_index=True
    )


def new_shapes(training_steps: pd.DataFrame) -> NewShapes | None:
    """Slow steps against new sequence lengths, on the rank with the most such steps; None where they are not known."""
    known = training_steps.dropna(subset=["sequence_length", "step_us"]).sort_values("step")
    if known.empty:
        return None
    rank = known[known["rank_id"] == known["rank_id"].mode().iloc[0]]
    if len(rank) < STEPS_LEAST or rank["sequence_length"].nunique() < 2:
        return None
    is_first = ~rank.duplicated("sequence_length")
    later = rank.loc[~is_first, "step_us"]
    typical_us = float(later.median()) if len(later) >= STEPS_LEAST else float(rank["step_us"].median())
    slow = rank["step_us"] > SLOW_TIMES * typical_us
    lost = (rank["step_us"] - typical_us)[slow & (np.arange(len(rank)) > 0)]
    return NewShapes(
        lengths=int(rank["sequence_length"].nunique()),
        first_steps=tuple(int(s) for s in rank.loc[is_first, "step"]),
        slow_steps=tuple(int(s) for s in rank.loc[slow, "step"]),
        slow_first_share=float(slow[is_first].mean()),
        slow_later=int((slow & ~is_first).sum()),
        typical_us=typical_us,
        slow_us=float(rank.loc[slow, "step_us"].median()) if slow.any() else float("nan"),
        lost_us=float(lost.sum()),
    )


def warned_steps(training_steps: pd.DataFrame, warnings: pd.DataFrame) -> WarnedSteps | None:
    """Whether slow steps are those right behind a warning, on the rank with the most warnings; None where unknown.

    Args:
        training_steps: table `training_steps`.
        warnings: rows of `log_messages`, whose step is the one printed before the line.
    """
    said = warnings.dropna(subset=["rank_id", "step"])
    if said.empty:
        return None
    of_rank = said[said["rank_id"] == said["rank_id"].mode().iloc[0]]
    steps = training_steps[training_steps["rank_id"] == of_rank["rank_id"].iloc[0]].dropna(subset=["step_us"])
    steps = steps.sort_values("step", ignore_index=True)
    if len(steps) < STEPS_LEAST:
        return None
    typical_us = float(steps["step_us"].median())
    slow = (steps["step_us"] > SLOW_TIMES * typical_us) & (steps.index > 0)
    behind = steps["step"].searchsorted(of_rank["step"].astype("int64"), side="right")
    warned = slow & steps.index.isin(behind)
    return WarnedSteps(
        steps=tuple(int(s) for s in steps.loc[warned, "step"]),
        slow_others=int((slow & ~warned).sum()),
        typical_us=typical_us,
        lost_us=float((steps["step_us"] - typical_us)[warned].sum()),
    )


def wall_us(training_steps: pd.DataFrame | None, events: pd.DataFrame | None) -> float:
    """Wall time that a log covers: of its step times, else between its first and last time; NaN where neither tells."""
    if training_steps is not None and training_steps["step_us"].notna().any():
        every = training_steps.dropna(subset=["step_us"])
        return float((every["step_us"] * steps_per_row(every)).groupby(every["rank_id"]).sum().max())
    times: list[float] = []
    if training_steps is not None:
        times += [float(t) for t in training_steps["time_ns"].dropna()]
    if events is not None:
        ends = events["start_ns"].astype("float64") + events["duration_us"].fillna(0.0) * 1e3
        times += [float(t) for t in (*events["start_ns"].dropna(), *ends.dropna())]
    return (max(times) - min(times)) / 1e3 if times else float("nan")


def _function(rank: object, function: object, phase: object, part: pd.DataFrame) -> dict[str, object]:
    ends = part["start_ns"].astype("float64") + part["duration_us"].fillna(0.0) * 1e3
    return {
        "rank_id": int(str(rank)),
        "function": function,
        "phase": phase,
        "compiles": len(part),
        "made_again": bool((part["exact"] != part["exact"].iloc[0]).any()),
        "total_us": float(part["duration_us"].sum()),
        "again_us": float(part["duration_us"].iloc[1:].sum()),
        "first_us": float(part["duration_us"].iloc[0]),
        "start_ns": float(part["start_ns"].astype("float64").min()),
        "end_ns": float(ends.max()),
        "steps": tuple(int(s) for s in part["step"].iloc[1:]),
        "first_step": int(part["step"].iloc[0]),
    }
