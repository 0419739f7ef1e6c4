"""The replay against steps worked out by hand, laws of max-plus graphs, and the published what-if results."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses.pipeline_replay import pipeline_replay
from workbench.analyses.replay import lane_order, prepare
from workbench.analyses.stragglers import slowdown_by, straggler_summary
from workbench.errors import UnknownContentError
from workbench.readers.kinds import FileContext
from workbench.readers.straggler_trace import read_straggler_trace
from workbench.tables import OPERATIONS


def operations(*rows):
    """(rank, lane, start us, duration us, group) each."""
    frame = pd.DataFrame(rows, columns=["rank_id", "lane", "start_us", "duration_us", "group_id"])
    return frame.assign(step=1, op_type="x", role="compute", start_ns=frame["start_us"] * 1000)


# rank 0 computes 10 and waits 20 in the all-reduce for rank 1, which computes 30; moving the data takes 5
TWO_RANKS = operations(
    (0, "c", 0, 10, None), (0, "c", 10, 25, "sum"), (1, "c", 0, 30, None), (1, "c", 30, 5, "sum"),
)  # fmt: skip


def test_the_last_one_in_starts_a_collective():
    replay = prepare(TWO_RANKS, lane_order(TWO_RANKS))
    assert list(replay.operations["work_us"]) == [10, 5, 30, 5]
    assert replay.step_us().to_dict() == {1: 35}
    # rank 1 as fast as rank 0: 10 + 5; rank 0 slow as well: no change
    assert replay.step_us(work_us=np.array([10.0, 5, 10, 5])).to_dict() == {1: 15}
    assert replay.step_us(work_us=np.array([30.0, 5, 30, 5])).to_dict() == {1: 35}


def test_a_late_launch_is_a_delay_and_can_be_taken_away():
    late = operations((0, "c", 0, 10, None), (0, "c", 14, 6, None))
    replay = prepare(late, lane_order(late))
    assert list(replay.operations["delay_us"]) == [0, 4]
    assert replay.step_us().to_dict() == {1: 20}
    assert replay.step_us(delay_us=np.zeros(2)).to_dict() == {1: 16}


def test_a_buffered_send_ends_without_its_receiver_but_the_receiver_waits_for_it():
    pair = operations((0, "c", 10, 5, "p"), (1, "c", 2, 13, "p"), (1, "d", 40, 0, None)).assign(
        waits=[False, True, True]
    )
    replay = prepare(pair, lane_order(pair))
    # the receive's own time is 15 - 10; posted at 50 instead of 2, it ends at 55, the send still at 15
    assert list(replay.operations["work_us"]) == [5, 5, 0]
    assert list(replay.ends(delay_us=np.array([10.0, 50, 0]))) == [15, 55, 0]


def test_steps_that_follow_each_other_measure_the_gap_between_their_ends():
    rows = operations((0, "c", 0, 10, None), (0, "c", 12, 8, None)).assign(step=[1, 2], origin_ns=0)
    needs = pd.DataFrame({"operation": [1], "needs": [0]})
    assert prepare(rows, needs, chained=True).step_us().to_dict() == {1: 10, 2: 10}


def test_errors_say_what_is_wrong():
    with pytest.raises(UnknownContentError, match="no operations"):
        prepare(OPERATIONS.empty(), pd.DataFrame({"operation": [], "needs": []}))
    circle = pd.DataFrame({"operation": [0, 1], "needs": [1, 0]})
    with pytest.raises(UnknownContentError, match="circle"):
        prepare(TWO_RANKS, circle)


def test_an_interleaved_trace_is_refused():
    rows = operations((0, "c", 0, 10, None), (0, "c", 10, 10, None))
    trace = rows.assign(op_type="forward-compute", sequence=[0, 1], micro_batch=0)
    with pytest.raises(UnknownContentError, match="several forward-compute of micro-batch 0"):
        pipeline_replay(trace)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5), st.integers(1, 8))
def test_laws(seed, ranks, passes):
    """Recorded times come back; longer work never shortens a step; rank numbers and row order do not count."""
    rng = np.random.default_rng(seed)
    work, clock, rows = rng.integers(1, 50, (passes, ranks)), np.zeros(ranks, int), []
    for i in range(passes):
        rows += [(r, "c", clock[r], work[i, r], None) for r in range(ranks)]
        ready = clock + work[i]
        clock = np.full(ranks, ready.max() + 7)
        rows += [(r, "c", ready[r], clock[r] - ready[r], f"g{i}") for r in range(ranks)]
    table = operations(*rows)
    replay = prepare(table, lane_order(table))
    assert replay.step_us()[1] == pytest.approx(work.max(axis=1).sum() + 7 * passes)
    more = replay.operations["work_us"].to_numpy() + rng.integers(0, 9, len(table))
    assert replay.step_us(work_us=more)[1] >= replay.step_us()[1] - 1e-9
    mixed = table.assign(rank_id=rng.permutation(ranks)[table["rank_id"]]).sample(frac=1, random_state=seed % 1000)
    mixed = mixed.reset_index(drop=True)
    assert prepare(mixed, lane_order(mixed)).step_us()[1] == pytest.approx(replay.step_us()[1])


@pytest.fixture(scope="module", params=["AR", "ST"])
def published(request, shared_dir):
    folder = shared_dir / "samples/ByteDance-Seed-StragglerAnalysis/data"
    files = {kind: json.loads((folder / f"{kind}-{request.param}.json").read_text()) for kind in ("result", "mw", "ms")}
    table = read_straggler_trace(folder / f"trace-{request.param}.parquet", FileContext())["operations"].table
    return request.param, pipeline_replay(table), files


def by_step(values):
    return pd.Series({int(step): seconds * 1e6 for step, seconds in values.items()})


def test_replayed_steps_of_the_public_traces(published):
    name, replay, files = published
    base, no_delay = (by_step(files["result"][f"step_t_{kind}"]) for kind in ("base", "nodelay"))
    assert (replay.step_us() / base - 1).abs().max() < 1e-4  # with the launch delays: float32 of the trace
    replayed = replay.step_us(delay_us=np.zeros(len(replay.operations)))
    assert (replayed / no_delay - 1).abs().max() < 1e-5
    assert (replayed / base - 1).abs().median() <= {"AR": 0.0055246, "ST": 0.0188575}[name]  # published median error


def test_slowdown_and_its_owners_in_the_public_traces(published):
    _, replay, files = published
    summary = straggler_summary(replay).iloc[0]
    result, worker, stage = files["result"], files["mw"], files["ms"]
    assert summary["slowdown"] == pytest.approx(result["blocking_slowdown"], rel=1e-4)
    assert summary["step_us"] == pytest.approx(worker["tori"] * 1e6, rel=1e-4)
    assert summary["equal_step_us"] == pytest.approx(worker["tideal"] * 1e6, rel=1e-4)
    assert summary["worst_ranks_step_us"] == pytest.approx(worker["trem"] * 1e6, rel=1e-4)
    assert summary["worst_ranks_share"] == pytest.approx(worker["Mw"], abs=1e-3)
    assert summary["last_stage_share"] == pytest.approx(stage["Ms"], abs=1e-3)


def test_slowdown_by_replica_in_the_public_traces(published):
    _, replay, files = published
    by_replica = slowdown_by(replay, "dp_rank").set_index("dp_rank")["slowdown"]
    for replica, slowdown in files["result"]["blocking_decompose_by_dp_rank"].items():
        assert by_replica[int(replica)] == pytest.approx(slowdown, rel=1e-4)
