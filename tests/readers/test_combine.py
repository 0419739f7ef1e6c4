"""Rows of several files about one thing. Expected values are those of the files, read by eye."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.profiles import read
from workbench.readers.combine import combine
from workbench.run import open_run
from workbench.tables import COLLECTIVES, DATA_OPS

STARVED = "data_pipeline_starved"
OLD = "mindinsight_profile"


def joined(table, *readings):
    return pd.concat([r[table].table for r in readings], ignore_index=True)


def test_operator_of_queue_file_cpu_file_and_summary(data_samples):
    folder = data_samples / STARVED
    files = (
        read(folder / "minddata_cpu_utilization_0.json", "minddata_cpu"),
        read(folder / "minddata_pipeline_summary_0.json", "minddata_summary_json"),
        read(folder / "pipeline_profiling_0.json", "minddata_pipeline"),
    )
    ops = combine("data_ops", joined("data_ops", *files))
    assert ops.op_id.tolist() == [0, 1, 2]
    assert ops.op_type.tolist() == ["Batch", "Map", "Generator"]
    assert ops.queue_mean[0] == pytest.approx(3 / 11)  # measured, not the rounded 0.27 of the summary
    assert ops.cpu_share[2] == pytest.approx(0.043)
    samples = combine("data_queue_samples", joined("data_queue_samples", files[0], files[2]))
    assert len(samples) == 33
    last = samples[(samples.op_id == 2) & (samples["sample"] == 10)].iloc[0]
    assert (last.queue_size, last.time_us, last.user_cpu_share) == (7, 748_199_000, 0)


def test_step_of_step_trace_and_cluster_file(data_samples):
    folder = data_samples / OLD / "pipeline_parallel_rank_0"
    trace = read(folder / "step_trace_raw_0_detail_time.csv", "step_trace_raw")
    cluster = read(folder / "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv", "cluster_analyse")
    steps = combine("step_time", joined("step_time", trace, cluster))
    assert steps.step.tolist() == [1, 2, 3, 4, 5]
    second = steps.iloc[1]
    assert (second.step_us, second.computing_us) == (pytest.approx(181012.69), pytest.approx(14580.6))
    assert second.free_us == pytest.approx(181012.69 - 14580.6 - 165836.3)


def test_collective_of_step_trace_and_hccl_raw(data_samples):
    folder = data_samples / OLD / "one_collective"
    trace = read(folder / "step_trace_raw_6_detail_time.csv", "step_trace_raw")
    hccl = read(folder / "hccl_raw_6.csv", "hccl_raw")
    table = combine("collectives", joined("collectives", hccl, trace))
    assert len(table) == 2
    assert table.elapsed_us[0] == pytest.approx(4540.80)
    assert table.transit_us[0] == pytest.approx(4516.37)
    assert table.start_ns[1] == 616881123718610


def test_collectives_of_new_profiles_are_left_alone(data_samples):
    path = data_samples / "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/communication.json"
    table = read(path, "communication")["collectives"].table
    twice = pd.concat([table, table], ignore_index=True)
    pd.testing.assert_frame_equal(combine("collectives", twice), twice)


def test_rows_without_a_key_stay(data_samples):
    rows = pd.DataFrame({"rank_id": 0, "name": ["a", "a"], "elapsed_us": [1.0, None], "transit_us": [None, 2.0]})
    table = COLLECTIVES.check(rows)  # no step
    assert len(combine("collectives", table)) == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.floats(0, 1)), max_size=20))
def test_each_thing_once_and_nothing_lost(rows):
    frame = pd.DataFrame(rows, columns=["rank_id", "op_id", "cpu_share"]).assign(op_type="Map")
    table = DATA_OPS.check(frame)
    whole = combine("data_ops", table)
    assert set(zip(whole.rank_id, whole.op_id, strict=True)) == {(r, o) for r, o, _ in rows}
    assert not whole.duplicated(["rank_id", "op_id"]).any()
    pd.testing.assert_frame_equal(combine("data_ops", whole), whole)


def test_run_of_an_old_profile_has_one_row_per_step(data_samples, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    run = open_run(data_samples / OLD / "pipeline_parallel_rank_0")
    steps = run.table("step_time")
    assert steps.step.tolist() == [1, 2, 3, 4, 5]
    assert steps[["step_us", "computing_us"]].notna().all(axis=None)
    assert steps.free_us.isna().tolist() == [True] + [False] * 4  # step 1: 13.8 + 164.5 ms in a step of 178.2 ms


def test_note_on_a_file_of_two_tables_is_shown_once(data_samples, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "job" / "hccl_raw_6.csv"
    path.parent.mkdir()
    path.write_bytes((data_samples / OLD / "one_collective/hccl_raw_6.csv").read_bytes()[:700])
    run = open_run(path.parent)
    run.read_all(quiet=True)
    assert [note.where for note in run.notes] == ["line 3"]
    assert set(run.tables) >= {"collectives", "links"}
