"""Texts -> exact and near duplicates.

Exact: equal without case and white space. Near: the sets of 8-byte windows of the normal form have an estimated Jaccard
similarity of 0.8 or more (MinHash of 64 permutations, standard error 0.05; locality-sensitive hashing proposes pairs).
Source: Broder, On the resemblance and containment of documents (1997); the threshold is that of Lee et al.,
Deduplicating Training Data Makes Language Models Better (2022).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from datasketch import MinHash, MinHashLSH

SIMILAR = 0.8
PERMUTATIONS = 64
PROPOSE_MORE = (0.1, 0.9)  # weights of false and missed proposals: a false one only costs a comparison
WINDOW_BYTES = 8  # about two words; three characters of Chinese
MOST_WINDOWS = 20_000  # of a text: beyond, those are kept whose hash is small, the same ones in every text
SHORTEST_BYTES = 40  # shorter texts have too few windows to be compared

Signature = npt.NDArray[np.uint32]
_SCHEME: Literal["affine32"] = "affine32"
_PERMUTED = MinHash(num_perm=PERMUTATIONS, seed=1, scheme=_SCHEME).permutations
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def normal_form(text: str) -> str:
    """The text in lower case with single blanks: what duplicates are compared by."""
    return " ".join(text.lower().split())


def digest(text: str) -> str:
    """16 hexadecimal digits, equal for texts of the same normal form."""
    return hashlib.blake2b(normal_form(text).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def signature(text: str) -> Signature | None:
    """The MinHash of a text, 64 numbers; None where the text is too short to be compared."""
    data = normal_form(text).encode("utf-8", "surrogatepass")
    if len(data) < SHORTEST_BYTES:
        return None
    hashes = _window_hashes(np.frombuffer(data, np.uint8))
    sketch = MinHash(num_perm=PERMUTATIONS, permutations=_PERMUTED, hashfunc=int, scheme=_SCHEME)
    sketch.update_batch(hashes.tolist())
    return sketch.hashvalues


def near_groups(signatures: Sequence[Signature | None]) -> pd.Series:
    """Groups of near duplicates.

    Args:
        signatures: of the texts, in order.

    Returns:
        Int64, one per text: position of the first text of its group; missing where it is alone. Groups are closed:
        a text that is like two others joins them, also if these are less alike.
    """
    index = MinHashLSH(threshold=SIMILAR, num_perm=PERMUTATIONS, weights=PROPOSE_MORE)
    parents = np.arange(len(signatures))
    for position, values in enumerate(signatures):
        if values is None:
            continue
        sketch = MinHash(num_perm=PERMUTATIONS, permutations=_PERMUTED, hashvalues=values, hashfunc=int, scheme=_SCHEME)
        for other in index.query(sketch):
            if similarity(values, signatures[other]) >= SIMILAR:
                _join(parents, position, other)
        index.insert(position, sketch)
    roots = np.array([_root(parents, p) for p in range(len(signatures))], dtype=np.int64)
    sizes = np.bincount(roots, minlength=len(signatures)) if len(roots) else roots
    grouped = pd.Series(roots, dtype="Int64")
    return grouped.mask(pd.Series(sizes[roots] < 2, dtype=bool))


def similarity(one: Signature, other: Signature | None) -> float:
    """Estimated Jaccard similarity of two signatures, in [0, 1]."""
    return 0.0 if other is None else float((one == other).mean())


def repeated_samples(samples: pd.DataFrame) -> pd.DataFrame:
    """Which samples repeat an earlier one.

    Args:
        samples: table `data_samples`.

    Returns:
        Two boolean columns, in the order and with the index of `samples`: `exact`, `near` (exact ones included). The
        first of each group repeats nothing; empty samples and those with a problem count for neither.
    """
    usable = samples["problem"].isna() & ~samples["is_empty"].fillna(True).astype(bool)
    exact = (
        usable
        & samples["digest"].notna()
        & samples[usable].duplicated(["dataset", "digest"]).reindex(samples.index, fill_value=False)
    )
    near = samples["near_group"].notna() & (samples["near_group"] != samples["sample"])
    return pd.DataFrame({"exact": exact, "near": exact | (usable & near.fillna(False).astype(bool))})


def _window_hashes(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    windows = np.lib.stride_tricks.sliding_window_view(data, WINDOW_BYTES)
    numbers = np.ascontiguousarray(windows).view(np.uint64).ravel()
    mixed = numbers * _MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    hashes = np.unique((mixed * _MULTIPLIER) >> np.uint64(32))
    every = max(1, len(hashes) // MOST_WINDOWS)  # by powers of two, so that texts of like length keep the same ones
    bits = int(every).bit_length() - 1
    return hashes[hashes < (1 << (32 - bits))] if bits else hashes


def _root(parents: npt.NDArray[np.int_], position: int) -> int:
    while parents[position] != position:
        parents[position] = parents[parents[position]]
        position = int(parents[position])
    return position


def _join(parents: npt.NDArray[np.int_], one: int, other: int) -> None:
    first, second = sorted((_root(parents, one), _root(parents, other)))
    parents[second] = first
