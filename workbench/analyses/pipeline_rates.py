"""Services of the operators of a data pipeline -> its throughput under any setting. Pure.

Model: a batch cannot come sooner than its slowest operator gives it (service time over workers), than the cores give
the processor time of all operators, and than Python's lock gives the time of all operators that hold it. Where the
services of a source vary, or an epoch ends, the finite queues matter: `workbench.analyses.pipeline_simulation` replays
them.

Definitions: asymptotic bounds of operational analysis (Denning and Buzen, The Operational Analysis of Queueing Network
Models, Computing Surveys 1978), with the lock as one more resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import UnknownParameterError

SERVICE_COLUMNS: dict[str, str] = {
    "name": "operator",
    "op_type": "its type",
    "inputs": "operators in front of it",
    "workers": "parallel workers that it has",
    "processes": "whether they are processes",
    "can_have_workers": "whether more workers can help",
    "runs_python": "whether it calls Python",
    "input_rows": "rows that it takes for one that it gives",
    "rows_per_batch": "rows that it gives for one batch at the end",
    "service_us": "time for one row with one worker, nothing else running",
    "cpu_us": "processor time for one row",
    "lock_us": "time for one row for which Python's lock is held; 0 where several workers do not hinder each other",
    "many_workers": "workers of the second run",
    "many_us": "time between rows then",
    "process_workers": "worker processes of the third run; missing where it was not tried",
    "process_us": "time for one row of one worker process",
    "process_cpu_us": "processor time for one row then",
    "prefix_row_us": "time between rows of the pipeline cut behind this operator, as it is set",
    "row_bytes": "memory of one row that it gives",
    "epoch_rows": "rows of an epoch; missing where none ended",
    "buffer_rows": "rows that a shuffle holds",
    "error_share": "standard error of service_us, relative",
    "stolen_share": "share of the time that other programs took from it",
    "is_cheap": "too fast to be told from feeding it: service_us is its processor time",
}
MODEL_ERROR_SHARE = 0.08  # what is left when the measurement is exact: queues, thread switches (docs/data_pipeline.md)
SUMMED = ("service_us", "cpu_us", "lock_us", "many_us")
Z95 = 1.96


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What can be changed about a pipeline without changing what it yields.

    `workers` and `processes` hold operators by name; those that are not named keep what they have. `fuse_maps` joins
    each map with the map in front of it. `prefetch_size` None keeps MindSpore's.
    """

    workers: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, bool] = field(default_factory=dict)
    prefetch_size: int | None = None
    fuse_maps: bool = False

    def __str__(self) -> str:
        parts = [f"{name}: num_parallel_workers={n}" for name, n in self.workers.items()]
        parts += [f"{name}: python_multiprocessing={on}" for name, on in self.processes.items()]
        parts += ["neighbouring maps joined"] if self.fuse_maps else []
        parts += [f"prefetch_size={self.prefetch_size}"] if self.prefetch_size else []
        return "; ".join(parts) or "as it is"


AS_IT_IS = Setting()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the pipeline runs on: cores, and processor time of the training itself in each step."""

    cores: float
    step_us: float = 0.0
    step_cpu_us: float = 0.0


def services_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Measured services with `rows_per_batch`, the columns of SERVICE_COLUMNS; the last row is the pipeline's end."""
    table = pd.DataFrame(list(rows), columns=list(SERVICE_COLUMNS))
    per_batch = {table["name"].iloc[-1]: 1.0}
    for row in table.iloc[::-1].itertuples(index=False):
        for name in row.inputs:
            per_batch[name] = per_batch[row.name] * float(row.input_rows)
    return table.assign(rows_per_batch=table["name"].map(per_batch))


def operator_times(services: pd.DataFrame, setting: Setting = AS_IT_IS) -> pd.DataFrame:
    """Time of each operator for one batch at the pipeline's end, under a setting.

    Args:
        services: as `services_table` returns.
        setting: what is changed.

    Returns:
        One row per operator: name, workers, processes, batch_us (with its workers side by side), batch_cpu_us,
        batch_lock_us (0 in processes), error_share.

    Raises:
        UnknownParameterError: a name is no operator of the table.
    """
    if unknown := sorted((setting.workers.keys() | setting.processes.keys()) - set(services["name"])):
        raise UnknownParameterError(
            f"The pipeline has no operator {', '.join(unknown)}.", fix=f"use one of {list(services['name'])}"
        )
    table = fused_maps(services) if setting.fuse_maps else services
    return pd.DataFrame([_times(row, setting.workers, setting.processes) for row in table.to_dict("records")])


