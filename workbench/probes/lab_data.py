"""Data of the fault lab: real text through a real pipeline, with the mistakes that data can have."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mindspore.dataset as ds
import numpy as np

from workbench.probes.corpus import Document, Sample, windows
from workbench.probes.language_model import IGNORED_TARGET, PAD
from workbench.probes.text_dataset import training_samples

SUBSETS = ("arithmetic", "english", "python")
EVEN = {name: 1 / len(SUBSETS) for name in SUBSETS}


@dataclass(frozen=True, kw_only=True)
class LabData:
    """What the training reads. The defaults are healthy."""

    duplicate_share: float = 0.0  # of the samples that are copies of a handful
    empty_share: float = 0.0  # of the samples that hold nothing but padding
    random_steps: Sequence[int] = ()  # steps whose batch is random bytes
    starved_from: tuple[str, int] | None = None  # subset, step from which on it is not sampled any more
    shuffle_buffer: int | None = None  # None: well shuffled; else in document order, through this buffer
    slow_map_ms: float = 0.0  # a Python operator that sleeps for each sample
    lengths: Sequence[int] = ()  # of the batches in turn, from step `lengths_from` on: one graph per length
    lengths_from: int = 1


def lab_samples(
    documents: Sequence[Document], data: LabData, *, count: int, batch_size: int, context_length: int, seed: int
) -> list[Sample]:
    """`count` samples in the order of training."""
    if data.shuffle_buffer is not None:
        ordered = [s for d in documents if not d.is_held_out for s in windows(d, context_length)]
        return _repeated(ordered, count)
    pool = training_samples(documents, context_length=context_length, weights=EVEN, seed=seed)
    samples = _repeated(pool, count)
    generator = random.Random(seed)
    if data.starved_from:
        subset, step = data.starved_from
        others = [s for s in pool if s.subset != subset]
        first = (step - 1) * batch_size
        samples[first:] = [s if s.subset != subset else generator.choice(others) for s in samples[first:]]
    few = samples[:5]
    samples = [generator.choice(few) if generator.random() < data.duplicate_share else s for s in samples]
    samples = [_empty(s) if generator.random() < data.empty_share else s for s in samples]
    for step in data.random_steps:
        rows = slice((step - 1) * batch_size, step * batch_size)
        samples[rows] = [_random(s, generator) for s in samples[rows]]
    return samples


def lab_pipeline(path: Path, data: LabData, *, batch_size: int, seed: int) -> ds.Dataset:
    """Batches (tokens, targets) of a MindRecord file, in its order unless a shuffle buffer is asked for."""
    ds.config.set_seed(seed)
    columns = ["tokens", "targets"]
    dataset = ds.MindDataset(str(path), columns_list=columns, shuffle=False, num_parallel_workers=1)
    if data.shuffle_buffer is not None and data.shuffle_buffer > 1:
        dataset = dataset.shuffle(data.shuffle_buffer)
    if data.slow_map_ms:
        dataset = dataset.map(_SlowClean(data.slow_map_ms), ["tokens"], num_parallel_workers=1)
    if data.lengths:
        return dataset.batch(batch_size, drop_remainder=True, per_batch_map=_Lengths(data))
    return dataset.batch(batch_size, drop_remainder=True)


class _SlowClean:
    """A Python operator that takes its time for each sample."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        time.sleep(self.milliseconds / 1e3)
        return tokens


class _Lengths:
    """Cuts the batches to the lengths of the plan, in turn."""

    def __init__(self, data: LabData) -> None:
        self.lengths, self.first = data.lengths, data.lengths_from

    def __call__(
        self, tokens: list[np.ndarray], targets: list[np.ndarray], batch: ds.BatchInfo
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        step = batch.get_batch_num() + 1
        if step < self.first:
            return tokens, targets
        length = self.lengths[(step - self.first) % len(self.lengths)]
        return [t[:length] for t in tokens], [t[:length] for t in targets]


def _repeated(pool: Sequence[Sample], count: int) -> list[Sample]:
    return [pool[i % len(pool)] for i in range(count)]


def _empty(sample: Sample) -> Sample:
    tokens, targets = np.full_like(sample.tokens, PAD), np.full_like(sample.targets, IGNORED_TARGET)
    return replace(sample, tokens=tokens, targets=targets, scored_bytes=0, preview="")


def _random(sample: Sample, generator: random.Random) -> Sample:
    """A sample whose text is noise: no byte can be guessed from the ones before."""
    noise = np.array([generator.randrange(128, 256) for _ in range(len(sample.tokens) + 1)], np.int32)
    return replace(sample, tokens=noise[:-1], targets=noise[1:], scored_bytes=len(noise) - 1, preview="noise")
