import pandas as pd
import pytest

from tests.analyses.device_tables import BASE_NS, kernels
from workbench.analyses.kernels import (
    busy_intervals,
    compare_kernels,
    device_ratios,
    host_launches,
    kernel_totals,
    operator_ratios,
    scopes,
    short_kernels,
)
from workbench.tables import KERNELS

# Four ranks, two operators; rank 2's Softmax takes 30 instead of 10 us, rank 3's everything 1.5 times as long.
RANKS = [
    (rank, step, 100 * step + at, length * factor, op)
    for rank, factor in ((0, 1), (1, 1), (2, 1), (3, 1.5))
    for step in (1, 2)
    for at, op, length in ((0, "MatMul", 40), (50, "Softmax", 30 if rank == 2 else 10))
]


def test_ratio_compares_the_same_operator_over_ranks():
    ratios = operator_ratios(kernels(RANKS)).set_index(["rank_id", "op_type"])
    assert ratios.loc[(2, "Softmax"), "ratio"] == 3.0
    assert ratios.loc[(2, "Softmax"), "excess_us_per_step"] == 30 - 10
    assert ratios.loc[(3, "MatMul"), "ratio"] == 1.5
    assert ratios.loc[(0, "MatMul"), "ratio"] == 1.0
    assert (ratios["ratio_error"] == 0).all()


def on_cpu(short, *, steps=3):
    """Per step: `short` operators of 2 us, and one of 100 us, with 8 us between them."""
    rows, at = [], 0
    for _ in range(steps):
        for name, us in [*((f"Default/chain/Tanh-op{i}", 2) for i in range(short)), ("Default/MatMul-op0", 100)]:
            rows.append({"name": name, "op_type": name.split("/")[-1].split("-")[0], "start_ns": BASE_NS + at * 1000,
                         "duration_us": float(us)})  # fmt: skip
            at += us + 8
    return KERNELS.check(pd.DataFrame(rows).assign(rank_id=0, accelerator_core="CPU", is_communication=False))


def test_what_starting_operators_costs_on_the_host():
    (row,) = host_launches(on_cpu(400)).to_dict("records")
    assert (row["steps"], row["per_step"], row["short_per_step"], row["op_type"]) == (3, 401, 400, "Tanh")
    assert row["gap_us"] == pytest.approx(8)
    assert row["cost_us"] == pytest.approx(400 * (2 + 8))
    assert row["step_us"] == pytest.approx(400 * 10 + 108)
    assert host_launches(kernels(RANKS)).empty  # a device
    assert host_launches(KERNELS.empty()).empty


def test_a_slow_device_is_told_from_a_slow_operator():
    devices = device_ratios(operator_ratios(kernels(RANKS))).set_index("rank_id")
    assert devices["ratio"].to_dict() == {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.5}
    assert devices.loc[3, "slow_share"] == 1.0
    assert devices.loc[3, "excess_us_per_step"] == 60 + 15 - 40 - 10


def test_one_operator_that_fills_the_time_is_no_slow_device():
    rows = [
        (rank, 1, at, length * (2 if rank == 1 and op == "MatMul" else 1), op)
        for rank in range(3)
        for at, op, length in ((0, "MatMul", 90), (200, "Add", 5), (210, "Softmax", 5))
    ]
    devices = device_ratios(operator_ratios(kernels(rows))).set_index("rank_id")
    assert devices["ratio"].to_dict() == {0: 1.0, 1: 1.0, 2: 1.0}  # 90 % of rank 1's time is twice as long
    alone = operator_ratios(kernels([row for row in rows if row[4] == "MatMul"]))
    assert device_ratios(alone).set_index("rank_id")["ratio"][1] == 2.0  # nothing else to tell them apart


def test_other_shapes_are_other_work_and_not_a_slow_operator():
    rows = [(0, 1, 0, 40, "MatMul", "8,8"), (1, 1, 0, 80, "MatMul", "16,8")]
    assert operator_ratios(kernels(rows)).empty


def test_totals_shares_and_short_kernels():
    table = kernels([(0, 1, 0, 30, "MatMul"), (0, 1, 40, 5, "Add"), (0, 1, 50, 5, "Add")])
    totals = kernel_totals(table).set_index("op_type")
    assert totals.loc["MatMul", "share"] == 30 / 40
    assert totals.loc["Add", ["count", "total_us", "median_us", "short_share"]].tolist() == [2, 10, 5, 1]
    short = short_kernels(table).iloc[0]
    assert (short["per_step"], short["short_per_step"]) == (3, 2)
    assert short["short_share"] == pytest.approx(2 / 3)
    assert kernel_totals(table, by="scope")["scope"].tolist() == ["Default/net/MatMul-op0", "Default/net/Add-op0"]


def test_overlapping_and_touching_tasks_are_one_busy_interval():
    busy = busy_intervals(kernels([(0, 1, 0, 10), (0, 1, 10, 5), (0, 1, 12, 1), (0, 1, 20, 5)]))
    assert (busy["start_ns"] - BASE_NS).tolist() == [0, 20_000]
    assert (busy["end_ns"] - BASE_NS).tolist() == [15_000, 25_000]


def test_comparison_names_what_changed_beyond_the_noise():
    before = kernels(
        [(0, s, 100 * s, 40 + s % 2, "MatMul") for s in range(4)] + [(0, s, 100 * s + 50, 10, "Add") for s in range(4)]
    )
    after = kernels(
        [(0, s, 100 * s, 41 - s % 2, "MatMul") for s in range(4)] + [(0, s, 100 * s + 50, 20, "Add") for s in range(4)]
    )
    changes = compare_kernels(before, after).set_index("op_type")
    assert changes.loc["Add", "change_us"] == 10
    assert changes.loc["Add", "is_change"]
    assert changes.loc["MatMul", "change_us"] == pytest.approx(0)  # 40.5 on both sides
    assert not changes.loc["MatMul", "is_change"]


def test_input_is_unchanged_and_empty_gives_empty():
    table = kernels(RANKS)
    copy = table.copy()
    operator_ratios(table)
    pd.testing.assert_frame_equal(table, copy)
    assert operator_ratios(kernels([])).empty
    assert device_ratios(operator_ratios(kernels([]))).empty
    assert kernel_totals(kernels([])).empty
    assert kernel_totals(kernels([]), by="scope").empty


def test_scopes_end_at_the_last_slash_also_where_all_names_are_missing():
    names = pd.Series(["a/b/c", "c", "a/", "//", None], dtype="str")
    assert scopes(pd.DataFrame({"name": names})).tolist()[:4] == ["a/b", "", "a", "/"]
    assert scopes(pd.DataFrame({"name": names})).isna().tolist() == [False] * 4 + [True]
    assert scopes(pd.DataFrame({"name": [None, None]}, dtype="object")).isna().all()
    assert scopes(pd.DataFrame({"name": []}, dtype="str")).empty
