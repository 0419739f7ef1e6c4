"""Tables of a profile and a list of causes -> step time if each cause, or all of them, were gone.

A cause is gone when the operations that it touches are as good as their peers: the same operation on other ranks, or
in other steps. Effects are replayed, not added up: what a fix saves depends on what else holds up the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.changes import CHANGES
from workbench.analyses.profile_operations import profile_operations
from workbench.analyses.statistics import FloatArray
from workbench.analyses.step_model import Durations, StepModel
from workbench.errors import UnknownContentError, UnknownParameterError
from workbench.tables import KERNELS

WHAT = tuple(CHANGES)
CONFIDENCE = 0.95
MASKED_SHARE = 0.5  # alone it saves less than this share of what it saves once the others are gone
NOTHING_SHARE = 0.002  # of the step: less is within the replay's own error, and no gain


def step_model(tables: Mapping[str, pd.DataFrame]) -> StepModel:
    """Make the model that `what_if` replays. Make it once and ask often.

    Args:
        tables: kernels, and where the run has them collectives, step_time and links, as `run.table` gives them.

    Raises:
        UnknownContentError: there are no kernels, or none has a step and a start.
    """
    if "kernels" not in tables:
        raise UnknownContentError("There are no kernels to replay.", fix=KERNELS.fix)
    operations = profile_operations(tables["kernels"], tables.get("collectives"), tables.get("step_time"))
    return StepModel(profile=operations, links=tables.get("links"))


def what_if(model: StepModel, scenarios: pd.DataFrame) -> pd.DataFrame:
    """Step time if each of the causes were gone alone, and all together.

    Args:
        model: from `step_model`.
        scenarios: one row per cause. `what` is one of `WHAT`; the columns that it uses (others may be missing):

            - rank (rank_id): its kernels and launch gaps as on its peers;
            - stage (ranks: a list): those of a pipeline stage as on the other stages;
            - device (rank_id, or ranks: a list): faster by the factor that their operators share; what a single
              operator is slower beyond it stays;
            - op_type (op_type, rank_id): kernels of one type on one rank as on its peers;
            - link (src_rank, dst_rank): as fast as the slowest of the other links;
            - steps (steps: a list): as the other steps;
            - data_wait (rank_id: only as long as on other ranks; missing: none on any rank; steps: a list, whose begin
              something else holds up: only as long as in the others);
            - overlap: gradients are reduced as soon as they are there;
            - fusion: one gradient collective per layer;
            - small_ops (op_type or missing): no kernels shorter than their launch;
            - micro_batches (micro_batches): the batch of a pipeline step cut into so many, 1F1B.

    Returns:
        One row per scenario, in order, with the columns of `scenarios`, and a last one with `what` "all":

            - step_us: mean over steps; saved_us: recorded step time minus it;
            - low_us, high_us: 95 % interval of saved_us; NaN where one step alone tells;
            - saved_if_others_fixed_us: what it saves once all other scenarios are applied;
            - is_masked: alone it saves little because the others hide it;
            - speed_up: throughput after over before.

    Raises:
        UnknownParameterError: an unknown `what`.
    """
    unknown = sorted(set(scenarios["what"]) - set(WHAT))
    if unknown:
        raise UnknownParameterError(f"There is no scenario {unknown}.", fix=f"use one of {list(WHAT)}")
    changes = [_change(model, row) for _, row in scenarios.iterrows()]
    before = _steps(model, [])
    every = _steps(model, changes)
    rows = []
    for i in range(len(changes)):
        others = _steps(model, changes[:i] + changes[i + 1 :]) if len(changes) > 1 else before
        alone = _steps(model, [changes[i]])
        is_rare = scenarios["what"].iloc[i] == "steps"
        rows.append(_row(before, alone, float((others - every).mean())) | _interval(before, alone, is_rare))
    rows.append(_row(before, every, float("nan")) | _interval(before, every, False))
    labels = pd.concat([scenarios, pd.DataFrame({"what": ["all"]})], ignore_index=True)
    return pd.concat([labels, pd.DataFrame(rows)], axis=1)


def _change(model: StepModel, row: pd.Series) -> Callable[[Durations], Durations]:
    apply = CHANGES[row["what"]]
    arguments = {k: v for k, v in row.drop("what").items() if not (np.isscalar(v) and pd.isna(v)) and v is not None}
    return lambda durations: apply(model, durations, arguments)


def _steps(model: StepModel, changes: list[Callable[[Durations], Durations]]) -> FloatArray:
    durations = Durations.recorded(model)
    for change in changes:
        durations = change(durations)
    replay = model.overlapped if durations.overlapped else model.recorded
    length = replay.step_us(delay_us=durations.delay_us, work_us=durations.work_us) + durations.shift_us
    return length.to_numpy(dtype=np.float64)


def _row(before: FloatArray, after: FloatArray, with_others_us: float) -> dict[str, float | bool]:
    mean = float((before - after).mean())
    counts = with_others_us > NOTHING_SHARE * float(before.mean())
    return {
        "step_us": float(after.mean()),
        "saved_us": mean,
        "saved_if_others_fixed_us": with_others_us,
        "is_masked": bool(counts and mean < MASKED_SHARE * with_others_us),
        "speed_up": float(before.mean() / after.mean()) if after.mean() > 0 else float("nan"),
    }


def _interval(before: FloatArray, after: FloatArray, is_rare: bool) -> dict[str, float]:
    """Interval of the mean saving. What a rare step would have taken is as uncertain as the other steps differ."""
    saved = before - after
    count, margin = len(saved), float("nan")
    hit = int((saved > 0).sum()) if is_rare else count
    if count > 1 and hit:
        spread = after.std(ddof=1) if is_rare else saved.std(ddof=1)
        margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * spread * np.sqrt(hit) / count)
    return {"low_us": float(saved.mean()) - margin, "high_us": float(saved.mean()) + margin}
