"""Iterate over a data pipeline for a bounded time and say what it took: rows, time, processor time, what others took.

Iteration stays in the caller's thread (MindSpore 2.10 ends the process when a pipeline raises in another thread than
the one that iterated first); a watchdog stops the iterator where a source does not answer.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mindspore.dataset as ds
import numpy as np
import psutil

from workbench.errors import PipelineError

WARM_UP_SHARE = 0.25  # of the time: queues fill, worker processes start
ANSWER_S = 20.0  # a first row that takes longer counts as none
MOST_TIMES = 3  # of the time asked for, to see two whole epochs
KEPT_ROWS, KEPT_BYTES = 256, 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """What one bounded iteration showed; times in microseconds, per row that came out.

    `row_us` is over whole epochs where two of them end. `cpu_us` counts this process and its worker processes.
    `stolen_share` is the part of the time in which the busiest thread was ready and had no core, at most what other
    programs used of the machine. `epoch_rows` is None if no epoch ended.
    """

    rows: int
    row_us: float
    cpu_us: float
    stolen_share: float
    first_row_us: float
    epoch_rows: int | None
    intervals_us: np.ndarray = field(repr=False)
    wait_us: float = 0.0
    kept: list[dict[str, np.ndarray]] = field(default_factory=list, repr=False)

    @property
    def clean_row_us(self) -> float:
        """Time per row if no other program had run."""
        return self.row_us * (1 - self.stolen_share)


@contextmanager
def prefetching(size: int | None) -> Iterator[None]:
    """Make pipelines with this prefetch size; None leaves it as it is."""
    before = ds.config.get_prefetch_size()
    if size is not None:
        ds.config.set_prefetch_size(size)
    try:
        yield
    finally:
        ds.config.set_prefetch_size(before)


def run_pipeline(
    dataset: ds.Dataset, seconds: float, *, step_us: float = 0.0, keep: bool = False, what: str = "the pipeline"
) -> PipelineRun:
    """Iterate over `dataset`, epoch after epoch, for `seconds`; endless and short pipelines alike.

    Args:
        dataset: a pipeline; it is not changed.
        seconds: how long to measure, warm-up included.
        step_us: pause after each row, as a training step would make; 0 takes rows as fast as they come.
        keep: keep rows that came out (some, of limited size).
        what: how errors call it.

    Raises:
        PipelineError: it raises, yields nothing, or does not answer.
    """
    iteration = _Iteration(dataset, seconds, step_us=step_us, keep=keep)
    try:
        iteration.run()
    except (RuntimeError, ValueError, TypeError, OSError, AttributeError) as error:  # what MindSpore passes on
        raise explained(error, what, iteration.rows) from error
    if iteration.has_hung:
        raise PipelineError(
            f"{what} gave {iteration.rows} row(s) and then did not answer for {ANSWER_S:.0f} s.",
            fix="look at what its source or function waits for, and give that a timeout of its own",
        )
    return iteration.result(what)


class _Iteration:
    """Iterates and takes the times."""

    def __init__(self, dataset: ds.Dataset, seconds: float, *, step_us: float, keep: bool) -> None:
        self.dataset, self.seconds, self.step_us, self.keep = dataset, seconds, step_us, keep
        self.rows = 0
        self.epoch_rows: int | None = None
        self.is_over = self.has_hung = False
        self.times: list[float] = []
        self.wait_s = 0.0
        self.kept: list[dict[str, np.ndarray]] = []
        self.kept_bytes = 0
        self.epoch_ends: list[int] = []  # rows taken by the end of each epoch
        self.busy_s = [0.0, 0.0]
        self.before: dict[int, tuple[float, float]] = {}
        self.after: dict[int, tuple[float, float]] = {}
        self.cpu_s = [0.0, 0.0]
        self.begun = self.warm_from = self.asked = 0.0
        self.warm_rows = 0

    def run(self) -> None:
        """Iterate until the time is over."""
        self.begun = self.asked = time.perf_counter()
        iterator = self.dataset.create_dict_iterator(num_epochs=-1, output_numpy=True, do_copy=self.keep)
        done = threading.Event()
        dog = threading.Thread(target=self._watch, args=(iterator, done), daemon=True)
        dog.start()
        try:
            while not self.is_over and self._epoch(iterator):
                pass
            self.after, self.cpu_s[1], self.busy_s[1] = thread_times(), processor_time(), _busy_time()
        finally:
            done.set()
        if not self.has_hung:
            dog.join()
            iterator.stop()

    def _epoch(self, iterator: Any) -> bool:
        """Take the rows of an epoch; False if there were none."""
        before = self.rows
        self.asked = time.perf_counter()
        for row in iterator:
            self._take(row, time.perf_counter() - self.asked)
            if self.is_over:
                return True
            if self.step_us:
                time.sleep(self.step_us / 1e6)
            self.asked = time.perf_counter()
        if not self.has_hung and self.rows > before:
            self.epoch_rows = self.epoch_rows or self.rows - before
            self.epoch_ends.append(self.rows)
        return self.rows > before and not self.has_hung

    def _watch(self, iterator: Any, done: threading.Event) -> None:
        while not done.wait(0.1):
            if time.perf_counter() - self.asked > ANSWER_S + self.step_us / 1e6:
                self.has_hung = True
                iterator.stop()
                return

    def _take(self, row: Mapping[str, Any], waited: float) -> None:
        now = time.perf_counter()
        self.rows += 1
        self.times.append(now)
        if self.keep and len(self.kept) < KEPT_ROWS and self.kept_bytes < KEPT_BYTES:
            self.kept.append(dict(row))
            self.kept_bytes += row_bytes(row)
        if not self.warm_from:
            if now - self.times[0] >= WARM_UP_SHARE * self.seconds or now - self.begun > self.seconds:
                self.warm_from, self.warm_rows = now, self.rows
                self.before, self.cpu_s[0], self.busy_s[0] = thread_times(), processor_time(), _busy_time()
            return
        self.wait_s += waited
        lasted = now - self.times[0]
        in_epochs = self.epoch_ends and len(self._whole_epochs()) < 2 and lasted < MOST_TIMES * self.seconds
        self.is_over = self.is_over or (lasted >= self.seconds and not in_epochs)

    def _whole_epochs(self) -> list[int]:
        """Ends of epochs since the warm-up: between two of them, the rate is that of whole epochs."""
        return [rows for rows in self.epoch_ends if self.warm_rows and rows >= self.warm_rows]

    def result(self, what: str) -> PipelineRun:
        """The figures, from the warm-up on."""
        rows = self.rows - self.warm_rows
        if not self.rows:
            raise PipelineError(f"{what} yields no row.", fix="check its source, its filters and its batch size")
        if rows < 1:
            raise PipelineError(
                f"{what} gave {self.rows} row(s) in {self.seconds:.1f} s: too few to tell its rate.",
                fix="give more seconds",
            )
        times = np.array(self.times[self.warm_rows - 1 :])
        span_us = (times[-1] - times[0]) * 1e6
        ends = self._whole_epochs()
        first, last = (ends[0], ends[-1]) if len(ends) > 1 else (self.warm_rows, self.rows)
        own_s = self.cpu_s[1] - self.cpu_s[0]
        others_s = max(self.busy_s[1] - self.busy_s[0] - own_s, 0.0)
        others_share = others_s * 1e6 / span_us / (os.cpu_count() or 1)  # of the machine
        return PipelineRun(
            rows=rows,
            row_us=(self.times[last - 1] - self.times[first - 1]) * 1e6 / (last - first),
            cpu_us=own_s * 1e6 / rows,
            stolen_share=min(_stolen(self.before, self.after, span_us), others_share),
            first_row_us=(self.times[0] - self.begun) * 1e6,
            epoch_rows=self.epoch_rows,
            intervals_us=np.diff(times) * 1e6,
            wait_us=self.wait_s * 1e6 / rows,
            kept=self.kept,
        )


def row_bytes(row: Mapping[str, Any]) -> int:
    """Memory of one row."""
    return sum(int(np.asarray(value).nbytes) for value in row.values())


def processor_time() -> float:
    """Seconds of processor time of this process and its workers so far."""
    total = 0.0
    for process in _with_workers():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _busy_time() -> float:
    """Seconds of processor time of all programs on this machine so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def thread_times() -> dict[int, tuple[float, float]]:
    """Per thread of this process and its workers: microseconds on a core, and ready without one (Linux; else empty)."""
    found = {}
    for process in _with_workers():
        for path in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            try:
                on_core, ready, _slices = path.read_text().split()
            except (OSError, ValueError):  # the thread ended, or this system counts nothing
                continue
            found[int(path.parent.name)] = (int(on_core) / 1e3, int(ready) / 1e3)
    return found


