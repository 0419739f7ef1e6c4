"""Token sequences of any length -> batches: long ones in overlapping windows, short ones among their like.

Both are ordinary `mindspore.dataset` pipelines over a source with random access, so they shuffle, shard and know their
size. In graph mode each bucket is a shape of its own and is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import mindspore.dataset as ds
import numpy as np

from workbench.analyses.lengths import window_starts
from workbench.errors import UnknownParameterError
from workbench.probes.language_model import IGNORED_TARGET, PAD

Row = tuple[np.ndarray, np.ndarray, np.int64]  # tokens, targets, number of the sequence


class WindowSource:
    """Rows (tokens, targets, sample) of sequences: one for each window, or one per sequence, cut at the length.

    Args:
        sequences: arrays of tokens, each predicting its successor: n + 1 tokens make n targets.
        length: most tokens of a row.
        overlap: tokens that neighbouring windows share; None cuts what is longer than `length` instead.
        score_overlap: train on the targets of the overlap in both windows; by default only in the first, the second
            has them as context.
    """

    def __init__(
        self, sequences: Sequence[np.ndarray], length: int, *, overlap: int | None = None, score_overlap: bool = False
    ) -> None:
        self.sequences, self.length, self.score_overlap = sequences, length, score_overlap
        self.rows: list[tuple[int, int, int]] = []  # sequence, start, targets that an earlier window has
        for number, sequence in enumerate(sequences):
            targets = len(sequence) - 1
            if targets < 1:
                continue
            starts = [0] if overlap is None else window_starts(targets, length, overlap)
            ends = [0, *(start + length for start in starts)]
            self.rows += [(number, s, max(ends[k] - s, 0)) for k, s in enumerate(starts)]
        if not self.rows:
            raise UnknownParameterError(
                "None of the sequences has two tokens: there is nothing to predict.", fix="check how they were made"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        number, start, seen = self.rows[index]
        piece = np.asarray(self.sequences[number][start : start + self.length + 1], dtype=np.int32)
        tokens, targets = piece[:-1], piece[1:].copy()
        if not self.score_overlap:
            targets[:seen] = IGNORED_TARGET
        return tokens, targets, np.int64(number)


def window_rows(tokens: Sequence[int], length: int, overlap: int) -> list[np.ndarray]:
    """The windows of one sequence, each of up to `length` + 1 tokens: a transform for `convert_to_mindrecord`."""
    sequence = np.asarray(tokens, dtype=np.int32)
    starts = window_starts(max(len(sequence) - 1, 1), length, overlap)
    return [sequence[start : start + length + 1] for start in starts]


def padded_batches(
    source: WindowSource,
    *,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    rank_id: int = 0,
    world_size: int = 1,
    drop_remainder: bool = True,
) -> ds.Dataset:
    """Batches (tokens, targets, sample) in which every row is padded to the source's length: one shape."""
    rows = _rows(source, seed=seed, shuffle=shuffle, rank_id=rank_id, world_size=world_size)
    padding = {"tokens": ([source.length], PAD), "targets": ([source.length], IGNORED_TARGET)}
    return rows.padded_batch(batch_size, drop_remainder=drop_remainder, pad_info=padding)


def bucketed_batches(
    source: WindowSource,
    *,
    boundaries: Sequence[int],
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    rank_id: int = 0,
    world_size: int = 1,
    drop_remainder: bool = True,
) -> ds.Dataset:
    """Batches (tokens, targets, sample) of rows of like length, padded to the upper length of their bucket.

    Args:
        source: the rows.
        boundaries: upper lengths of the buckets below the source's length, which is the last one.
        batch_size: rows of a batch at the source's length; a bucket of half the length has twice as many.
        seed: of the shuffle.
        shuffle: in a new order each epoch.
        rank_id: this rank, of `world_size` that each read their shard.
        world_size: ranks.
        drop_remainder: leave out what does not fill a batch; otherwise each bucket may add a shape.

    Raises:
        UnknownParameterError: the boundaries do not ascend from 1 up.
    """
    edges = [*(b for b in boundaries if b < source.length), source.length]
    if edges[0] < 1 or any(a >= b for a, b in pairwise(edges)):
        raise UnknownParameterError(
            f"{list(boundaries)} are no upper lengths of buckets.", fix="give whole numbers from 1 up, ascending"
        )
    rows = _rows(source, seed=seed, shuffle=shuffle, rank_id=rank_id, world_size=world_size)
    return rows.bucket_batch_by_length(
        ["tokens"],
        [edge + 1 for edge in edges],  # a bucket ends below its boundary, and is padded to one less
        [*(max(1, batch_size * source.length // edge) for edge in edges), 1],
        element_length_function=_length(),
        pad_info={"tokens": ([None], PAD), "targets": ([None], IGNORED_TARGET)},
        pad_to_bucket_boundary=True,
        drop_remainder=drop_remainder,
    )


def _length() -> Callable[[np.ndarray], np.ndarray]:
    return lambda tokens: np.array(tokens.shape[0], dtype=np.int32)


def _rows(source: WindowSource, *, seed: int, shuffle: bool, rank_id: int, world_size: int) -> ds.Dataset:
    ds.config.set_seed(seed)
    return ds.GeneratorDataset(
        source,
        ["tokens", "targets", "sample"],
        shuffle=shuffle,
        num_shards=world_size,
        shard_id=rank_id,
        python_multiprocessing=False,
    )
