import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.memory_rows import lifetimes
from workbench.analyses.allocator import BestFitPool, replay, replay_blocks
from workbench.analyses.blocks import blocks_from_curve, main_pools
from workbench.errors import UnknownParameterError

BLOCKS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 60), st.one_of(st.none(), st.integers(0, 30))),
    min_size=1, max_size=60,
)  # fmt: skip


def frame(blocks) -> pd.DataFrame:
    return lifetimes(*(("a", size, at, None if life is None else at + life) for size, at, life in blocks))


def test_best_fit_splits_merges_and_grows_by_whole_blocks():
    pool = BestFitPool(align_bytes=10, grow_bytes=100)
    a, b, c = (pool.allocate(size) for size in (25, 40, 30))  # rounded up: 30 + 40 + 30 fill the first 100
    assert (a, b, c, pool.reserved_bytes) == (0, 30, 70, 100)
    pool.free(b)
    assert pool.allocate(20) == 30  # the hole of 40, split: 20 are left
    assert pool.allocate(30) == 110  # 20 do not fit 30: the pool grows, after a gap
    assert pool.reserved_bytes == 200
    pool.free(a)
    pool.free(30)
    assert pool.allocate(70) == 0  # 0..30, 30..50 and 50..70 merged
    assert pool.allocate(130) == 220  # more than one growth block: two of them
    assert pool.reserved_bytes == 400


def test_the_smallest_piece_that_fits_is_taken():
    pool = BestFitPool(align_bytes=1, grow_bytes=100)
    starts = [pool.allocate(size) for size in (30, 5, 20, 5, 40)]
    for place in (0, 2):
        pool.free(starts[place])
    assert pool.allocate(15) == 35  # of 30 and 20 the smaller
    with pytest.raises(UnknownParameterError, match="cannot grow"):
        BestFitPool(align_bytes=512, grow_bytes=100)


def test_replay_counts_what_the_record_has_no_row_for():
    rows = lifetimes(("a", 512, 10, 20), ("b", 1024, 15, None), ("c", 100, 30, None), total_before=2048)
    done = replay(rows, grow_bytes=1024)
    assert done.peak_allocated_bytes == 2048 + 512 + 1024
    assert done.peak_at == 15
    # 2048 of before: two growth blocks; a: the third, split; b does not fit its other half: the fourth
    assert done.peak_reserved_bytes == 4 * 1024
    assert done.blocks["name"].tolist() == ["allocated before the capture", "a", "b", "c"]
    assert done.curve["allocated_bytes"].tolist()[-1] == 2048 + 1024 + 512  # c rounded up


def test_replay_of_several_ranks_or_of_rows_without_times():
    rows = pd.concat([lifetimes(("a", 512, 10, 20)), lifetimes(("a", 512, 10, 20), rank_id=1)])
    with pytest.raises(UnknownParameterError, match="rows are of 2"):
        replay(rows)
    untimed = replay(lifetimes(("a", 512, None, None), ("b", 512, 1, None)))
    assert (untimed.untimed, untimed.peak_allocated_bytes) == (1, 512)
    assert replay(lifetimes()).peak_reserved_bytes == 0


@settings(max_examples=150, deadline=None)
@given(BLOCKS, st.randoms(use_true_random=False))
def test_no_two_live_blocks_overlap_and_the_pool_holds_them_all(blocks, random):
    rows = frame(blocks)
    curve, placed = replay_blocks(rows, align_bytes=16, grow_bytes=4096)
    assert (curve["reserved_bytes"] >= curve["allocated_bytes"]).all()
    assert curve["at"].is_monotonic_increasing
    begin = placed["allocated_at"].to_numpy(np.int64)
    end = placed["freed_at"].fillna(10**6).to_numpy(np.int64)
    low = placed["address"].to_numpy()
    high = low + placed["size_bytes"].to_numpy(np.int64)
    for i in range(len(placed)):  # oracle: compare every pair
        together = (begin[i] < end) & (begin < end[i])
        together[i] = False
        assert not (together & (low[i] < high) & (low < high[i])).any()
    shuffled = rows.sample(frac=1, random_state=random.randrange(2**31))
    again, _ = replay_blocks(shuffled, align_bytes=16, grow_bytes=4096)
    pd.testing.assert_frame_equal(curve, again)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_blocks_of_a_curve_give_the_curve_again(levels):
    given_curve = pd.DataFrame({"at": range(len(levels)), "allocated_bytes": [512.0 * level for level in levels]})
    blocks = blocks_from_curve(given_curve)
    if blocks.empty:
        return
    curve, _ = replay_blocks(blocks)
    last = curve.groupby("at")["allocated_bytes"].last().reindex(given_curve["at"]).ffill().fillna(0)
    assert last.tolist() == given_curve["allocated_bytes"].tolist()


def test_the_recorded_peak_of_a_real_operator_record(data_samples):
    run = wb.open_run(data_samples / "level1_two_of_eight", quiet=True)
    (_, _, rows), *_ = main_pools(run.table("tensor_lifetimes"))
    pool = run.table("memory_timeline").query("component == 'PTA'")
    assert replay(rows).peak_allocated_bytes == pytest.approx(pool["allocated_bytes"].max(), rel=0.01)


def test_the_recorded_peak_and_pool_of_a_real_cpu_record(data_samples):
    record = wb.open_run(data_samples / "cpu_profile", quiet=True).table("memory_timeline")
    curve, _ = replay_blocks(blocks_from_curve(record.rename(columns={"time_ns": "at"})))
    assert curve["allocated_bytes"].max() == pytest.approx(record["allocated_bytes"].max(), rel=0.01)
    assert curve["reserved_bytes"].max() == record["reserved_bytes"].max()  # one growth block of 1 GiB
