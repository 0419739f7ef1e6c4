"""Training steps -> what several layers say together: each block of steps with the signals that left their level.

One metric alone points at many things. Loss and gradient norm together tell an unstable optimizer from an odd batch;
throughput with data wait, callbacks and gradients tells data, saving and communication apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.analyses.training import job_steps, spikes
from workbench.metrics import METRICS

State = Literal["up", "down", "level"]
BLOCKS = 20  # over the training
LEAST_BLOCK_STEPS = 10
LEVEL_SHARE = 0.10  # a block within this share of its level has not left it
LEVEL_SIGMAS = 5.0
NEAR_STEPS = 5  # loss and gradient jumps so close belong together
WAIT_SHARE = 0.5  # a signal explains a longer step if it grew by this part of what the step grew
SIGNALS = ("training_loss", "gradient_norm", "step_time", "data_wait", "callbacks")
READING_COLUMNS = ["first_step", "last_step", "signals", "points_at", "reading"]


@dataclass(frozen=True, kw_only=True)
class CrossReading:
    """A combination of signals (names of the catalogue; signals that it does not name may do anything)."""

    signals: Mapping[str, State]
    points_at: str
    reading: str

    def __post_init__(self) -> None:
        assert set(self.signals) <= set(METRICS)


READINGS: tuple[CrossReading, ...] = (
    CrossReading(
        signals={"training_loss": "up", "gradient_norm": "up"},
        points_at="optimizer, learning rate",
        reading="Loss and gradient norm jump together: the update is unstable; look at rate, clipping and warm-up.",
    ),
    CrossReading(
        signals={"training_loss": "up", "gradient_norm": "level"},
        points_at="data",
        reading="The loss jumps while gradients stay normal: the batches differ; look at their source and labels.",
    ),
    CrossReading(
        signals={"training_loss": "level", "gradient_norm": "up"},
        points_at="optimizer, precision",
        reading="The gradient norm jumps before the loss does: a warning; look at clipping and loss scale.",
    ),
    CrossReading(
        signals={"step_time": "up", "data_wait": "up"},
        points_at="data pipeline",
        reading="Steps take longer because they wait for data; the model is not to blame.",
    ),
    CrossReading(
        signals={"step_time": "level", "callbacks": "up"},
        points_at="checkpoint saving, inline evaluation",
        reading="Steps are as fast as before, time goes into callbacks between them.",
    ),
    CrossReading(
        signals={"step_time": "up", "data_wait": "level", "gradient_norm": "level"},
        points_at="communication, devices",
        reading="Throughput falls with normal gradients and without waiting for data: communication or a slow device.",
    ),
)


def signal_blocks(training_steps: pd.DataFrame) -> pd.DataFrame:
    """The state of every signal in blocks of steps.

    The first block (warm-up) is level. Loss and gradient norm are up in a block that holds a spike of theirs
    (`analyses.training.spikes`); the others are
    up or down where the block's median leaves the median of all blocks by `LEVEL_SHARE` and `LEVEL_SIGMAS` robust
    deviations of the blocks. Waiting and callbacks count as up only if they grew by `WAIT_SHARE` of what the whole
    step (or, for callbacks, a step's time) grew. Steps that compiled are left out.

    Args:
        training_steps: table `training_steps`.

    Returns:
        One row per block and signal that was recorded: first_step, last_step, signal, level, typical, state.
    """
    job = job_steps(training_steps)
    compiled = training_steps.loc[training_steps["compiled"].fillna(False).astype(bool), "step"]
    job = job[~job["step"].isin(set(compiled))].reset_index(drop=True)
    columns = ["first_step", "last_step", "signal", "level", "typical", "state"]
    if len(job) < 2 * LEAST_BLOCK_STEPS:
        return pd.DataFrame(columns=columns)
    number = min(BLOCKS, len(job) // LEAST_BLOCK_STEPS)
    block = np.arange(len(job)) * number // len(job)
    ends = job.groupby(block)["step"].agg(["min", "max"])
    rows = []
    for signal in SIGNALS:
        column = METRICS[signal].column
        if not job[column].notna().any():
            continue
        levels = job.groupby(block)[column].median()
        jumps = set(_jump_blocks(job, column, block)) if signal in ("training_loss", "gradient_norm") else None
        typical = float(levels.median())
        states = _states(levels, jumps)
        states.iloc[0] = "level"  # the warm-up, in which everything moves
        rows += [(ends["min"][b], ends["max"][b], signal, float(levels[b]), typical, states[b]) for b in levels.index]
    return pd.DataFrame(rows, columns=columns)


def cross_layer_readings(training_steps: pd.DataFrame) -> pd.DataFrame:
    """What the layers say together: each run of blocks in which a combination of `READINGS` holds.

    Returns:
        One row per run of blocks: first_step, last_step, signals (those that left their level), points_at, reading;
        in order of steps. Empty for a training whose signals stay level, and where too little was recorded.
    """
    blocks = signal_blocks(training_steps)
    if blocks.empty:
        return pd.DataFrame(columns=READING_COLUMNS)
    states = blocks.pivot_table(index=["first_step", "last_step"], columns="signal", values="state", aggfunc="first")
    levels = blocks.pivot_table(index=["first_step", "last_step"], columns="signal", values="level")
    rows = []
    for (first, last), row in _explained(states, levels).iterrows():
        for reading in READINGS:
            if all(row.get(name) == state for name, state in reading.signals.items()):
                moved = ", ".join(f"{METRICS[n].title} {s}" for n, s in row.items() if s in ("up", "down"))
                rows.append((int(first), int(last), moved, reading.points_at, reading.reading))
                break
    return _joined(pd.DataFrame(rows, columns=READING_COLUMNS))


def _jump_blocks(job: pd.DataFrame, column: str, block: np.ndarray) -> list[int]:
    found = spikes(job, column)
    place = pd.Series(block, index=job["step"])
    hit: list[int] = []
    for episode in found.itertuples():
        near = place.loc[(place.index >= episode.first_step - NEAR_STEPS) & (place.index <= episode.last_step)]
        hit += list(near.unique())
    return hit


def _states(levels: pd.Series, jumps: set[int] | None) -> pd.Series:
    if jumps is not None:
        return pd.Series(["up" if b in jumps else "level" for b in levels.index], index=levels.index)
    typical, spread = levels.median(), mad(levels) * MAD_TO_SIGMA
    off = levels - typical
    left = (off.abs() > LEVEL_SHARE * abs(typical)) & (off.abs() > LEVEL_SIGMAS * spread)
    return off.gt(0).map({True: "up", False: "down"}).where(left, "level")


def _explained(states: pd.DataFrame, levels: pd.DataFrame) -> pd.DataFrame:
    """Waits and callbacks that moved without mattering to the step are level."""
    states = states.copy()
    if "step_time" not in levels:
        return states
    growth = {c: levels[c] - levels[c].median() for c in ("step_time", "data_wait", "callbacks") if c in levels}
    if "data_wait" in growth:
        matters = growth["data_wait"] >= WAIT_SHARE * growth["step_time"].clip(lower=0)
        states["data_wait"] = states["data_wait"].where(matters | (states["data_wait"] != "up"), "level")
    if "callbacks" in growth:
        matters = growth["callbacks"] >= LEVEL_SHARE * levels["step_time"].median()
        states["callbacks"] = states["callbacks"].where(matters | (states["callbacks"] != "up"), "level")
    return states


def _joined(rows: pd.DataFrame) -> pd.DataFrame:
    """Neighbouring blocks with the same reading as one row."""
    kept: list[dict] = []
    for row in rows.to_dict("records"):
        last = kept[-1] if kept else None
        if last is not None and last["reading"] == row["reading"] and row["first_step"] <= last["last_step"] + 1:
            last["last_step"] = row["last_step"]
        else:
            kept.append(row)
    return pd.DataFrame(kept, columns=READING_COLUMNS)
