"""Table `sample_ids` -> how well the samples were shuffled: how far they travel, what stands together, what repeats.

A buffered shuffle of `buffer` samples can hand out a sample at most `buffer - 1` places before its turn in the data
set, and it does so often: the largest such advance is a sharp estimate of the buffer. A complete shuffle of n samples
has an advance of nearly n, no shuffle one of 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

ADVANCE_QUANTILE = 0.999  # a few samples out of place (a second source, a resumed run) must not look like a buffer
WINDOW_SHARE = 0.1  # of the distinct samples: a repeat within it is close
FULL_TRAVEL = 1 / 3  # mean |place - turn| of a complete shuffle, as a share of n
PARTS = 3  # of a training, to tell a mix that changes from batches that are not mixed


def shuffle_summary(sample_ids: pd.DataFrame) -> pd.DataFrame:
    """How far the samples of an epoch travel between their place in the data set and their place in training.

    Args:
        sample_ids: table `sample_ids`, of any ranks.

    Returns:
        One row per rank_id and epoch: samples (distinct), buffer_estimate (samples; `samples` for a complete shuffle, 1
        for none), buffer_share (of `samples`), travel_share (mean distance travelled over that of a complete shuffle),
        batch_spread_share (range of the data set that a batch draws from over that of random draws).
    """
    rows = []
    for (rank, epoch), part in with_epochs(sample_ids).groupby(["rank_id", "epoch"]):
        first = part.drop_duplicates("sample")
        turns = first["sample"].rank(method="first").to_numpy("float64") - 1
        count = len(turns)
        if count < 2:
            continue
        advance = turns - np.arange(count)
        buffer = min(float(np.quantile(advance, ADVANCE_QUANTILE, method="higher")) + 1, count)
        rows.append(
            {
                "rank_id": rank,
                "epoch": epoch,
                "samples": count,
                "buffer_estimate": max(buffer, 1.0),
                "buffer_share": max(buffer, 1.0) / count,
                "travel_share": float(np.abs(advance).mean()) / (FULL_TRAVEL * count),
                "batch_spread_share": _batch_spread(first["step"].to_numpy(), turns),
            }
        )
    columns = ["rank_id", "epoch", "samples", "buffer_estimate", "buffer_share", "travel_share", "batch_spread_share"]
    return pd.DataFrame(rows, columns=columns)


def shuffle_path(sample_ids: pd.DataFrame, *, most: int = 2000) -> pd.DataFrame:
    """Where samples stand in the data set over their place in training, for a picture.

    Returns:
        rank_id, place (in the rank's sequence, from 0), sample; at most `most` rows, evenly chosen. A complete shuffle
        fills the plane, a small buffer draws a line.
    """
    ordered = sample_ids.dropna(subset=["sample"]).sort_values(["rank_id", "step", "position"])
    placed = ordered.assign(place=ordered.groupby("rank_id").cumcount())
    chosen = np.unique(np.linspace(0, max(len(placed) - 1, 0), min(most, len(placed))).astype(int))
    return placed.iloc[chosen][["rank_id", "place", "sample"]].reset_index(drop=True)


def subset_clustering(sample_ids: pd.DataFrame) -> pd.DataFrame:
    """Whether batches hold one subset where they should hold a mixture.

    A mix that changes during the training is not a matter of shuffling: the training is judged in `PARTS` parts, and
    the best mixed one counts.

    Returns:
        One row per rank_id: batches, same_share (pairs within a batch that share their subset, in the part where there
        are fewest), expected_share (such pairs in all), excess_share ((same - expected) / (1 - expected): 0 for mixed
        batches, 1 for batches of one subset each). Ranks without subsets, or with one only, are left out.
    """
    rows = []
    for rank, part in sample_ids.dropna(subset=["subset"]).groupby("rank_id"):
        counts = pd.crosstab(part["step"], part["subset"]).to_numpy("float64")
        sizes = counts.sum(axis=1)
        pairs = float((sizes * (sizes - 1)).sum())
        if counts.shape[1] < 2 or pairs == 0:
            continue
        same = min(_same_share(piece) for piece in np.array_split(counts, min(PARTS, len(counts))))
        totals = counts.sum(axis=0)
        expected = float((totals * (totals - 1)).sum() / (totals.sum() * (totals.sum() - 1)))
        rows.append([rank, len(counts), same, expected, (same - expected) / (1 - expected)])
    return pd.DataFrame(rows, columns=["rank_id", "batches", "same_share", "expected_share", "excess_share"])


def _same_share(counts: npt.NDArray[np.float64]) -> float:
    """Pairs of one subset among the pairs within batches; 1 where no batch has a pair."""
    sizes = counts.sum(axis=1)
    pairs = float((sizes * (sizes - 1)).sum())
    return float((counts * (counts - 1)).sum()) / pairs if pairs else 1.0


def close_repeats(sample_ids: pd.DataFrame, *, window_share: float = WINDOW_SHARE) -> pd.DataFrame:
    """Samples that come again soon, over all ranks in the order of the steps.

    Args:
        sample_ids: table `sample_ids`.
        window_share: a repeat counts as close if fewer draws lie between than this share of the distinct samples.

    Returns:
        One row: draws, distinct, window (draws), close_share (draws that repeat one within the window), same_step_share
        (draws whose sample another rank, or the same batch, uses in the same step). Empty in, empty out.
    """
    drawn = sample_ids.dropna(subset=["sample"]).sort_values(["step", "position", "rank_id"])
    if drawn.empty:
        return pd.DataFrame(columns=["draws", "distinct", "window", "close_share", "same_step_share"])
    distinct = drawn["sample"].nunique()
    window = max(int(window_share * distinct), 1)
    place = pd.Series(np.arange(len(drawn)), index=drawn.index)
    gaps = place.groupby(drawn["sample"]).diff()
    again = drawn.duplicated(["step", "sample"], keep=False)
    row = [len(drawn), distinct, window, float((gaps <= window).mean()), float(again.mean())]
    return pd.DataFrame([row], columns=["draws", "distinct", "window", "close_share", "same_step_share"])


def with_epochs(sample_ids: pd.DataFrame) -> pd.DataFrame:
    """The rows with a sample, in the order of training, with an epoch each.

    Where no epoch was recorded, the k-th time that a rank uses a sample counts as epoch k.
    """
    ordered = sample_ids.dropna(subset=["sample"]).sort_values(["rank_id", "step", "position"])
    times = ordered.groupby(["rank_id", "sample"]).cumcount() + 1
    return ordered.assign(epoch=ordered["epoch"].fillna(times).astype("int64"))


def _batch_spread(steps: npt.NDArray[np.int64], turns: npt.NDArray[np.float64]) -> float:
    """Mean range of turns within a batch of k, over (k - 1) / (k + 1) of all, which k random draws have."""
    batches = pd.Series(turns).groupby(steps)
    sizes, ranges = batches.size(), batches.max() - batches.min()
    whole = sizes >= 2
    if not whole.any():
        return float("nan")
    expected = (sizes[whole] - 1) / (sizes[whole] + 1) * len(turns)
    return float((ranges[whole] / expected).mean())
