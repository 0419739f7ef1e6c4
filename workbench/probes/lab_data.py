"""Data of the fault lab: real text through a real pipeline, with the mistakes that data can have."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore.dataset import transforms

from workbench.probes.corpus import Document, Sample, windows
from workbench.probes.data_set import probe_data_set, save_data_samples
from workbench.probes.language_model import IGNORED_TARGET, PAD
from workbench.probes.text_dataset import training_samples, write_mindrecord

PREFETCHED = 2  # per operator: the default of 16 hides a slow pipeline behind what was read while the graph compiled
SUBSETS = ("arithmetic", "english", "python")
EVEN = {name: 1 / len(SUBSETS) for name in SUBSETS}


@dataclass(frozen=True, kw_only=True)
class LabData:
    """What the training reads. The defaults are healthy."""

    duplicate_share: float = 0.0  # of the samples that are copies of a handful
    empty_share: float = 0.0  # of the samples that hold nothing but padding
    long_share: float = 0.0  # of the samples that go on to the end of their document, and are cut when read
    unshifted: bool = False  # each token is its own target, in training and in held-out data
    random_steps: Sequence[int] = ()  # steps whose batch is random bytes
    starved_from: tuple[str, int] | None = None  # subset, step from which on it is not sampled any more
    shuffle_buffer: int | None = None  # None: well shuffled; else in document order, through this buffer
    slow_map_ms: float = 0.0  # a Python operator that sleeps for each sample
    lengths: Sequence[int] = ()  # of the batches in turn, from step `lengths_from` on: one graph per length
    lengths_from: int = 1


def lab_samples(
    documents: Sequence[Document], data: LabData, *, count: int, batch_size: int, context_length: int, seed: int
) -> list[Sample]:
    """`count` samples in the order of training: none twice, unless the plan says so or the text runs out."""
    pool = training_samples(documents, context_length=context_length, weights=EVEN, seed=seed)
    samples, spare = _repeated(pool, count), pool[count:]
    if data.shuffle_buffer is not None:
        places = sample_places(documents, context_length)
        samples.sort(key=lambda s: places[s.sample_id])
    generator = random.Random(seed)
    if data.starved_from:
        subset, step = data.starved_from
        others = iter(_repeated([s for s in spare if s.subset != subset], count))
        first = (step - 1) * batch_size
        samples[first:] = [s if s.subset != subset else next(others) for s in samples[first:]]
    samples = _spoilt(samples, documents, data, generator)
    for step in data.random_steps:
        rows = slice((step - 1) * batch_size, step * batch_size)
        samples[rows] = [_random(s, generator) for s in samples[rows]]
    return samples


def _spoilt(
    samples: list[Sample], documents: Sequence[Document], data: LabData, generator: random.Random
) -> list[Sample]:
    """Samples of which the planned shares are copies, empty, longer, or their own targets."""
    few, whole = samples[:5], {d.document_id: d for d in documents}
    samples = [generator.choice(few) if generator.random() < data.duplicate_share else s for s in samples]
    samples = [_empty(s) if generator.random() < data.empty_share else s for s in samples]
    samples = [_long(s, whole[s.document_id]) if generator.random() < data.long_share else s for s in samples]
    return [unshifted(s) for s in samples] if data.unshifted else samples


def sample_places(documents: Sequence[Document], context_length: int) -> dict[str, int]:
    """Place of each window in the data set: documents in their order, windows in theirs."""
    ids = (s.sample_id for d in documents if not d.is_held_out for s in windows(d, context_length))
    return {sample_id: place for place, sample_id in enumerate(ids)}


def write_lab_data(
    samples: Sequence[Sample], documents: Sequence[Document], run_dir: Path, *, context_length: int, rank_id: int
) -> Path:
    """The training file of a rank, the text that it was made of, and (rank 0) table `data_samples` of this text.

    Only equal samples count as repeated: some licences of the text share passages.
    """
    folder = run_dir / "data"
    places = sample_places(documents, context_length)
    path = write_mindrecord(
        samples, folder / f"train_{rank_id}.mindrecord", subsets=list(SUBSETS),
        places=[places[s.sample_id] for s in samples],
    )  # fmt: skip
    text = folder / f"train_{rank_id}.jsonl"
    text.write_text("\n".join(json.dumps(_as_text(s)) for s in samples) + "\n", encoding="utf-8")
    if rank_id == 0:
        table = probe_data_set(text, training_length=context_length, near_duplicates=False, show_progress=False)
        save_data_samples(table, run_dir)
    return path


def lab_pipeline(path: Path, data: LabData, *, batch_size: int, context_length: int, seed: int) -> ds.Dataset:
    """Batches (tokens, targets, sample, subset) of a file, in its order unless a shuffle buffer is asked for."""
    ds.config.set_seed(seed)
    ds.config.set_prefetch_size(PREFETCHED)
    columns = ["tokens", "targets", "sample", "subset"]
    dataset = ds.MindDataset(str(path), columns_list=columns, shuffle=False, num_parallel_workers=1)
    if data.shuffle_buffer is not None and data.shuffle_buffer > 1:
        dataset = dataset.shuffle(data.shuffle_buffer)
    if data.long_share:
        for column in columns[:2]:
            dataset = dataset.map(transforms.Slice(slice(context_length)), [column], num_parallel_workers=1)
    if data.slow_map_ms:
        dataset = dataset.map(_SlowClean(data.slow_map_ms), ["tokens"], num_parallel_workers=1)
    if data.lengths:
        lengths = _Lengths(data)
        return dataset.batch(batch_size, drop_remainder=True, per_batch_map=lengths, input_columns=columns[:2])
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


def _long(sample: Sample, document: Document) -> Sample:
    """All of the document from the start of the sample on."""
    start = int(sample.sample_id.rpartition("#")[2])
    whole = windows(document, len(document.text))[0]
    rest = slice(start, whole.scored_bytes)
    if rest.stop - start < len(sample.tokens):
        return sample
    return replace(sample, tokens=whole.tokens[rest], targets=whole.targets[rest], scored_bytes=rest.stop - start)


def unshifted(sample: Sample) -> Sample:
    """The sample with its own tokens as targets: nobody shifted the labels."""
    return replace(sample, targets=np.where(sample.targets == IGNORED_TARGET, IGNORED_TARGET, sample.tokens))


def _as_text(sample: Sample) -> dict[str, object]:
    scored = sample.targets[sample.targets != IGNORED_TARGET]
    text = bytes(scored[scored < PAD].astype(np.uint8)).decode("latin-1")
    return {"text": text, "subset": sample.subset, "tokens": scored.tolist()}


def _random(sample: Sample, generator: random.Random) -> Sample:
    """A sample whose text is noise: no byte can be guessed from the ones before."""
    noise = np.array([generator.randrange(128, 256) for _ in range(len(sample.tokens) + 1)], np.int32)
    return replace(sample, tokens=noise[:-1], targets=noise[1:], scored_bytes=len(noise) - 1, preview="noise")
