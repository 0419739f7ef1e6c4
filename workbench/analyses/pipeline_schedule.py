"""Passes per stage -> length of a 1F1B pipeline step, also with other micro-batch counts."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyses.gradients import BACKWARD, LAYER, gradient_collectives
from workbench.analyses.statistics import FloatArray
from workbench.errors import UnknownContentError


def schedule_1f1b(stages: int, micro_batches: int, stage: int) -> list[tuple[str, int]]:
    """Order in which a stage runs its passes: warm-up forwards, then one forward and one backward in turn.

    Source: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training (ICML 2021).
    """
    warm_up = min(micro_batches, stages - 1 - stage)
    order = [("F", i) for i in range(warm_up)]
    for i in range(micro_batches):
        if warm_up + i < micro_batches:
            order.append(("F", warm_up + i))
        order.append(("B", i))
    return order


def pipeline_step_us(passes: pd.DataFrame, micro_batches: int) -> float:
    """Time from the first forward pass to the end of the last backward pass and gradient reduction of a 1F1B step.

    Args:
        passes: one row per stage: forward_us and backward_us (all micro-batches of a step together), transfer_us (to
            move the activations of all micro-batches to the next stage; the receiver does nothing else meanwhile),
            reduce_us (all gradient collectives of a step, one after the other) and buckets (how many; each starts when
            its equal part of the last backward pass has ended).
        micro_batches: of a step.
    """
    forward, backward, transfer = (
        passes[f"{c}_us"].to_numpy() / micro_batches for c in ("forward", "backward", "transfer")
    )
    stages = len(passes)
    queues = [schedule_1f1b(stages, micro_batches, stage) for stage in range(stages)]
    done: dict[tuple[int, str, int], float] = {}
    clock = np.zeros(stages)
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue:
                way, batch = queue[0]
                source = stage + (-1 if way == "F" else 1)
                if 0 <= source < stages:
                    if (source, way, batch) not in done:
                        break
                    clock[stage] = max(clock[stage], done[source, way, batch]) + transfer[stage]
                clock[stage] += forward[stage] if way == "F" else backward[stage]
                done[stage, way, batch] = clock[stage]
                queue.pop(0)
    return float(
        max(_reduced(*stage) for stage in zip(clock, backward, passes["reduce_us"], passes["buckets"], strict=True))
    )


def _reduced(end_us: float, pass_us: float, reduce_us: float, buckets: int) -> float:
    """When the gradients of a stage are reduced: bucket i waits for its part of the last pass and the bucket before."""
    at = end_us
    for i in range(buckets):
        ready = end_us - pass_us * (buckets - 1 - i) / buckets
        at = (ready if i == 0 else max(at, ready)) + reduce_us / buckets
    return at


def passes_by_stage(operations: pd.DataFrame, work_us: FloatArray) -> pd.DataFrame | None:
    """Passes of the stages of a profile; None where it shows no pipeline or no backward scopes.

    Args:
        operations: as `workbench.analyses.profile_operations.profile_operations` returns.
        work_us: work of each of them.

    Returns:
        One row per stage, in the order of their lowest ranks: forward_us, backward_us, transfer_us, reduce_us, buckets
        (see `pipeline_step_us`; means of steps, passes of the slowest rank, the median transfer), micro_batches.

    Raises:
        UnknownContentError: stages hold several chunks of layers (interleaved schedule): 1F1B does not describe it.
    """
    receives = operations["role"] == "receive"
    backward = operations["name"].str.contains(BACKWARD, regex=True, na=False).to_numpy(dtype=bool)
    compute = (operations["role"] == "compute").to_numpy()
    if not receives.any() or not (backward & compute).any():
        return None
    stage, work = _stages(operations), pd.Series(work_us, operations.index)
    _refuse_interleaved(operations[compute], stage)
    last = operations["ordinal"].where(backward & compute).groupby(stage).transform("max")
    forward = compute & ~backward & (operations["ordinal"] < last).to_numpy(dtype=bool)
    steps, ranks = operations["step"].nunique(), operations["rank_id"].groupby(stage).nunique()

    def slowest(mask: NDArray[np.bool_]) -> pd.Series:
        per_rank = work.where(mask, 0.0).groupby([stage, operations["rank_id"]]).sum() / steps
        return per_rank.groupby(level=0).max()

    count = receives.groupby(stage).sum() / steps / ranks
    micro_batches = round(float(count[count > 0].min()))
    gradient = gradient_collectives(operations)
    return pd.DataFrame(
        {
            "forward_us": slowest(forward),
            "backward_us": slowest(backward & compute),
            "transfer_us": float(np.median(work[receives])) * micro_batches,
            "reduce_us": work.where(gradient, 0.0).groupby(stage).sum() / steps / ranks,
            "buckets": (gradient.groupby(stage).sum() / steps / ranks).round().astype(int),
            "micro_batches": micro_batches,
        }
    ).reset_index(drop=True)


def _refuse_interleaved(compute: pd.DataFrame, stage: pd.Series) -> None:
    """A stage with layers before and after those of another one holds several chunks."""
    names = pd.Series(compute["name"].dropna().unique(), dtype="string")
    found = names.str.extract(LAYER)
    layer = pd.to_numeric(found[0].fillna(found[1])).set_axis(names)
    held = pd.DataFrame({"stage": stage[compute.index], "layer": compute["name"].map(layer)}).dropna().drop_duplicates()
    held = held.sort_values("layer")
    chunks = held.loc[held["stage"] != held["stage"].shift(), "stage"].value_counts()
    if held["layer"].is_unique and (chunks > 1).any():
        raise UnknownContentError(
            f"Pipeline stages hold up to {chunks.max()} chunks of layers (interleaved): only 1F1B with one chunk per "
            "stage is modelled.",
            fix="ask for other scenarios: all but micro_batches are replayed as recorded, whatever the schedule",
        )


def _stages(operations: pd.DataFrame) -> pd.Series:
    """Lowest rank of each operation's stage: ranks that reduce gradients together, or a rank alone."""
    own = operations["rank_id"]
    group = operations["group_id"].where(gradient_collectives(operations)).str.split(" ").str[0]
    lowest = own.groupby(group).transform("min").groupby(own).transform("first")
    return lowest.fillna(own).astype("int64")
