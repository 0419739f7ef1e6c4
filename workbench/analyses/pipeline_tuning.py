"""Services of a data pipeline's operators -> predictions for settings, and the cheapest that feeds a step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice, product

import numpy as np
import pandas as pd

from workbench.analyses.data_pipeline import operator_names
from workbench.analyses.pipeline_rates import (
    AS_IT_IS,
    Machine,
    Setting,
    batch_time,
    operator_times,
    prefetch_bytes,
    with_interval,
)
from workbench.analyses.pipeline_simulation import simulate

MOST_CANDIDATES = 600
MATTERS_SHARE = 0.3  # of the slowest operator's time: faster ones keep their settings
NEAR_SHARE = 0.03  # of the target: a cheaper setting may be so much slower
PROCESS_COST = 2.0  # of a worker process against a thread: memory, start, sending rows
PREFETCH_SIZES = (2, 4, 8, 16, 32, 64)
DEFAULT_PREFETCH = 16


def predict(
    services: pd.DataFrame,
    intervals_us: Mapping[str, np.ndarray],
    machine: Machine,
    settings: Iterable[Setting],
    *,
    prefetch_size: int = DEFAULT_PREFETCH,
) -> pd.DataFrame:
    """Throughput of each setting, with its interval.

    Args:
        services: as `workbench.analyses.pipeline_rates.services_table` returns.
        intervals_us: measured times between rows by source.
        machine: cores and the step that takes the batches.
        settings: what to predict.
        prefetch_size: of settings that name none.

    Returns:
        One row per setting: setting (text), batch_us, low_us, high_us (95 % interval), batches_per_s, bound (an
        operator, "cores", "lock", "step" or "queues"), wait_share (of the step's time), cost (workers; a process counts
        twice), queue_bytes (full queues and shuffle buffers).
    """
    return pd.DataFrame([_prediction(services, intervals_us, machine, setting, prefetch_size) for setting in settings])


def candidates(services: pd.DataFrame, machine: Machine) -> list[Setting]:
    """Settings worth trying: workers and processes of the operators that may hold the pipeline back."""
    times = operator_times(services, Setting(workers=dict.fromkeys(services["name"], 1)))
    limit = MATTERS_SHARE * float(times["batch_us"].max())
    heavy = times.loc[times["batch_us"] >= limit, "name"]
    rows = services[services["name"].isin(heavy) & services["can_have_workers"].astype(bool)]
    choices = {str(row["name"]): _choices(row, int(machine.cores)) for row in rows.to_dict("records")}
    made = [
        Setting(
            workers={name: n for name, (n, _) in zip(choices, chosen, strict=True)},
            processes={name: p for name, (_, p) in zip(choices, chosen, strict=True) if p is not None},
        )
        for chosen in islice(product(*choices.values()), MOST_CANDIDATES)
    ]
    return made or [AS_IT_IS]


def recommend(
    services: pd.DataFrame,
    intervals_us: Mapping[str, np.ndarray],
    machine: Machine,
    *,
    prefetch_size: int = DEFAULT_PREFETCH,
) -> list[Setting]:
    """The settings that feed the step, or come closest to it, cheapest first.

    Args:
        services: as `services_table` returns.
        intervals_us: measured times between rows by source.
        machine: cores and the step that takes the batches; step_us 0 asks for the highest throughput.
        prefetch_size: what the pipeline has; it is raised only where longer queues help, and never lowered.

    Returns:
        The cheapest setting first; the others reach the same throughput to within NEAR_SHARE.
    """
    tried = candidates(services, machine)
    seen = predict_bounds(services, machine, tried)
    best = max(float(seen["batch_us"].min()), machine.step_us)
    near = seen[seen["batch_us"] <= best * (1 + NEAR_SHARE)].sort_values(["cost", "batch_us"], kind="stable")
    chosen = [tried[i] for i in near.index[:8]]
    size = _prefetch(services, intervals_us, machine, chosen[0], prefetch_size)
    return [Setting(workers=s.workers, processes=s.processes, prefetch_size=size) for s in chosen]


def setting_of(operator_settings: pd.DataFrame) -> Setting:
    """The setting that a table of operators asks for, e.g. what AutoTune chose.

    Args:
        operator_settings: op_type, num_workers (missing: keep), prefetch_size, sources first; MindSpore's AutoTune sets
            a queue size per operator, of which the largest holds for all here.
    """
    rows = operator_settings.assign(name=operator_names(list(operator_settings["op_type"].astype(str))))
    workers = rows.dropna(subset=["num_workers"])
    sizes = rows["prefetch_size"].dropna()
    return Setting(
        workers={str(n): int(w) for n, w in zip(workers["name"], workers["num_workers"], strict=True)},
        prefetch_size=int(sizes.max()) if len(sizes) else None,
    )


def predict_bounds(services: pd.DataFrame, machine: Machine, settings: Iterable[Setting]) -> pd.DataFrame:
    """As `predict`, without the replay of the queues: batch_us, bound and cost only."""
    rows = []
    for setting in settings:
        times = operator_times(services, setting)
        rows.append(batch_time(times, machine) | {"cost": _cost(times)})
    return pd.DataFrame(rows)


def _prediction(
    services: pd.DataFrame,
    intervals_us: Mapping[str, np.ndarray],
    machine: Machine,
    setting: Setting,
    prefetch_size: int,
) -> dict[str, object]:
    size = setting.prefetch_size or prefetch_size
    times = operator_times(services, setting)
    bound = batch_time(times, machine)
    replayed = simulate(services, times, intervals_us, prefetch_size=size, step_us=machine.step_us)
    batch_us, what = float(bound["batch_us"]), str(bound["bound"])
    if replayed["batch_us"] > batch_us * (1 + NEAR_SHARE):
        batch_us, what = replayed["batch_us"], "queues"
    low_us, high_us = with_interval(batch_us, float(bound["error_share"]))
    memory = prefetch_bytes(services, prefetch_size=size)
    return {
        "setting": str(setting),
        "batch_us": batch_us,
        "low_us": max(low_us, machine.step_us),
        "high_us": high_us,
        "batches_per_s": 1e6 / batch_us,
        "bound": what,
        "wait_share": max(1 - machine.step_us / batch_us, 0.0) if machine.step_us else float("nan"),
        "cost": _cost(times),
        "queue_bytes": float(memory["queue_bytes"].sum() + memory["buffer_bytes"].sum()),
    }


def _cost(times: pd.DataFrame) -> float:
    return float((times["workers"] * np.where(times["processes"], PROCESS_COST, 1.0)).sum())


def _choices(row: Mapping[str, object], most: int) -> list[tuple[int, bool | None]]:
    """Workers and processes to try for one operator; None: it runs no Python."""
    numbers = sorted({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, most})
    allowed = [n for n in numbers if n <= most]
    kinds: list[bool | None] = [False] if row["runs_python"] else [None]
    if row["runs_python"] and pd.notna(row["process_us"]):
        kinds.append(True)
    return [(n, kind) for kind in kinds for n in allowed]


def _prefetch(
    services: pd.DataFrame,
    intervals_us: Mapping[str, np.ndarray],
    machine: Machine,
    setting: Setting,
    now: int,
) -> int:
    """The smallest prefetch size from `now` on that gets all that longer queues can give."""
    times = operator_times(services, setting)
    sizes = [now, *(s for s in PREFETCH_SIZES if s > now)]
    replayed = [
        simulate(services, times, intervals_us, prefetch_size=s, step_us=machine.step_us)["batch_us"] for s in sizes
    ]
    best = min(replayed)
    return next(s for s, us in zip(sizes, replayed, strict=True) if us <= best * (1 + NEAR_SHARE / 3))
