"""A replay -> how much longer steps last because operations of one kind last unequally long, and whose fault that is.

Definitions: Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis (OSDI 2025), sections 3
and 4: slowdown S, contribution of the slowest workers M_W and of the last pipeline stage M_S.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyses.replay import Replay
from workbench.analyses.statistics import FloatArray

WORST_WORKERS_SHARE = 0.03  # of the workers are replaced for M_W, at least one: the share of the source


def equal_work_us(replay: Replay) -> FloatArray:
    """Work of every operation if all of its type lasted equally long, over all ranks and steps.

    Computing takes the mean, so that no work disappears; communication the median, because its long tail is trouble.
    """
    table = replay.operations
    by_type = table.groupby("op_type")["work_us"]
    compute = (table["role"] == "compute").to_numpy()
    return np.where(compute, by_type.transform("mean"), by_type.transform("median")).astype(np.float64)


def slowdown_by(replay: Replay, column: str) -> pd.DataFrame:
    """Slowdown when only one rank, stage, type, ... keeps its recorded work and all others are equal.

    Args:
        replay: see `workbench.analyses.replay`. Launch delays are left out of all lengths.
        column: of `replay.operations`: rank_id, dp_rank, stage or op_type.

    Returns:
        One row per value: the column, slowdown (mean step time over mean step time with equal work). Largest first.
    """
    equal = equal_work_us(replay)
    ideal = _mean_step_us(replay, equal)
    rows = [
        (value, _mean_step_us(replay, _mixed(replay, equal, (replay.operations[column] == value).to_numpy())) / ideal)
        for value in sorted(replay.operations[column].dropna().unique())
    ]
    frame = pd.DataFrame(rows, columns=[column, "slowdown"])
    return frame.sort_values("slowdown", ascending=False, kind="stable", ignore_index=True)


def straggler_summary(replay: Replay) -> pd.DataFrame:
    """Slowdown of the job, and the share of it that the slowest workers and the last stage explain.

    A share is the part of the lost time that comes back when only their operations get equal work. 1 explains all;
    above 1 and below 0 are possible, since equal work makes other operations longer.

    Returns:
        One row: step_us (launch delays left out), equal_step_us, slowdown, worst_ranks (comma-separated, by the smaller
        of the slowdowns of their replica and stage), worst_ranks_step_us, worst_ranks_share (M_W), last_stage_step_us,
        last_stage_share (M_S). Shares are NaN where nothing is lost.
    """
    table, equal = replay.operations, equal_work_us(replay)
    step_us, equal_us = _mean_step_us(replay, table["work_us"].to_numpy()), _mean_step_us(replay, equal)
    ranks = _worst_ranks(replay)
    without_ranks = _mean_step_us(replay, _mixed(replay, equal, ~table["rank_id"].isin(ranks).to_numpy()))
    last = (table["stage"] == table["stage"].max()).fillna(False).to_numpy(dtype=bool)
    without_stage = _mean_step_us(replay, _mixed(replay, equal, ~last))
    lost = step_us - equal_us if step_us != equal_us else float("nan")
    return pd.DataFrame(
        {
            "step_us": [step_us],
            "equal_step_us": equal_us,
            "slowdown": step_us / equal_us,
            "worst_ranks": ",".join(map(str, ranks)),
            "worst_ranks_step_us": without_ranks,
            "worst_ranks_share": (step_us - without_ranks) / lost,
            "last_stage_step_us": without_stage,
            "last_stage_share": (step_us - without_stage) / lost,
        }
    )


def _worst_ranks(replay: Replay) -> list[int]:
    places = replay.operations[["rank_id", "dp_rank", "stage"]].drop_duplicates("rank_id")
    replica = slowdown_by(replay, "dp_rank").set_index("dp_rank")["slowdown"]
    stage = slowdown_by(replay, "stage").set_index("stage")["slowdown"]
    score = np.minimum(places["dp_rank"].map(replica), places["stage"].map(stage))
    order = places.assign(score=score).sort_values(["score", "rank_id"], ascending=[False, True])
    return [int(r) for r in order["rank_id"].head(math.ceil(len(order) * WORST_WORKERS_SHARE))]


def _mixed(replay: Replay, equal: FloatArray, recorded: NDArray[np.bool_]) -> FloatArray:
    return np.where(recorded, replay.operations["work_us"].to_numpy(), equal)


def _mean_step_us(replay: Replay, work_us: FloatArray) -> float:
    return float(replay.step_us(delay_us=np.zeros(len(work_us)), work_us=work_us).mean())
