"""Profile a MindSpore data pipeline while anything iterates over it: queue fill, CPU, time per batch.

MindSpore offers this only through a private module; where a version lacks it, `profile_pipeline` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import mindspore.dataset as ds

from workbench.errors import MissingExtraError

SAMPLING_INTERVAL_MS = 50  # MindSpore's default of 1000 leaves short runs without a sample


class PipelineProfiler:
    """Start before the first iterator is made (MindSpore profiles the first pipeline of a session)."""

    def __init__(self, output: str | os.PathLike[str], *, sampling_interval_ms: int = SAMPLING_INTERVAL_MS) -> None:
        self.output = Path(output)
        self._manager = _manager()
        self._running = False
        self._interval_ms = sampling_interval_ms

    def start(self) -> None:
        """Begin a session."""
        ds.config.set_monitor_sampling_interval(self._interval_ms)
        self._manager.init()
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
