import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_rows import lifetimes
from workbench.analyses.allocator import replay
from workbench.analyses.blocks import allocated_curve, blocks_of, main_pools
from workbench.analyses.lifetimes import (
    BETWEEN,
    holes,
    long_lives,
    operator_stem,
    peak_parts,
    recorded_places,
    unfreed_growth,
)
from workbench.tables import TENSOR_LIFETIMES

BLOCKS = st.lists(
    st.tuples(st.sampled_from(["m/0-L/Add-op1", "m/1-L/Add-op2", "Mul"]), st.integers(1, 5000), st.integers(0, 60),
              st.one_of(st.none(), st.integers(0, 30))),
    min_size=1, max_size=40,
)  # fmt: skip


def test_the_peak_is_the_sum_of_its_parts():
    rows = lifetimes(
        ("m/0-L/Add-op1", 300, 10, 50), ("m/1-L/Add-op7", 200, 20, 45), ("Mul", 100, 30, 40), ("Mul", 900, 60, None),
        total_before=1000,
    )  # fmt: skip
    # alive at 30: 1000 before + 300 + 200 + 100 = 1600; at 60: 1000 + 900 = 1900, the peak
    parts = peak_parts(rows)
    assert parts["size_bytes"].tolist() == [1000, 900]
    assert parts["part"].tolist() == ["allocated before the capture", "Mul"]
    assert parts["share"].tolist() == pytest.approx([1000 / 1900, 900 / 1900])
    early = peak_parts(rows.iloc[:3])
    assert dict(zip(early["part"], early["size_bytes"], strict=True)) == {
        "allocated before the capture": 1000, "m/#-L/Add-op#": 500, "Mul": 100,
    }  # fmt: skip
    assert early["peak_at"].unique().tolist() == [30]


def test_memory_that_came_later_without_a_row_is_named():
    rows = lifetimes(("a", 100, 10, None), ("b", 100, 20, None))
    parts = peak_parts(rows.assign(allocated_total_bytes=[1100.0, 1700.0]))  # 1000, then 1500 without rows
    assert dict(zip(parts["part"], parts["size_bytes"], strict=True))[BETWEEN] == 500
    assert parts["size_bytes"].sum() == parts["peak_bytes"].iloc[0] == 1700


@settings(max_examples=100, deadline=None)
@given(BLOCKS, st.randoms(use_true_random=False))
def test_parts_sum_to_the_highest_point_whatever_the_row_order(blocks, random):
    rows = lifetimes(*((n, size, at, None if life is None else at + life) for n, size, at, life in blocks))
    parts = peak_parts(rows)
    assert parts["size_bytes"].sum() == allocated_curve(blocks_of(rows))["allocated_bytes"].max()
    assert parts["share"].sum() == pytest.approx(1)
    again = peak_parts(rows.sample(frac=1, random_state=random.randrange(2**31)))
    pd.testing.assert_frame_equal(parts, again)
    other = peak_parts(rows.assign(rank_id=7))
    pd.testing.assert_frame_equal(parts.drop(columns="rank_id"), other.drop(columns="rank_id"))


def test_the_graph_engines_pool_is_told_from_the_frameworks():
    ours = lifetimes(("a", 100, 10, None), total_before=1000).assign(stream_id="1")
    engine = lifetimes(("cann::b", 50, 12, 14), total_before=0)
    ((rank_id, window, rows),) = main_pools(pd.concat([ours, engine], ignore_index=True))
    assert (rank_id, window, rows["name"].tolist()) == (0, 0, ["a"])
    assert main_pools(TENSOR_LIFETIMES.empty()) == []
    assert peak_parts(TENSOR_LIFETIMES.empty()).empty


def test_holes_and_the_blocks_that_pin_them():
    rows = lifetimes(("a", 512, 1, 5), ("b", 512, 2, None), ("c", 1024, 3, 5), ("d", 512, 4, 9))
    placed = replay(rows, grow_bytes=4096).blocks  # addresses 0, 512, 1024, 2048
    found = holes(placed, 5)  # b ends at 1024, d begins at 2048; a's place lies before the first block
    assert found[["start", "size_bytes", "pinned_by", "pin_bytes"]].values.tolist() == [[1024, 1024, "b", 512.0]]
    recorded = rows.assign(address=["0x12c041000000", "0x12c041000200", "0x12c041000400", "0x12c041000800"])
    assert holes(recorded_places(recorded), 5)[["start", "size_bytes"]].values.tolist() == [[1024, 1024]]
    assert recorded_places(rows).empty
    assert holes(placed, 5, largest_bytes=1000).empty


def test_a_block_that_outlives_its_peers():
    usual = [(f"m/{i}-L/Add-op{i}", 100, 10 * i, 10 * i + 20 + i % 2) for i in range(8)]
    rows = lifetimes(*usual, ("m/9-L/Add-op9", 100, 90, 290), ("Mul", 100, 0, 500))
    found = long_lives(rows)
    assert found["name"].tolist() == ["m/9-L/Add-op9"]  # Mul has no peers
    assert found[["life", "usual_life", "peers"]].values.tolist() == [[200, 21, 9]]


def test_what_is_never_freed_step_after_step():
    starts = pd.DataFrame({"rank_id": 0, "window": 0, "step": [5, 6, 7, 8], "start_ns": [100, 200, 300, 400]})
    rows = lifetimes(
        *((f"Copy-step{i}", 64, at, None) for i, at in enumerate((150, 250, 350, 450))), ("w", 9, 10, None)
    )
    found = unfreed_growth(rows, starts)  # the block of the last step may still be freed; w came before the steps
    assert found[["part", "blocks", "size_bytes", "steps", "steps_seen", "bytes_per_step"]].values.tolist() == [
        ["Copy-step#", 3, 192.0, 3, 3, 64.0]
    ]
    assert unfreed_growth(rows.assign(clock="task"), starts).empty
    assert operator_stem(pd.Series(["a-1/b23"])).tolist() == ["a-#/b#"]
