"""Services of the operators of a data pipeline -> when its batches come, row by row through finite queues. Pure.

Bounds tell the rate of steady services. Where a source answers unevenly, or an epoch ends and the pipeline starts anew,
it depends on how far ahead the queues let it run: that is replayed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

WARM_UP_SHARE = 0.1  # of the simulated batches


class _Taker(Protocol):
    def push(self, ready_us: float) -> float:
        """Offer a row that is ready at this time; return when it is taken."""

    def end_epoch(self) -> None:
        """Hand on what is held back."""


class _Training:
    """Takes a batch for each step."""

    def __init__(self, step_us: float) -> None:
        self.step_us, self.free_us = step_us, 0.0
        self.taken_us: list[float] = []
        self.wait_us: list[float] = []

    def push(self, ready_us: float) -> float:
        taken = max(ready_us, self.free_us)
        self.wait_us.append(taken - self.free_us)
        self.taken_us.append(taken)
        self.free_us = taken + self.step_us
        return taken

    def end_epoch(self) -> None:
        """Nothing is held back."""


class _Workers:
    """Works on rows side by side and hands them on in order, into a queue of `slots`."""

    def __init__(self, service_us: float, workers: int, slots: int, behind: _Taker) -> None:
        self.service_us, self.behind = service_us, behind
        self.free = deque([0.0] * workers, maxlen=workers)
        self.taken = deque([0.0] * slots, maxlen=slots)

    def push(self, ready_us: float) -> float:
        start = max(ready_us, self.free[0])
        self.free.append(self.hand_on(start + self.service_us))
        return start

    def hand_on(self, done_us: float) -> float:
        """Put a finished row into the queue as soon as it has a slot; return when."""
        put = max(done_us, self.taken[0])
        self.taken.append(self.behind.push(put))
        return put

    def end_epoch(self) -> None:
        """All rows have gone on."""
        self.behind.end_epoch()


class _Collecting(_Workers):
    """Collects rows into a batch, then works on it."""

    def __init__(self, size: int, service_us: float, workers: int, slots: int, behind: _Taker) -> None:
        super().__init__(service_us, workers, slots, behind)
        self.size, self.held, self.collector_free_us = size, 0, 0.0

    def push(self, ready_us: float) -> float:
        taken = max(ready_us, self.collector_free_us)
        self.held += 1
        if self.held == self.size:
            self.held = 0
            self.collector_free_us = super().push(taken)
        return taken

    def end_epoch(self) -> None:
        """A part of a batch goes with the next epoch's rows: a batch more or less in many."""
        self.behind.end_epoch()


class _Shuffle(_Workers):
    """Hands on a row only when its buffer is full, and the rest at the end of the epoch."""

    def __init__(self, buffer_rows: int, slots: int, behind: _Taker) -> None:
        super().__init__(0.0, 1, slots, behind)
        self.buffer_rows, self.held, self.last_us = buffer_rows, 0, 0.0

    def push(self, ready_us: float) -> float:
        taken = max(ready_us, self.last_us)
        self.held += 1
        self.last_us = taken
        if self.held > self.buffer_rows:
            self.held -= 1
            self.last_us = self.hand_on(taken)
        return taken

    def end_epoch(self) -> None:
        for _ in range(self.held):
            self.last_us = self.hand_on(self.last_us)
        self.held = 0
        self.behind.end_epoch()


def simulate(
    services: pd.DataFrame,
    times: pd.DataFrame,
    intervals_us: Mapping[str, np.ndarray],
    *,
    prefetch_size: int,
    step_us: float = 0.0,
    batches: int = 200,
) -> dict[str, float]:
    """Replay a pipeline in front of a training.

    Args:
        services: as `workbench.analyses.pipeline_rates.services_table` returns; of several branches the slowest is
            replayed.
        times: as `operator_times` returns for the setting to replay.
        intervals_us: measured times between rows by source; their order is kept. Sources that are not in it are even.
        prefetch_size: slots of each queue.
        step_us: what training does with a batch.
        batches: how many to replay.

    Returns:
        batch_us (mean time between batches after the warm-up), wait_share (of that time), longest_wait_us.
    """
    path = _slowest_path(services, times)
    training = _Training(step_us)
    first = _stages(path, training, max(prefetch_size, 1))
    source = path[0]
    _feed(source, first, training, np.asarray(intervals_us.get(source["name"], ()), dtype="float64"), batches)
    skip = max(int(WARM_UP_SHARE * len(training.taken_us)), 1)
    taken, waits = np.array(training.taken_us[skip:]), np.array(training.wait_us[skip + 1 :])
    if len(taken) < 2:
        return {"batch_us": float("nan"), "wait_share": float("nan"), "longest_wait_us": float("nan")}
    span = float(taken[-1] - taken[0])
    return {
        "batch_us": span / (len(taken) - 1),
        "wait_share": float(waits.sum()) / span if span > 0 else 0.0,
        "longest_wait_us": float(waits.max()),
    }


def _slowest_path(services: pd.DataFrame, times: pd.DataFrame) -> list[dict[str, Any]]:
    """Operators from a source to the end, through the slowest branch, with the time of each row under the setting."""
    by_name = {row["name"]: row for row in services.to_dict("records") if row["name"] in set(times["name"])}
    of_time = times.set_index("name")
    cost = {name: float(of_time.loc[name, "batch_us"]) for name in by_name}
    path = [by_name[str(times["name"].iloc[-1])]]
    while path[0]["inputs"]:
        ahead = [name for name in path[0]["inputs"] if name in by_name]
        path.insert(0, by_name[max(ahead, key=lambda name: _deepest_cost(name, by_name, cost))])
    return [
        row
        | {
            "row_us": cost[row["name"]] / row["rows_per_batch"],
            "used_workers": int(of_time.loc[row["name"], "workers"]),
        }
        for row in path
    ]


def _deepest_cost(name: str, by_name: Mapping[str, dict[str, Any]], cost: Mapping[str, float]) -> float:
    ahead = [_deepest_cost(n, by_name, cost) for n in by_name[name]["inputs"] if n in by_name]
    return max([cost[name], *ahead])


def _stages(path: list[dict[str, Any]], training: _Training, slots: int) -> _Workers:
    behind: Any = training
    for row in reversed(path[1:]):
        workers = row["used_workers"]
        service = row["row_us"] * workers  # as many rows at a time, each so much longer
        if row["op_type"] == "Shuffle":
            behind = _Shuffle(int(row["buffer_rows"] or 0), slots, behind)
        elif float(row["input_rows"]) > 1:
            behind = _Collecting(int(row["input_rows"]), service, workers, slots, behind)
        else:
            behind = _Workers(service, workers, slots, behind)
    return _Workers(0.0, 1, slots, behind)


def _feed(source: dict[str, Any], first: _Workers, training: _Training, measured: np.ndarray, batches: int) -> None:
    """Let the source give rows, epoch after epoch, until training took its batches."""
    even_us = float(source["row_us"])
    intervals = measured * (even_us / measured.mean()) if len(measured) and measured.mean() > 0 else np.array([even_us])
    epoch = int(source["epoch_rows"]) if pd.notna(source["epoch_rows"]) and source["epoch_rows"] else 0
    now, row, most = 0.0, 0, int(batches * float(source["rows_per_batch"])) + 1
    for row in range(most):
        if len(training.taken_us) >= batches:
            break
        if epoch and row and row % epoch == 0:
            first.end_epoch()
            now = max(now, training.free_us)  # the source starts again when training has taken the last batch
        now = first.hand_on(now + float(intervals[row % len(intervals)]))
