"""Profile a MindSpore data pipeline while anything iterates over it: queue fill, CPU, time per batch.

MindSpore offers this only through a private module; where a version lacks it, `profile_pipeline` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import mindspore.dataset as ds

from workbench.errors import MissingExtraError, PipelineError
from workbench.probes.pipeline_run import run_pipeline

SAMPLING_INTERVAL_MS = 50  # MindSpore's default of 1000 leaves short runs without a sample


class PipelineProfiler:
    """Start before the first iterator is made (MindSpore profiles the first pipeline of a session)."""

    def __init__(self, output: str | os.PathLike[str], *, sampling_interval_ms: int = SAMPLING_INTERVAL_MS) -> None:
        self.output = Path(output)
        self._manager = _manager()
        self._running = False
        self._interval_ms = sampling_interval_ms

    def start(self) -> None:
        """Begin a session.

        Raises:
            PipelineError: another session is open.
        """
        ds.config.set_monitor_sampling_interval(self._interval_ms)
        try:
            self._manager.init()
        except RuntimeError as error:
            raise PipelineError(
                "MindSpore profiles one pipeline at a time, and one is being profiled.",
                fix="end that session first (a Recorder's ends with its training), or call profile_pipelines before it",
            ) from error
        self._manager.start()
        self._running = True

    def save(self) -> None:
        """Write the three MindData files of what was seen so far; the session goes on."""
        self.output.mkdir(parents=True, exist_ok=True)
        self._manager.save(str(self.output))

    def stop(self) -> None:
        """End the session and write its files."""
        if self._running:
            self._manager.stop()
            self._running = False
            self.save()


def _manager() -> Any:
    try:
        return import_module("mindspore._c_dataengine").GlobalContext.profiling_manager()
    except (ImportError, AttributeError) as error:
        raise MissingExtraError(
            f"This MindSpore has no profiling manager for data pipelines ({error}).",
            fix="use MindSpore 2.10, or leave profile_data off",
        ) from error


@contextmanager
def profile_pipeline(
    output: str | os.PathLike[str], *, sampling_interval_ms: int = SAMPLING_INTERVAL_MS
) -> Iterator[PipelineProfiler]:
    """Profile the first data pipeline that is iterated inside the block; the files are in `output` afterwards."""
    profiler = PipelineProfiler(output, sampling_interval_ms=sampling_interval_ms)
    profiler.start()
    try:
        yield profiler
    finally:
        profiler.stop()


def profile_pipelines(
    datasets: Mapping[str, ds.Dataset],
    output: str | os.PathLike[str],
    *,
    seconds: float = 3.0,
    step_us: float | Mapping[str, float] = 0.0,
    sampling_interval_ms: int = 20,
) -> dict[str, Path]:
    """Profile several pipelines (training, evaluation) one after the other, each for a bounded time.

    Args:
        datasets: pipelines by name; they are not changed.
        output: folder; each pipeline's files go to a folder of its name in it.
        seconds: for each pipeline.
        step_us: what training does with a batch, for all or by name; 0 takes batches as fast as they come.
        sampling_interval_ms: between samples of the queues.

    Returns:
        The folder of each pipeline, to open with `workbench.open_run`.

    Raises:
        PipelineError: a pipeline raises, yields nothing, or does not answer.
    """
    folders = {}
    for name, dataset in datasets.items():
        folders[name] = Path(output) / name
        pause_us = step_us if isinstance(step_us, int | float) else step_us.get(name, 0.0)
        with profile_pipeline(folders[name], sampling_interval_ms=sampling_interval_ms):
            run_pipeline(dataset, seconds, step_us=pause_us, what=f"the pipeline {name!r}")
    return folders