def _with_workers() -> list[psutil.Process]:
    me = psutil.Process(os.getpid())
    return [me, *me.children(recursive=True)]


def _stolen(before: dict[int, tuple[float, float]], after: dict[int, tuple[float, float]], span_us: float) -> float:
    """Share of the time in which the busiest thread was ready without a core."""
    used = [(after[t][0] - before[t][0], after[t][1] - before[t][1]) for t in after.keys() & before.keys()]
    if not used or span_us <= 0:
        return 0.0
    _on_core, ready = max(used, key=sum)
    return float(np.clip(ready / span_us, 0.0, 0.9))


def explained(error: Exception, what: str, rows: int) -> PipelineError:
    """The reason out of the page of text that MindSpore raises, with what to do."""
    text = str(error)
    said = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit): .*$", text, re.M) or re.findall(r"\[ERROR\] (.+)", text)
    reason = said[-1].strip() if said else (text.strip().splitlines() or [type(error).__name__])[0]
    if "pickle" in text.lower():
        return PipelineError(
            f"{what} sends a function to worker processes that cannot be sent: {reason}",
            fix="define the function at the top of a module (no lambda, no open file or lock in it), or set "
            "python_multiprocessing=False",
        )
    if "must not be 0, got: 0" in text:
        return PipelineError(f"{what} has a source without samples: {reason}", fix="check the path and its filters")
    return PipelineError(
        f"{what} raised after {rows} row(s): {reason}",
        fix="run the function on that sample alone, or skip such samples",
    )