def batch_time(times: pd.DataFrame, machine: Machine) -> dict[str, Any]:
    """The least time between batches under a setting, and what sets it.

    Args:
        times: as `operator_times` returns.
        machine: cores and the step that takes the batches.

    Returns:
        batch_us, bound ("Map", ..., "cores", "lock", "step"), error_share of batch_us.
    """
    slowest = times.loc[times["batch_us"].idxmax()]
    bounds = {
        str(slowest["name"]): float(slowest["batch_us"]),
        "cores": (float(times["batch_cpu_us"].sum()) + machine.step_cpu_us) / machine.cores,
        "lock": float(times["batch_lock_us"].sum()),
        "step": machine.step_us,
    }
    bound = max(bounds, key=lambda name: bounds[name])
    error = float(slowest["error_share"]) if bound == slowest["name"] else float(times["error_share"].max())
    return {"batch_us": bounds[bound], "bound": bound, "error_share": 0.0 if bound == "step" else error}


def with_interval(batch_us: float, error_share: float) -> tuple[float, float]:
    """95 % interval of a predicted time: the measurement's error and the model's."""
    wide = Z95 * float(np.hypot(error_share, MODEL_ERROR_SHARE))
    return batch_us / (1 + wide), batch_us * (1 + wide)


def fused_maps(services: pd.DataFrame) -> pd.DataFrame:
    """The services with each map joined to the map in front of it, under the name of the later one."""
    rows: list[dict[str, Any]] = []
    for row in services.to_dict("records"):
        if rows and row["op_type"] == "Map" and rows[-1]["op_type"] == "Map" and row["inputs"] == (rows[-1]["name"],):
            first = rows.pop()
            row |= {c: float(first[c] or 0) + float(row[c] or 0) for c in SUMMED}
            row |= {"inputs": first["inputs"], "workers": max(first["workers"], row["workers"])}
            row |= {"runs_python": first["runs_python"] or row["runs_python"], "process_us": np.nan}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(services.columns))


def prefetch_bytes(services: pd.DataFrame, *, prefetch_size: int) -> pd.DataFrame:
    """Memory that full queues hold, per operator.

    Args:
        services: as `services_table` returns.
        prefetch_size: slots of each queue.

    Returns:
        One row per operator with a queue: name, row_bytes, queue_bytes, buffer_bytes (a shuffle's buffer).
    """
    queued = services[services["service_us"] > 0] if len(services) > 1 else services
    return queued[["name", "row_bytes"]].assign(
        queue_bytes=queued["row_bytes"] * prefetch_size,
        buffer_bytes=queued["row_bytes"] * queued["buffer_rows"].fillna(0).astype("float64"),
    )


def _times(row: Mapping[str, Any], workers: Mapping[str, int], processes: Mapping[str, bool]) -> dict[str, Any]:
    name, per_batch = row["name"], float(row["rows_per_batch"])
    n = int(workers.get(name, row["workers"])) if row["can_have_workers"] else 1
    in_processes = bool(processes.get(name, row["processes"])) and bool(row["runs_python"])
    if in_processes and not pd.notna(row["process_us"]):
        in_processes = False  # too light to be tried there, or it cannot run there
    if in_processes:
        one_us, cpu_us, lock_us = float(row["process_us"]), float(row["process_cpu_us"]), 0.0
        row_us = one_us / n
    else:
        cpu_us, lock_us = float(row["cpu_us"]), float(row["lock_us"])
        row_us = _with_threads(row, n)
    return {
        "name": name,
        "workers": n,
        "processes": in_processes,
        "batch_us": row_us * per_batch,
        "batch_cpu_us": cpu_us * per_batch,
        "batch_lock_us": lock_us * per_batch,
        "error_share": float(row["error_share"]),
    }


def _with_threads(row: Mapping[str, Any], workers: int) -> float:
    """Time between rows with several threads: as measured with many, else by the share that they gained then."""
    one_us, many, many_us = float(row["service_us"]), int(row["many_workers"] or 1), float(row["many_us"])
    if workers <= 1 or one_us <= 0:
        return one_us
    if many <= 1:
        return one_us / workers
    serial = max((many_us / one_us - 1 / many) / (1 - 1 / many), 0.0)  # Amdahl's serial share, from the second run
    return one_us * (serial + (1 - serial) / workers)  # above 1 where threads only hinder each other
