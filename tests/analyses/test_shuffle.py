"""Shuffle quality against brute force and against buffers that are known."""

import random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses.shuffle import close_repeats, shuffle_path, shuffle_summary, subset_clustering, with_epochs
from workbench.tables import SAMPLE_IDS


def table(ids, *, batch=4, subsets=None, rank=0, epoch=1):
    place = np.arange(len(ids))
    return SAMPLE_IDS.check(
        pd.DataFrame(
            {"rank_id": rank, "step": place // batch + 1, "position": place % batch, "sample": ids, "epoch": epoch,
             "subset": subsets}
        )
    )  # fmt: skip


def buffered(count, buffer, seed=0):
    """A buffered shuffle as tf.data, WebDataset and MindSpore do it: hand out a random one, refill from the source."""
    pick, held, out = random.Random(seed), [], []
    for sample in range(count):
        held.append(sample)
        if len(held) == buffer:
            out.append(held.pop(pick.randrange(len(held))))
    pick.shuffle(held)
    return out + held


@pytest.mark.parametrize("buffer", [2, 10, 100, 1000])
def test_the_buffer_is_estimated(buffer):
    row = shuffle_summary(table(buffered(10_000, buffer))).iloc[0]
    assert row["buffer_estimate"] == pytest.approx(buffer, rel=0.02, abs=1)


def test_no_shuffle_and_complete_shuffle():
    none = shuffle_summary(table(list(range(5000)))).iloc[0]
    assert none[["buffer_estimate", "travel_share"]].tolist() == [1, 0]
    assert none["batch_spread_share"] == pytest.approx(3 / (3 / 5 * 5000))  # range 3 in each batch of 4
    ids = list(range(0, 50_000, 10))
    random.Random(0).shuffle(ids)
    whole = shuffle_summary(table(ids)).iloc[0]
    assert whole["buffer_share"] > 0.9
    assert whole["travel_share"] == pytest.approx(1, abs=0.05)
    assert whole["batch_spread_share"] == pytest.approx(1, abs=0.05)


def test_shards_and_epochs_are_judged_on_their_own():
    both = pd.concat([table(list(range(r, 4000, 2)), rank=r) for r in (0, 1)])
    assert shuffle_summary(both)["buffer_estimate"].tolist() == [1, 1]
    twice = table([0, 1, 2, 3, 0, 1, 2, 3], epoch=None)
    assert with_epochs(twice)["epoch"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert shuffle_summary(table([5])).empty
    assert shuffle_summary(table([])).empty


def test_clustering_by_hand():
    mixed = subset_clustering(table(range(8), subsets=list("abababab"))).iloc[0]
    # a batch of 2 a and 2 b: 4 of 12 ordered pairs are alike; of all: 2 x 4 x 3 of 8 x 7
    assert mixed[["same_share", "expected_share"]].tolist() == pytest.approx([4 / 12, 24 / 56])
    sorted_ = subset_clustering(table(range(8), subsets=list("aaaabbbb"))).iloc[0]
    assert sorted_["excess_share"] == 1
    assert subset_clustering(table(range(4), subsets=list("aaaa"))).empty
    assert subset_clustering(table(range(4))).empty


def test_a_mix_that_changes_is_not_clustering():
    """One subset leaves after two thirds: until then batches of four hold one `b` and three `a` each."""
    subsets = ["a", "a", "a", "b"] * 200 + ["a"] * 400
    row = subset_clustering(table(list(range(1200)), subsets=subsets)).iloc[0]
    assert row["same_share"] == pytest.approx(0.5)  # 3 of 6 pairs; over all steps it would be 2 / 3
    assert row["excess_share"] < 0


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.floats(0.01, 1))
@settings(max_examples=60)
def test_repeats_equal_counting_pairs(ids, window_share):
    row = close_repeats(table(ids, batch=5), window_share=window_share).iloc[0]
    window = max(int(window_share * len(set(ids))), 1)
    close = sum(ids[i] in ids[max(0, i - window) : i] for i in range(len(ids)))
    same = sum(ids[i] in [x for j, x in enumerate(ids) if j != i and j // 5 == i // 5] for i in range(len(ids)))
    assert (row["window"], row["close_share"]) == (window, pytest.approx(close / len(ids)))
    assert row["same_step_share"] == pytest.approx(same / len(ids))


def test_ranks_that_read_the_same():
    both = pd.concat([table(list(range(40)), rank=r) for r in (0, 1)])
    assert close_repeats(both)["same_step_share"].tolist() == [1]
    assert close_repeats(both.iloc[:0]).empty


def test_the_path_is_thinned():
    path = shuffle_path(table(list(range(5000))), most=100)
    assert len(path) == 100
    assert (path["place"] == path["sample"]).all()
    assert (path["place"].iloc[0], path["place"].iloc[-1]) == (0, 4999)
