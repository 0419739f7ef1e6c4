"""Operations of a profile -> the kernel after which each gradient collective could start.

Where communication is the bottleneck a profile hides it: a collective then starts when the one before it ends. Names of
kernels tell (backward kernels of a layer), else the bytes do, since backward makes gradients at an even pace.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

BACKWARD = r"(?:^|[/:])Gradients?/"  # scope that MindSpore gives to kernels of the backward graph
LAYER = r"(?:^|/)(\d+)-|layers?\.(\d+)(?:\.|/|$)"  # `layers-CellList/7-DecoderLayer`, `layers.7.mlp`
GRADIENT_TYPES = ("allreduce", "reducescatter")


def gradient_collectives(operations: pd.DataFrame) -> pd.Series:
    """Whether each operation reduces gradients: a reduction with bytes to move."""
    is_reduction = operations["op_type"].str.lower().isin(GRADIENT_TYPES) & (operations["role"] == "collective")
    return (is_reduction & (operations["size_bytes"] > 0)).fillna(False).astype(bool)


def gradients_ready(operations: pd.DataFrame) -> pd.DataFrame:
    """After how many kernels of its rank and step each gradient collective could start, and its place in a fused one.

    Args:
        operations: as `profile_operations` returns.

    Returns:
        One row per gradient collective, indexed like `operations`: ready_kernels; bucket (0, 1, ... in the order of the
        layers; collectives of one layer have the same). Collectives of programs without backward scopes are left out.
    """
    parts = []
    for _, program in operations.groupby("program"):
        one = program[(program["rank_id"] == program["rank_id"].iloc[0]) & (program["step"] == program["step"].iloc[0])]
        compute = one[one["role"] == "compute"]
        backward = compute[compute["name"].str.contains(BACKWARD, regex=True, na=False)]
        chosen = program[gradient_collectives(program)]
        if backward.empty or chosen.empty:
            continue
        pieces = int(gradient_collectives(one).sum())
        ends = _block_ends(backward)
        if len(ends) and pieces % len(ends) == 0:
            bucket = np.arange(pieces) * len(ends) // pieces
            ready = ends[bucket] + 1
        else:
            bucket, ready = np.arange(pieces), _by_bytes(compute, backward, one[gradient_collectives(one)])
        number = chosen.groupby(["rank_id", "step"]).cumcount().to_numpy()
        parts.append(pd.DataFrame({"ready_kernels": ready[number], "bucket": bucket[number]}, index=chosen.index))
    return pd.concat(parts) if parts else pd.DataFrame({"ready_kernels": [], "bucket": []}, dtype="int64")


def _block_ends(backward: pd.DataFrame) -> np.ndarray:
    """Ordinal of the last backward kernel of each layer, in the order in which layers end."""
    found = backward["name"].str.extract(LAYER)
    layer = found[0].fillna(found[1])
    return np.sort(backward["ordinal"].groupby(layer).max().to_numpy())


def _by_bytes(compute: pd.DataFrame, backward: pd.DataFrame, pieces: pd.DataFrame) -> np.ndarray:
    """Kernels after which the bytes up to each collective are there, at an even pace over backward."""
    work = compute["duration_us"].cumsum().to_numpy()
    first, last = int(backward["ordinal"].iloc[0]), int(backward["ordinal"].iloc[-1])
    begin = work[first - 1] if first else 0.0
    share = (pieces["size_bytes"].cumsum() / pieces["size_bytes"].sum()).to_numpy()
    due = begin + share * (work[last] - begin)
    return np.minimum(np.searchsorted(work, due - 1e-6) + 1, last + 1)
