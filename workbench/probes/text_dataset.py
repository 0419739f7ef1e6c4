"""Training windows as MindRecord on disk, and the `mindspore.dataset` pipeline that reads them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import mindspore.dataset as ds
import numpy as np
from mindspore.mindrecord import FileWriter

from workbench.probes.corpus import Document, Sample, windows

SCHEMA = {
    "tokens": {"type": "int32", "shape": [-1]},
    "targets": {"type": "int32", "shape": [-1]},
    "sample": {"type": "int64"},
    "subset": {"type": "int32"},
}


def training_samples(
    documents: Sequence[Document], *, context_length: int, weights: Mapping[str, float] | None = None, seed: int = 0
) -> list[Sample]:
    """Windows of the documents that are not held out, in a seeded random order.

    Args:
        documents: of any subsets.
        context_length: tokens of a window.
        weights: share of each subset among the samples; larger subsets are thinned out, never repeated.
            None takes all windows.
        seed: of the order and the choice.
    """
    generator = random.Random(seed)
    pools: dict[str, list[Sample]] = {}
    for document in documents:
        if not document.is_held_out:
            pools.setdefault(document.subset, []).extend(windows(document, context_length))
    for pool in pools.values():
        generator.shuffle(pool)
    if weights:
        total = min(len(pool) / weights[name] for name, pool in pools.items() if weights.get(name, 0) > 0)
        pools = {name: pool[: int(total * weights.get(name, 0))] for name, pool in pools.items()}
    samples = [sample for pool in pools.values() for sample in pool]
    generator.shuffle(samples)
    return samples


def write_mindrecord(
    samples: Sequence[Sample], path: Path, *, subsets: Sequence[str], places: Sequence[int] | None = None
) -> Path:
    """Write samples to one MindRecord file; `subset` is the index in `subsets`.

    `sample` is the place of each in the data set that it was taken from; without `places` the index in `samples`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = FileWriter(str(path), shard_num=1, overwrite=True)
    writer.add_schema(SCHEMA, "windows of documents")
    rows = [
        {"tokens": s.tokens, "targets": s.targets, "sample": np.int64(i), "subset": np.int32(subsets.index(s.subset))}
        for i, s in zip(range(len(samples)) if places is None else places, samples, strict=True)
    ]
    writer.write_raw_data(rows)
    writer.commit()
    return path


def token_pipeline(
    path: Path,
    *,
    batch_size: int,
    seed: int = 0,
    workers: int = 1,
    rank_id: int = 0,
    world_size: int = 1,
    shuffle: bool = True,
    with_samples: bool = False,
) -> ds.Dataset:
    """Batches (tokens, targets), both int32 (batch, context_length); every rank reads its own shard.

    `with_samples` adds the columns sample and subset of `write_mindrecord`, for `Recorder(samples=...)`.
    """
    ds.config.set_seed(seed)
    dataset = ds.MindDataset(
        str(path),
        columns_list=["tokens", "targets", *(["sample", "subset"] if with_samples else [])],
        shuffle=shuffle,
        num_parallel_workers=workers,
        num_shards=world_size,
        shard_id=rank_id,
    )
    return dataset.batch(batch_size, drop_remainder=True)
