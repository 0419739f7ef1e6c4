"""What each operator of a pipeline can do by itself: measured from the pipeline cut after it, and from it alone.

Per operator: the pipeline is cut in front of it and some rows are kept; the operator is then run alone over these rows,
with one worker and with as many as the machine has cores, and, where it calls Python and computes, in processes.
Nothing is assumed about cores or Python's lock: what several workers gain is what the second run shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindspore.dataset as ds
import numpy as np
import pandas as pd

from workbench.analyses.pipeline_rates import SERVICE_COLUMNS, Setting, services_table
from workbench.errors import PipelineError
from workbench.probes.pipeline_run import PipelineRun, row_bytes, run_pipeline
from workbench.probes.pipeline_tree import PASSING_ON, Operator, alone, from_memory, operators, with_setting

SECONDS_EACH = 0.5
CHEAP_RATIO = 1.3  # of the time that feeding the rows takes: an operator below it is told by its processor time
COMPUTES_SHARE = 0.3  # of its time: an operator above it is tried in processes
LIGHT_US = 300.0  # sending a row to another process costs about as much
LOCK_RATIO = 1.25  # two workers that take so much longer than half the time share something
DISTURBED_SHARE = 0.3  # of a run that other programs took: it is made again
ODD_RATIO = 1.2  # several workers that take so much longer than one: something else held them up
AGAIN = 2
Progress = Callable[[str], None]


@dataclass(frozen=True)
class PipelineServices:
    """Services by operator (SERVICE_COLUMNS), intervals between rows by source, what could not be measured."""

    table: pd.DataFrame
    intervals_us: dict[str, np.ndarray]
    notes: tuple[str, ...]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_services(
    dataset: ds.Dataset, *, seconds_each: float = SECONDS_EACH, progress: Progress = lambda _name: None
) -> PipelineServices:
    """Measure every operator of a pipeline.

    Args:
        dataset: a pipeline; it is not changed.
        seconds_each: for each of the runs, of which there are up to four per operator.
        progress: called with the name of the operator that comes next.

    Returns:
        One row per operator, sources first.

    Raises:
        PipelineError: the pipeline raises, yields nothing, or does not answer.
    """
    measured = _Measuring(dataset, seconds_each)
    for operator in operators(dataset):
        progress(operator.name)
        measured.add(operator)
    return PipelineServices(services_table(measured.rows), measured.intervals_us, tuple(measured.notes))


class _Measuring:
    """Goes through the operators from the sources on and keeps the rows that the next one needs."""

    def __init__(self, dataset: ds.Dataset, seconds: float) -> None:
        self.dataset, self.seconds = dataset, seconds
        self.kept: dict[str, list[dict[str, np.ndarray]]] = {}
        self.epoch_rows: dict[str, int | None] = {}
        self.intervals_us: dict[str, np.ndarray] = {}
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def add(self, operator: Operator) -> None:
        """Measure one operator; its inputs were measured before."""
        prefix = run_pipeline(operator.node, self.seconds, keep=True, what=f"the pipeline up to {operator.name}")
        self.kept[operator.name], self.epoch_rows[operator.name] = prefix.kept, prefix.epoch_rows
        base = {
            "name": operator.name,
            "op_type": operator.op_type,
            "inputs": operator.inputs,
            "workers": operator.workers,
            "processes": operator.processes,
            "can_have_workers": operator.can_have_workers,
            "runs_python": operator.runs_python,
            "prefix_row_us": prefix.row_us,
            "row_bytes": float(np.mean([row_bytes(row) for row in prefix.kept])) if prefix.kept else np.nan,
            "epoch_rows": prefix.epoch_rows,
            "input_rows": self._input_rows(operator),
            "buffer_rows": int(getattr(operator.node, "buffer_size", 0) or 0),
        }
        if operator.op_type in PASSING_ON:
            figures = _no_service()
        elif operator.inputs:
            figures = self._inner(operator)
        else:
            figures = self._source(operator, prefix)
        self.rows.append(dict.fromkeys(SERVICE_COLUMNS) | base | figures)

    def _input_rows(self, operator: Operator) -> float:
        """Rows that the operator takes for each row that it gives."""
        if operator.op_type == "Batch":
            size = getattr(operator.node, "batch_size", 1)
            return float(size) if isinstance(size, int) and size > 0 else 1.0
        return 1.0

    def _source(self, operator: Operator, prefix: PipelineRun) -> dict[str, Any]:
        one = prefix if operator.workers == 1 else self._run(operator.node, operator, 1, processes=False)
        self.intervals_us[operator.name] = one.intervals_us * (1 - one.stolen_share)
        if not operator.can_have_workers or (operator.runs_python and one.clean_row_us < LIGHT_US):
            held = one.cpu_us if operator.runs_python else 0.0  # one thread that calls Python holds the lock meanwhile
            return _service(one, None) | {"lock_us": held, "can_have_workers": False}
        return self._scaled(operator, operator.node, one, None)

    def _inner(self, operator: Operator) -> dict[str, Any]:
        rows = [row for name in operator.inputs[:1] for row in self.kept[name]]
        fed = run_pipeline(from_memory(rows), self.seconds / 2, what=f"rows in front of {operator.name}")
        node = alone(operator, rows)
        one = self._run(node, operator, 1, processes=False)
        per_row = self._input_rows(operator)
        feed_us, feed_cpu_us = fed.clean_row_us * per_row, fed.cpu_us * per_row
        if one.clean_row_us <= CHEAP_RATIO * feed_us:
            cpu_us = max(one.cpu_us - feed_cpu_us, 0.0)
            return _service(one, None) | {"service_us": cpu_us, "cpu_us": cpu_us, "many_us": cpu_us, "is_cheap": True}
        return self._scaled(operator, node, one, feed_cpu_us)

    def _scaled(self, operator: Operator, node: Any, one: PipelineRun, feed_cpu_us: float | None) -> dict[str, Any]:
        """The figures of several workers, and of processes, beside those of one."""
        figures = _service(one, feed_cpu_us)
        most = cores()
        if not operator.can_have_workers or most < 2:
            return figures
        many = self._run(node, operator, most, processes=False, no_worse_than=one.row_us)
        figures["many_workers"], figures["many_us"] = most, many.clean_row_us
        computes = figures["cpu_us"] >= COMPUTES_SHARE * figures["service_us"]
        if operator.runs_python and computes and many.row_us > LOCK_RATIO * figures["service_us"] / most:
            figures["lock_us"] = _lock_held(figures, many)
            figures["many_us"] = max(many.clean_row_us, figures["lock_us"])
        if operator.runs_python and computes and figures["service_us"] >= LIGHT_US:
            figures |= self._in_processes(operator, node, one, feed_cpu_us or 0.0)
        return figures

    def _in_processes(self, operator: Operator, node: Any, one: PipelineRun, feed_cpu_us: float) -> dict[str, Any]:
        most = cores()
        try:
            run = self._run(node, operator, most, processes=True, no_worse_than=one.row_us)
        except PipelineError as error:
            self.notes.append(f"{operator.name} does not run in processes: {error.problem}")
            return {}
        return {
            "process_workers": most,
            "process_us": run.clean_row_us * most,
            "process_cpu_us": max(run.cpu_us - feed_cpu_us, 0.0),
        }

    def _run(
        self, node: Any, operator: Operator, workers: int, *, processes: bool, no_worse_than: float | None = None
    ) -> PipelineRun:
        """The operator (or source) alone, with other workers."""
        top = operators(node)[-1]
        setting = Setting(
            workers={top.name: workers} if operator.can_have_workers else {},
            processes={top.name: processes} if operator.runs_python else {},
        )
        where = "in processes" if processes else f"with {workers} worker(s)"
        what = f"{operator.name} {where}"
        run = run_pipeline(with_setting(node, setting), self.seconds, what=what)
        for _again in range(AGAIN if operator.inputs else 0):  # ending a source's workers takes MindSpore seconds
            if run.stolen_share < DISTURBED_SHARE and run.row_us <= ODD_RATIO * (no_worse_than or run.row_us):
                break
            again = run_pipeline(with_setting(node, setting), self.seconds, what=what)
            run = min(run, again, key=lambda r: r.row_us)  # disturbances only ever take time
        return run


def _service(one: PipelineRun, feed_cpu_us: float | None) -> dict[str, Any]:
    cpu_us = max(one.cpu_us - (feed_cpu_us or 0.0), 0.0)
    blocks = np.array_split(one.intervals_us, min(8, max(len(one.intervals_us) // 4, 1)))
    means = np.array([block.mean() for block in blocks if len(block)])
    error = float(means.std(ddof=1) / np.sqrt(len(means)) / means.mean()) if len(means) > 2 else 0.1
    return {
        "service_us": max(one.clean_row_us, min(cpu_us, one.row_us)),
        "cpu_us": cpu_us,
        "lock_us": 0.0,
        "many_workers": 1,
        "many_us": one.clean_row_us,
        "error_share": error,
        "stolen_share": one.stolen_share,
        "is_cheap": False,
    }


def _lock_held(figures: dict[str, Any], many: PipelineRun) -> float:
    """Time for a row for which the lock is held, where several threads gain less than they should.

    It is what the second run took, and never more than the processor time. While the holder of the lock itself had no
    core, all others waited too: that time is no part of what other programs took from the busiest thread.
    """
    cpu_us = float(figures["cpu_us"])
    return min(cpu_us, max(many.clean_row_us, min(many.row_us, cpu_us)))


def _no_service() -> dict[str, Any]:
    return {"service_us": 0.0, "cpu_us": 0.0, "lock_us": 0.0, "many_workers": 1, "many_us": 0.0, "error_share": 0.0,
            "stolen_share": 0.0, "is_cheap": True}  # fmt: skip
