"""Real data pipelines with one known bottleneck each, made by parameters: what the profile and the tuner are tried on.

A pipeline is small, runs anywhere and needs no file. Work that waits sleeps or reads from a socket, work that computes
spins until it has used a given processor time, so that its cost does not depend on what else the machine does.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import mindspore.dataset as ds
import numpy as np
from mindspore.dataset import vision
from PIL import Image

from workbench.errors import UnknownParameterError

ENDLESS = 50_000  # samples: more than a measurement takes
COLUMN = "sample"


@dataclass(frozen=True, kw_only=True)
class LabPipeline:
    """A pipeline and what is true of it.

    `culprit` is the operator that holds it back ("Map", or "Map#2" for the second one counted from the sources), None
    where it keeps up with a step of `step_us`; `reason` is a word of `workbench.analyses.data_pipeline.REASONS`.
    """

    name: str
    dataset: ds.Dataset
    step_us: float
    culprit: str | None
    reason: str
    prefetch_size: int = 16


def spin(seconds: float) -> None:
    """Use this much processor time of the calling thread, holding the interpreter's lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Samples:
    """A source of equal samples; `work(index)` is done for each."""

    def __init__(self, work: Callable[[int], None] | None = None, *, sample: Any = None, count: int = ENDLESS) -> None:
        self.work, self.count = work, count
        self.sample = np.arange(256, dtype=np.float32) if sample is None else sample

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        if index >= self.count:
            raise IndexError(index)
        if self.work is not None:
            self.work(index)
        return (self.sample,)


class Each:
    """A map function that does `work` for each sample and hands the sample on; can be sent to worker processes."""

    def __init__(self, work: Callable[[float], None], amount: float) -> None:
        self.work, self.amount = work, amount

    def __call__(self, sample: np.ndarray) -> np.ndarray:
        """Work, then hand the sample on."""
        self.work(self.amount)
        return sample


class EachBatch(Each):
    """The same for `per_batch_map`."""

    def __call__(self, samples: list[np.ndarray], _info: Any) -> tuple[list[np.ndarray]]:  # type: ignore[override]
        """Work, then hand the batch on."""
        self.work(self.amount)
        return (samples,)


class Fetch:
    """A map function that asks a server on a socket and waits for its answer."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.local = seconds, threading.local()

    def __call__(self, sample: np.ndarray) -> np.ndarray:
        """Ask, and wait for the answer."""
        if not hasattr(self.local, "line"):
            self.local.line, far = socket.socketpair()
            threading.Thread(target=_serve, args=(far, self.seconds), daemon=True).start()
        self.local.line.sendall(b"?")
        self.local.line.recv(1)
        return sample


def _serve(line: socket.socket, seconds: float) -> None:
    while line.recv(1):
        time.sleep(seconds)
        line.sendall(b"!")


def sort_rounds(rounds: float) -> None:
    """Compute without the interpreter's lock: NumPy gives it back while it sorts."""
    for _ in range(int(rounds)):
        np.sort(_UNSORTED)


_UNSORTED = np.random.default_rng(0).random(20_000)


def lab_pipeline(name: str, *, size: int = 1, seed: int = 0) -> LabPipeline:
    """The pipeline `name` of `LAB`.

    Args:
        name: a key of `LAB`.
        size: 1 for short work per sample, 2 for three times as much.
        seed: varies the amount of work by up to a fifth.

    Raises:
        UnknownParameterError: there is no such pipeline.
    """
    if name not in LAB:
        raise UnknownParameterError(f"There is no lab pipeline {name!r}.", fix=f"use one of {sorted(LAB)}")
    scale = (1.0 if size == 1 else 3.0) * float(np.random.default_rng(seed).uniform(0.85, 1.2))
    dataset, step_us, culprit, reason, prefetch = LAB[name](scale)
    return LabPipeline(
        name=f"{name}-{size}", dataset=dataset, step_us=step_us, culprit=culprit, reason=reason, prefetch_size=prefetch
    )


def demo() -> dict[str, ds.Dataset]:
    """Two pipelines to try the tuner on: one with too few workers, one that keeps up."""
    return {"train": lab_pipeline("too_few_workers").dataset, "eval": lab_pipeline("keeps_up").dataset}


Made = tuple[ds.Dataset, float, str | None, str, int]


def _source(work: Callable[[int], None] | None = None, *, sample: Any = None, count: int = ENDLESS) -> ds.Dataset:
    return ds.GeneratorDataset(
        Samples(work, sample=sample, count=count), [COLUMN], shuffle=False, python_multiprocessing=False
    )


def _map(dataset: ds.Dataset, work: Any, *, workers: int = 1, processes: bool = False) -> ds.Dataset:
    return dataset.map(work, [COLUMN], num_parallel_workers=workers, python_multiprocessing=processes)


def _sleeping_map(scale: float, *, workers: int) -> Made:
    dataset = _map(_source(), Each(time.sleep, 0.002 * scale), workers=workers)
    return dataset.batch(8, num_parallel_workers=1), 4_000 * scale, "Map", "waiting", 16


def _slow_generator(scale: float) -> Made:
    work = partial(_for_index, time.sleep, 0.002 * scale)
    return _source(work).batch(8, num_parallel_workers=1), 4_000 * scale, "Generator", "waiting", 16


def _busy_generator(scale: float) -> Made:
    work = partial(_for_index, sort_rounds, max(2, round(2 * scale)))
    return _source(work).batch(8, num_parallel_workers=1), 4_000 * scale, "Generator", "cpu", 16


