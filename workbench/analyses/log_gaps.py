"""Pauses between the lines of a log -> what explains them; and what looks odd in a healthy log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench.analyses.checkpoint_saving import timed_by_gaps

EXPLAINED_SHARE = 0.5  # of a pause, by an event at its step
KINDS = ("eval", "checkpoint", "compile", "gc")
BETWEEN = "between step lines"
LONG_FIRST_STEP = 10.0  # times the typical one
WARMUP_POINTS = 3


def log_gaps(events: pd.DataFrame | None) -> pd.DataFrame:
    """Pauses of each rank between two step lines, and what happened in them.

    Args:
        events: table `events`: kind `gap` and, at the same step and rank, evaluations, savings, compilations, pauses
            of the garbage collector.

    Returns:
        One row per pause: rank_id, step, gap_us, explained_us, kind (of `KINDS`, or unexplained).
    """
    columns = ["rank_id", "step", "gap_us", "explained_us", "kind"]
    if events is None or not (events["kind"] == "gap").any():
        return pd.DataFrame(columns=columns)
    gaps = events[(events["kind"] == "gap") & (events["name"] == BETWEEN)]
    timed = timed_by_gaps(events)
    known = timed[timed["kind"].isin(KINDS) & timed["duration_us"].notna() & timed["step"].notna()]
    spent = known.groupby(["rank_id", "step", "kind"])["duration_us"].sum().to_dict()
    rows = []
    for gap in gaps.itertuples():
        gap_us = float(str(gap.duration_us))
        parts = {kind: spent.get((gap.rank_id, gap.step, kind), 0.0) for kind in KINDS}
        kind = max(parts, key=lambda k: parts[k])
        explained = min(gap_us, parts[kind])
        rows.append((gap.rank_id, gap.step, gap_us, explained,
                     kind if explained >= EXPLAINED_SHARE * gap_us else "unexplained"))  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def covered_us(training_steps: pd.DataFrame) -> float:
    """Longest time between the first and the last line of a rank in microseconds; NaN where no times are known."""
    timed = training_steps.dropna(subset=["time_ns"])
    if timed.empty:
        return float("nan")
    spans = timed.groupby("rank_id")["time_ns"].agg(lambda t: float(t.max() - t.min()) / 1e3)
    return float(spans.max())


@dataclass(frozen=True, kw_only=True)
class Oddities:
    """What looks odd in a log and is not.

    Attributes:
        silent_ranks: ranks that print a loss of 0 at every step.
        loss_rank: the first rank that prints a loss, None if none does; first_loss and last_loss of it.
        first_step: number of the first printed step; first_step_us: its time; typical_us: of the others.
        first_rate: learning rate at the first step; rate_rises: whether the next rates rise in one line from it.
        first_norm, last_norm: gradient norm, median of the last ten steps.
    """

    silent_ranks: tuple[int, ...]
    loss_rank: int | None
    first_loss: float
    last_loss: float
    first_step: int
    first_step_us: float
    typical_us: float
    first_rate: float
    rate_rises: bool
    first_norm: float
    last_norm: float


def oddities(training_steps: pd.DataFrame) -> Oddities:
    """What a healthy log may show that alarms.

    Args:
        training_steps: table `training_steps`, not empty.
    """
    loss = training_steps.dropna(subset=["loss"])
    zero = (loss["loss"] == 0).groupby(loss["rank_id"]).all()
    real = [int(r) for r in zero.index if not zero[r]]
    own = training_steps[training_steps["rank_id"] == (real[0] if real else training_steps["rank_id"].iloc[0])]
    own = own.sort_values("step")
    losses, rates = own["loss"].dropna(), own["learning_rate"].dropna().to_numpy("float64")
    norms, times = own["gradient_norm"].dropna(), own["step_us"].dropna()
    head = rates[: WARMUP_POINTS + 1]
    return Oddities(
        silent_ranks=tuple(int(r) for r in zero.index if zero[r]),
        loss_rank=real[0] if real else None,
        first_loss=_at(losses, 0),
        last_loss=_at(losses, -1),
        first_step=int(own["step"].iloc[0]),
        first_step_us=_at(times, 0),
        typical_us=float(times.iloc[1:].median()) if len(times) > 1 else float("nan"),
        first_rate=float(rates[0]) if len(rates) else float("nan"),
        rate_rises=len(head) > WARMUP_POINTS and bool((np.diff(head) > 0).all()),
        first_norm=_at(norms, 0),
        last_norm=float(norms.tail(10).median()) if len(norms) else float("nan"),
    )


def _at(values: pd.Series, place: int) -> float:
    return float(values.iloc[place]) if len(values) else float("nan")
