"""Lengths of samples -> their distribution, what the training length cuts off, and what ways to keep it would cost.

A sample of n tokens at training length L keeps min(n, L) tokens when it is truncated; in overlapping windows it keeps
all of them, those in the overlap twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import UnknownParameterError

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
ALL = "(all)"
BINS = 40


def usable_samples(samples: pd.DataFrame) -> pd.DataFrame:
    """The rows of table `data_samples` that training can use: no problem, not empty."""
    return samples[samples["problem"].isna() & ~samples["is_empty"].fillna(True).astype(bool)]


def length_unit(samples: pd.DataFrame) -> str:
    """`tokens` where they were counted, else `characters`."""
    return "tokens" if samples["tokens"].notna().any() else "characters"


def length_summary(samples: pd.DataFrame) -> pd.DataFrame:
    """Quantiles of the sample length per subset, and over all.

    Args:
        samples: table `data_samples`.

    Returns:
        Per subset and for `(all)`: unit (tokens or characters), samples, total, mean, min, q05 ... q99, max. Samples
        that are empty or cannot be used are left out.
    """
    unit = length_unit(samples)
    used = usable_samples(samples).dropna(subset=[unit])
    rows = []
    for name, lengths in [(ALL, used[unit]), *used.groupby("subset", dropna=False)[unit]]:
        row: dict[str, object] = {"subset": name, "unit": unit, "samples": len(lengths), "total": lengths.sum()}
        row |= {"mean": lengths.mean(), "min": lengths.min()}
        row |= {f"q{round(q * 100):02d}": lengths.quantile(q) for q in QUANTILES} | {"max": lengths.max()}
        rows.append(row)
    return pd.DataFrame(rows)


def truncation(samples: pd.DataFrame, training_length_tokens: float | None = None) -> pd.DataFrame:
    """What the training length cuts off, per subset and over all.

    Args:
        samples: table `data_samples`.
        training_length_tokens: by default what the table says; empty out where it says nothing.

    Returns:
        Per subset and for `(all)`: samples, long_samples, long_share (of the samples), tokens, lost_tokens, lost_share
        (of the tokens), longest_tokens.
    """
    columns = [
        "subset",
        "samples",
        "long_samples",
        "long_share",
        "tokens",
        "lost_tokens",
        "lost_share",
        "longest_tokens",
    ]
    used = usable_samples(samples).dropna(subset=["tokens"])
    limit = used["training_length_tokens"] if training_length_tokens is None else training_length_tokens
    used = used.assign(limit=limit).dropna(subset=["limit"])
    used = used.assign(long=used["tokens"] > used["limit"], lost=(used["tokens"] - used["limit"]).clip(lower=0))
    rows = []
    for name, part in [(ALL, used), *used.groupby("subset", dropna=False)] if len(used) else []:
        tokens, lost = part["tokens"].sum(), part["lost"].sum()
        rows.append(
            [name, len(part), int(part["long"].sum()), part["long"].mean(), tokens, lost, lost / tokens,
             part["tokens"].max()]
        )  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def length_histogram(samples: pd.DataFrame, *, bins: int = BINS) -> pd.DataFrame:
    """Samples per length on a logarithmic scale, per subset.

    Returns:
        unit, subset, low, high (bounds of the bin, low included), samples. Empty bins are left out.
    """
    unit = length_unit(samples)
    used = usable_samples(samples).dropna(subset=[unit])
    lengths = used[unit].to_numpy("float64")
    if not len(lengths):
        return pd.DataFrame(columns=["unit", "subset", "low", "high", "samples"])
    edges = np.unique(np.floor(np.geomspace(1, max(lengths.max(), 1) + 1, bins + 1)))
    place = np.searchsorted(edges, np.maximum(lengths, 1), side="right") - 1
    counted = pd.DataFrame({"subset": used["subset"].to_numpy(), "bin": place})
    counts = counted.groupby(["subset", "bin"], dropna=False).size().rename("samples").reset_index()
    low, high = edges[counts["bin"]], edges[np.minimum(counts["bin"] + 1, len(edges) - 1)]
    return counts.assign(unit=unit, low=low, high=high)[["unit", "subset", "low", "high", "samples"]]


def window_starts(length: int, window: int, overlap: int) -> list[int]:
    """Where the windows of a sample begin: each `window - overlap` after the last, the last one ending at the end.

    Raises:
        UnknownParameterError: the overlap is not smaller than the window, or negative.
    """
    if not 0 <= overlap < window:
        raise UnknownParameterError(
            f"An overlap of {overlap} does not fit into windows of {window}.", fix="choose 0 <= overlap < window"
        )
    if length <= window:
        return [0]
    stride = window - overlap
    return [*range(0, length - window, stride), length - window]


def length_policies(
    lengths: Sequence[int] | npt.NDArray[np.int64],
    *,
    training_length: int,
    overlap: int,
    boundaries: Sequence[int],
    batch_size: int,
) -> pd.DataFrame:
    """What four ways to batch samples keep and waste, from their lengths alone.

    Args:
        lengths: tokens per sample.
        training_length: tokens of a row of a batch.
        overlap: tokens that neighbouring windows share.
        boundaries: upper lengths of the buckets below the training length.
        batch_size: rows per batch at the training length; a bucket's batch holds about as many tokens.

    Returns:
        Per policy (truncate, windows, truncate + buckets, windows + buckets): rows, tokens, kept_share (of the samples'
        tokens, each counted once), padded_share (of the positions that are computed), positions (computed in all).
    """
    whole = np.asarray(lengths, dtype=np.int64)
    whole = whole[whole > 0]
    cut = np.minimum(whole, training_length)
    starts = [window_starts(int(n), training_length, overlap) for n in whole]
    windows = np.array([min(int(n) - s, training_length) for n, at in zip(whole, starts, strict=True) for s in at])
    rows = []
    for name, pieces, kept in (("truncate", cut, cut.sum()), ("windows", windows, whole.sum())):
        for bucketed in (False, True):
            edges = [*sorted(b for b in boundaries if b < training_length), training_length]
            padded_to = np.array(edges)[np.searchsorted(edges, pieces)] if bucketed and len(pieces) else training_length
            positions = float(np.sum(np.broadcast_to(padded_to, pieces.shape)))
            rows.append(
                {
                    "policy": name + (" + buckets" if bucketed else ""),
                    "rows": len(pieces),
                    "tokens": int(kept),
                    "kept_share": kept / whole.sum() if whole.sum() else float("nan"),
                    "padded_share": 1 - pieces.sum() / positions if positions else float("nan"),
                    "positions": positions,
                }
            )
    return pd.DataFrame(rows)