def _lock_holder(scale: float) -> Made:
    """The map has next to nothing to do, but for each sample it needs the lock that the generator holds."""
    work = partial(_for_index, spin, 0.0025 * scale)
    dataset = _map(_source(work), Each(time.sleep, 0.0002 * scale))
    return dataset.batch(8, num_parallel_workers=1), 4_000 * scale, "Generator", "gil", 16


def _for_index(work: Callable[[float], None], amount: float, _index: int) -> None:
    work(amount)


def _slow_decode(scale: float) -> Made:
    side = int(320 * scale**0.5)
    pixels = np.random.default_rng(1).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="JPEG", quality=92)
    dataset = _source(sample=np.frombuffer(file.getvalue(), np.uint8))
    dataset = _map(dataset, vision.Decode())
    return dataset.batch(8, num_parallel_workers=1), 2_000 * scale, "Map", "cpu", 16


def _locked_map(scale: float) -> Made:
    dataset = _map(_source(), Each(spin, 0.002 * scale), workers=2)
    return dataset.batch(8, num_parallel_workers=1), 6_000 * scale, "Map", "gil", 16


def _computing_map(scale: float) -> Made:
    dataset = _map(_source(), Each(sort_rounds, max(1, round(3 * scale))))
    return dataset.batch(8, num_parallel_workers=1), 6_000 * scale, "Map", "cpu", 16


def _process_map(scale: float) -> Made:
    dataset = _map(_source(), Each(spin, 0.003 * scale), workers=1, processes=True)
    return dataset.batch(8, num_parallel_workers=1), 8_000 * scale, "Map", "cpu", 16


def _middle_map(scale: float) -> Made:
    dataset = _map(_source(), Each(time.sleep, 0.0005 * scale))
    dataset = _map(dataset, Each(time.sleep, 0.003 * scale))
    dataset = _map(dataset, Each(time.sleep, 0.0008 * scale))
    return dataset.batch(8, num_parallel_workers=1), 10_000 * scale, "Map#2", "waiting", 16


def _slow_batch(scale: float) -> Made:
    dataset = _map(_source(), Each(time.sleep, 0.0003 * scale))
    dataset = dataset.batch(
        8, num_parallel_workers=1, per_batch_map=EachBatch(time.sleep, 0.012 * scale), input_columns=[COLUMN]
    )
    return dataset, 5_000 * scale, "Batch", "waiting", 16


def _fetching_map(scale: float) -> Made:
    dataset = _map(_source(), Fetch(0.003 * scale))
    return dataset.batch(8, num_parallel_workers=1), 8_000 * scale, "Map", "waiting", 16


def _stalling_source(scale: float) -> Made:
    """On the mean it keeps up with the step; each 120th sample takes long, and one batch ahead does not cover that."""
    work = partial(_stall, 120, 0.100 * scale)
    return _source(work).batch(8, num_parallel_workers=1), 10_000 * scale, "Generator", "bursts", 1


def _stall(every: int, seconds: float, index: int) -> None:
    if index % every == every - 1:
        time.sleep(seconds)


def _refilling_shuffle(scale: float) -> Made:
    """The buffer takes a whole epoch: at the start of each one training waits until all its samples were read."""
    work = partial(_for_index, time.sleep, 0.001 * scale)
    dataset = _source(work, count=128).shuffle(128).batch(8, num_parallel_workers=1)
    return dataset, 12_000 * scale, "Shuffle", "bursts", 16


def _slow_branch(scale: float) -> Made:
    slow = ds.GeneratorDataset(
        Samples(partial(_for_index, time.sleep, 0.002 * scale)), ["label"], shuffle=False, python_multiprocessing=False
    )
    dataset = ds.zip((_source(), slow)).batch(8, num_parallel_workers=1)
    return dataset, 5_000 * scale, "Generator#2", "waiting", 16


def _keeps_up(scale: float) -> Made:
    dataset = _map(_source(), Each(time.sleep, 0.0006 * scale), workers=2)
    return dataset.batch(8, num_parallel_workers=1), 9_000 * scale, None, "keeps_up", 16


def _keeps_up_computing(scale: float) -> Made:
    dataset = _map(_source(), Each(spin, 0.0005 * scale)).shuffle(64)
    return dataset.batch(8, num_parallel_workers=1), 12_000 * scale, None, "keeps_up", 16


def _keeps_up_decode(scale: float) -> Made:
    dataset, _step, _culprit, _reason, _prefetch = _slow_decode(scale)
    return dataset, 45_000 * scale, None, "keeps_up", 16


LAB: Mapping[str, Callable[[float], Made]] = {
    "slow_map": partial(_sleeping_map, workers=2),
    "too_few_workers": partial(_sleeping_map, workers=1),
    "slow_generator": _slow_generator,
    "busy_generator": _busy_generator,
    "lock_holder": _lock_holder,
    "slow_decode": _slow_decode,
    "locked_map": _locked_map,
    "computing_map": _computing_map,
    "process_map": _process_map,
    "middle_map": _middle_map,
    "slow_batch": _slow_batch,
    "io_wait": _fetching_map,
    "tiny_prefetch": _stalling_source,
    "shuffle_refill": _refilling_shuffle,
    "slow_branch": _slow_branch,
    "keeps_up": _keeps_up,
    "keeps_up_computing": _keeps_up_computing,
    "keeps_up_decode": _keeps_up_decode,
}
