"""What a fix would save, against the simulator's truth: the same run simulated again without the fault."""

import pandas as pd
import pytest

from tests.made_cluster import make_cluster, profile_tables
from workbench.analyses.profile_operations import kernels_needed, profile_operations, profile_replay
from workbench.analyses.what_if import step_model, what_if
from workbench.errors import UnknownContentError, UnknownParameterError
from workbench.tables import KERNELS

FAULTS = [
    ("slow_rank:3:1.4", {"what": "rank", "rank_id": 3}, {}),
    ("slow_op:2:MatMulV3:1.5", {"what": "op_type", "rank_id": 2, "op_type": "MatMulV3"}, {}),
    ("slow_link:0:1:4", {"what": "link", "src_rank": 0, "dst_rank": 1}, {}),
    ("slow_link:3:11:4", {"what": "link", "src_rank": 3, "dst_rank": 11}, {"ranks": 16}),
    ("slow_link:4:5:4", {"what": "link", "src_rank": 4, "dst_rank": 5}, {"pp": 2}),
    ("data_starved:60", {"what": "data_wait"}, {}),
    ("data_starved:60:2", {"what": "data_wait", "rank_id": 2}, {}),
    ("stall_steps:1:200:3", {"what": "steps"}, {}),
    ("recompile:1:900", {"what": "steps"}, {}),
    ("unfused_allreduce:32", {"what": "fusion"}, {}),
    ("no_overlap", {"what": "overlap"}, {}),
    ("small_ops:800", {"what": "small_ops"}, {}),
    ("pipeline_bubble:16:1:1.3", {"what": "stage"}, {"pp": 4}),
    ("slow_rank:5:1.3", {"what": "rank", "rank_id": 5}, {"pp": 2}),
    ("pipeline_bubble:4", {"what": "micro_batches", "micro_batches": 16}, {"pp": 4}),
    ("pipeline_bubble:2", {"what": "micro_batches", "micro_batches": 16}, {"pp": 4}),  # two stages run the same types
]


def scenario(wanted, fault):
    """The scenario with the steps and ranks that the simulator chose."""
    more = {"steps": {"steps": fault["steps"]}, "stage": {"ranks": fault["ranks"]}}
    return wanted | more.get(wanted["what"], {})


@pytest.mark.parametrize(("spec", "wanted", "options"), FAULTS, ids=[f"{f[0]}-{f[2]}" for f in FAULTS])
@pytest.mark.parametrize("layer", ["HCCL", "Communication"])
def test_the_step_without_a_fault(shared_dir, tmp_path, spec, wanted, options, layer):
    seed = sum(map(ord, spec))  # another one for each fault
    run, truth = make_cluster(shared_dir, tmp_path / "run", spec, comm_layer=layer, seed=seed, **options)
    fault = truth["faults"][0]
    found = what_if(step_model(profile_tables(run)), pd.DataFrame([scenario(wanted, fault)])).iloc[0]
    expected_us = fault["step_ms_without"] * 1000
    bound = 0.03 if wanted["what"] == "micro_batches" else 0.01  # another schedule is modelled, not replayed
    assert found["step_us"] == pytest.approx(expected_us, rel=bound)
    assert found["saved_us"] == pytest.approx(fault["saved_ms_per_step"] * 1000, abs=bound * expected_us)
    assert found["low_us"] <= found["saved_us"] <= found["high_us"]


def test_the_recorded_steps_come_back(shared_dir, tmp_path):
    run, truth = make_cluster(shared_dir, tmp_path / "run", pp=2, seed=11)
    replay = profile_replay(
        profile_operations(*(profile_tables(run)[n] for n in ("kernels", "collectives", "step_time")))
    )
    assert (replay.ends() - replay.operations["end_us"]).abs().max() < 1e-3
    assert replay.step_us().mean() == pytest.approx(truth["mean_step_ms"] * 1000, rel=0.005)


def test_two_faults_that_hide_each_other(shared_dir, tmp_path):
    run, truth = make_cluster(shared_dir, tmp_path / "run", "slow_rank:3:1.4", "slow_rank:5:1.3", seed=4)
    rows = pd.DataFrame({"what": ["rank", "rank"], "rank_id": [3, 5]})
    found = what_if(step_model(profile_tables(run)), rows)
    for i, fault in enumerate(truth["faults"]):
        assert found.loc[i, "step_us"] == pytest.approx(fault["step_ms_without"] * 1000, rel=0.01)
        assert found.loc[i, "saved_if_others_fixed_us"] == pytest.approx(fault["alone_ms_per_step"] * 1000, rel=0.02)
    # the slower one hides the other: without rank 5 nothing changes, and without rank 3 only what is left above rank 5
    assert list(found["is_masked"]) == [True, True, False]
    assert found.loc[1, "saved_us"] == pytest.approx(0, abs=0.001 * truth["mean_step_ms"] * 1000)
    assert found.loc[2, "what"] == "all"
    assert found.loc[2, "step_us"] == pytest.approx(truth["ideal_step_ms"] * 1000, rel=0.01)


