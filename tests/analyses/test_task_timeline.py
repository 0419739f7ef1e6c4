import pandas as pd
import pytest

from tests.analyses.device_tables import BASE_NS, kernels
from workbench.analyses.task_timeline import Tasks, can_be_seen, rank_bars, shown_steps, stream_bars
from workbench.store import query, to_arrow
from workbench.tables import KERNELS

COMPUTE = [(0, 1, 0, 10), (0, 1, 10, 20, "Add"), (0, 1, 80, 10), (0, 2, 100, 30)]
WAITED = {"rank_id": 0, "step": 1, "window": 0, "name": "all", "op_type": "allreduce", "is_communication": True}


def tasks(frame, tmp_path, ranks=(0,), **clocks):
    rows = to_arrow(KERNELS.check(frame), KERNELS)
    return Tasks(lambda statement: query(statement, {"kernels": rows}, scratch=tmp_path), ranks, **clocks)


def timed(bars):
    """Bars as (lane, start, end) in microseconds from the base."""
    us = [(bars[c] - BASE_NS) / 1e3 for c in ("start_ns", "end_ns")]
    return list(zip(bars["lane"], *us, strict=True))


@pytest.fixture
def rank(tmp_path):
    waited = pd.DataFrame([{**WAITED, "start_ns": BASE_NS + 20_000, "duration_us": 40.0}])
    return tasks(pd.concat([kernels(COMPUTE), waited]), tmp_path)


def test_touching_tasks_are_one_bar_and_idle_is_what_neither_kind_covers(rank):
    bars = rank_bars(rank, shown_steps(rank, (1, 2)))
    assert timed(bars) == [
        ("computing", 0, 30), ("communication", 20, 60), ("idle", 60, 80), ("computing", 80, 90), ("idle", 90, 100),
        ("computing", 100, 130),
    ]  # fmt: skip
    first = bars.iloc[0]
    assert (first["tasks"], first["op_type"], first["busy_us"]) == (2, "Add", 10 + 20)


def test_only_the_chosen_steps_are_taken(rank):
    assert shown_steps(rank, (2, 9))["step"].tolist() == [2]
    assert timed(rank_bars(rank, shown_steps(rank, (2, 9)))) == [("computing", 100, 130)]
    assert shown_steps(rank, (1, 2), steps_most=1)["step"].tolist() == [1]
    assert shown_steps(rank, (3, 9)).empty


def test_streams_show_each_task(tmp_path):
    frame = kernels(COMPUTE).assign(stream_id=[2, 2, 3, 2])
    found = tasks(frame, tmp_path)
    assert timed(stream_bars(found, shown_steps(found, (1, 2)))) == [
        ("stream 2", 0, 10), ("stream 2", 10, 30), ("stream 2", 100, 130), ("stream 3", 80, 90),
    ]  # fmt: skip


def test_many_tasks_are_few_bars_that_hold_all_of_them(tmp_path):
    many = tasks(kernels([(r, 1, 10 * n, 4) for r in (0, 1) for n in range(3000)]), tmp_path, ranks=(0, 1))
    shown = shown_steps(many, (1, 1))
    for bars in (rank_bars(many, shown, bars_most=100), stream_bars(many, shown, bars_most=100)):
        drawn = bars[bars["lane"] != "idle"]
        assert 2 <= len(drawn) <= 100
        assert drawn["tasks"].sum() == 2 * 3000
        assert drawn["busy_us"].sum() == 2 * 3000 * 4


def test_a_long_task_stays_alone_among_short_ones_that_are_joined(tmp_path):
    short = [(0, 1, 10 * n, 4) for n in range(1000)]
    found = tasks(kernels([*short, (0, 1, 20_000, 5_000, "Big")]), tmp_path)
    bars = stream_bars(found, shown_steps(found, (1, 1)), bars_most=50)
    assert timed(bars[bars["op_type"] == "Big"]) == [("tasks", 20_000, 25_000)]


def test_clocks_that_are_ahead_are_set_back(tmp_path):
    frame = kernels([(0, 1, 0, 10), (1, 1, 7_000_000, 10)])
    found = tasks(frame, tmp_path, ranks=(0, 1), ahead_us={1: 7_000_000.0})
    assert timed(rank_bars(found, shown_steps(found, (1, 1)))) == [("computing", 0, 10), ("computing", 0, 10)]


def test_the_earliest_window_is_shown(tmp_path):
    late = kernels([(0, 1, 900, 10)]).assign(window=1)
    found = tasks(pd.concat([late, kernels([(0, 1, 0, 10)])]), tmp_path)
    assert timed(stream_bars(found, shown_steps(found, (1, 1)))) == [("tasks", 0, 10)]


def test_tasks_without_steps_are_taken_where_none_has_one(tmp_path):
    bare = kernels([(0, 1, 0, 10), (0, 1, 20, 10)]).assign(step=pd.NA)
    found = tasks(bare, tmp_path)
    assert timed(stream_bars(found, shown_steps(found, (1, 9)))) == [("tasks", 0, 10), ("tasks", 20, 30)]


def test_tasks_on_two_clocks_cannot_be_seen(tmp_path):
    near, far = (tasks(kernels([(0, 1, 0, 10), (0, 1, at, 10)]), tmp_path) for at in (1000, 1_000_000))
    assert can_be_seen(shown_steps(near, (1, 1)))  # 20 of 1010 us
    assert not can_be_seen(shown_steps(far, (1, 1)))  # 20 of 1,000,010 us


def test_no_rank_has_no_bars(tmp_path):
    nobody = tasks(kernels(COMPUTE), tmp_path, ranks=())
    assert shown_steps(nobody, (1, 2)).empty