def test_late_data_in_steps_that_compile_count_as_in_the_others(shared_dir, tmp_path):
    run, truth = make_cluster(shared_dir, tmp_path / "run", "data_starved:60", "recompile:2:900", seed=5)
    faults = {f["kind"]: f for f in truth["faults"]}
    steps = faults["recompile"]["steps"]
    rows = pd.DataFrame([{"what": "data_wait", "steps": steps}, {"what": "steps", "steps": steps}])
    found = what_if(step_model(profile_tables(run)), rows)
    for i, kind in enumerate(("data_starved", "recompile")):
        assert found.loc[i, "step_us"] == pytest.approx(faults[kind]["step_ms_without"] * 1000, rel=0.01)
    assert found.loc[2, "step_us"] == pytest.approx(truth["ideal_step_ms"] * 1000, rel=0.02)
    assert not found["is_masked"].any()


def test_nothing_to_gain_in_a_healthy_run_and_no_order_of_rows(shared_dir, tmp_path):
    run, _ = make_cluster(shared_dir, tmp_path / "run", seed=9)
    tables = profile_tables(run)
    rows = pd.DataFrame(
        [{"what": "rank", "rank_id": 3}, {"what": "link", "src_rank": 0, "dst_rank": 1}, {"what": "overlap"}]
    )
    found = what_if(step_model(tables), rows)
    assert (found["saved_us"].abs() < 0.01 * found["step_us"]).all()
    mixed = {name: table.sample(frac=1, random_state=1) for name, table in tables.items()}
    pd.testing.assert_frame_equal(what_if(step_model(mixed), rows), found)


def test_a_collective_needs_no_more_than_any_rank_had_done(shared_dir, tmp_path):
    run, _ = make_cluster(shared_dir, tmp_path / "run", "slow_link:0:1:4", layers=4, steps=2)
    tables = profile_tables(run)
    operations = profile_operations(tables["kernels"], tables["collectives"])
    needed = kernels_needed(operations)
    one = needed[(operations.loc[needed.index, "rank_id"] == 0) & (operations.loc[needed.index, "step"] == 5)]
    # forward: 1 + 4 x 11 + 3; backward: 3 for the head, then 15 a layer (4 MatMul twice, 7 others once)
    assert one["kernels"].iloc[0] == 48 + 3 + 15
    assert one["is_tight"].iloc[0]
    assert not one["is_tight"].iloc[2]  # the link holds up the queue: it tells no more


def test_errors():
    with pytest.raises(UnknownContentError, match="No kernel has a step"):
        profile_operations(KERNELS.empty())
    kernels = pd.DataFrame({"rank_id": [0], "step": [1], "name": ["a"], "start_ns": [0], "duration_us": [5.0]})
    model = step_model({"kernels": kernels})
    with pytest.raises(UnknownParameterError, match="no scenario"):
        what_if(model, pd.DataFrame({"what": ["magic"]}))


def one_rank(*kernels):
    """A model of single kernels of one step: rank, name, duration; one after the other on their rank."""
    frame = pd.DataFrame(kernels, columns=["rank_id", "name", "duration_us"])
    start = (frame.groupby("rank_id")["duration_us"].cumsum() - frame["duration_us"]) * 1000
    table = frame.assign(step=1, op_type=frame["name"], start_ns=start.astype("int64"))
    return step_model({"kernels": table})


def test_kernels_that_no_peer_runs_change_like_those_that_have_peers():
    # rank 1 is twice as slow in a and b, and alone runs c: 40 of 40 + 40 + 40 have no peer and are halved as well
    model = one_rank((0, "a", 20.0), (0, "b", 20.0), (1, "a", 40.0), (1, "b", 40.0), (1, "c", 40.0))
    found = what_if(model, pd.DataFrame({"what": ["rank"], "rank_id": [1]})).iloc[0]
    assert (found["step_us"], found["saved_us"]) == (60, 60)


def test_a_slow_operator_on_a_slow_device_are_two_causes():
    # rank 1: all operators twice as slow, b beyond that three times; 100 + 100 + 100 us on rank 0
    model = one_rank(*((0, op, 100.0) for op in "abc"), (1, "a", 200.0), (1, "b", 600.0), (1, "c", 200.0))
    rows = pd.DataFrame({"what": ["device", "op_type"], "rank_id": [1, 1], "op_type": [None, "b"]})
    found = what_if(model, rows)
    assert found["step_us"].tolist() == [500, 600, 300]  # b stays at 300; b at 200; both


@pytest.mark.parametrize(
    "row", [{"what": "link", "src_rank": 0, "dst_rank": 1}, {"what": "micro_batches", "micro_batches": 8}]
)
def test_what_cannot_be_told_is_refused_and_not_zero(row):
    with pytest.raises(UnknownContentError):
        what_if(one_rank((0, "a", 20.0), (1, "a", 40.0)), pd.DataFrame([row]))
