"""Step traces, cluster files and hccl_raw of MindInsight-era profiles. Expected values are raw cells in other units."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.readers.profiles import notes_text, read, read_text

PIPELINE = "mindinsight_profile/pipeline_parallel_rank_0"
ONE = "mindinsight_profile/one_collective"
RESOURCE = "samples/mindspore-ai-mindinsight/tests/utils/resource"


def test_step_trace_with_one_collective(data_samples):
    readings = read(data_samples / ONE / "step_trace_raw_6_detail_time.csv", "step_trace_raw", rank_id=6)
    steps, notes = readings["step_time"]
    assert steps.step.tolist() == [1, 2]  # the row of averages is left out
    # one tick is 10 ns: 3354247 ticks are 33542.47 us
    assert steps.step_us.tolist() == [pytest.approx(33542.47), pytest.approx(33651.43)]
    assert steps.preparing_us.tolist() == [0, pytest.approx(50.68)]
    assert steps.forward_backward_us[1] == pytest.approx(28112.37)
    assert steps.tail_us[1] == pytest.approx(5488.38)
    assert steps.communication_us.tolist() == [pytest.approx(4540.80)] * 2
    assert steps[["computing_us", "communication_not_overlapped_us", "free_us"]].isna().all(axis=None)
    collectives = readings["collectives"].table
    assert collectives["name"].tolist() == ["AllReduce-op3143"] * 2
    assert collectives.start_ns.tolist() == [616881090061570, 616881123718610]
    assert collectives.elapsed_us[0] == pytest.approx(4540.80)
    assert collectives.op_type.eq("allreduce").all()
    assert steps.rank_id.eq(6).all()
    assert notes == []


def test_step_trace_of_a_pipeline_stage(data_samples):
    readings = read(data_samples / PIPELINE / "step_trace_raw_0_detail_time.csv", "step_trace_raw")
    steps = readings["step_time"].table.set_index("step")
    assert len(steps) == 5
    assert steps.step_us[2] == pytest.approx(181012.69)
    assert (steps.preparing_us[3], steps.tail_us[5]) == (pytest.approx(827.95), pytest.approx(939.85))
    collectives = readings["collectives"].table
    assert len(collectives) == 5 * 97  # 300 columns: 9 of the step, 3 per collective
    receive = collectives[(collectives["name"] == "Receive-op663") & (collectives.step == 2)].iloc[0]
    assert receive.elapsed_us == pytest.approx(48110.86)
    assert receive.start_ns == 11624299731740
    assert receive.is_p2p
    assert (steps.communication_us <= steps.step_us + 1e3).all()


def test_step_trace_of_early_versions_has_the_duration_last(shared_dir):
    path = shared_dir / RESOURCE / "run_1/normal_run/profiler/step_trace_raw_1_detail_time.csv"
    readings = read(path, "step_trace_raw")
    steps = readings["step_time"].table.set_index("step")
    assert len(steps) == 322
    assert (steps.step_us[322], steps.preparing_us[2]) == (pytest.approx(207811.10), pytest.approx(210.81))
    collectives = readings["collectives"].table.set_index(["step", "name"])
    assert collectives.elapsed_us[322, "stream_520_parallel_0"] == pytest.approx(2879.27)
    assert collectives.start_ns[1, "stream_520_parallel_0"] == 438069798960
    assert collectives.op_type.isna().all()  # the header names no operation


def test_step_trace_with_more_than_a_thousand_columns(shared_dir):
    readings = read(shared_dir / RESOURCE / "cluster_propose/step_trace_raw_2_detail_time.csv", "step_trace_raw")
    assert len(readings["collectives"].table) == 5 * 349
    assert readings["step_time"].table.step_us[0] == pytest.approx(2163848.36)  # step 1 is warm-up


def test_row_of_zeros_is_left_out_with_a_note(shared_dir):
    reading = read(
        shared_dir / RESOURCE / "run_3/normal_run/profiler/step_trace_raw_1_detail_time.csv", "step_trace_raw"
    )
    steps = reading["step_time"].table
    assert steps.step.tolist() == [1]
    assert steps.step_us[0] == pytest.approx(23709.05)
    assert "zeros" in notes_text(reading["step_time"])


def test_step_trace_of_an_inference_run(tmp_path):
    text = "step_num,start_point,end_point,total,fp_point,iteration_interval,fp\n1,100,400,300,150,50,250\n"
    steps = read_text(tmp_path, "step_trace_raw_0_detail_time.csv", text, "step_trace_raw")["step_time"].table
    assert (steps.step_us[0], steps.preparing_us[0], steps.forward_backward_us[0]) == (3, 0.5, 2.5)
    assert steps.tail_us.isna().all()


def test_unreadable_cell_is_missing_and_named(tmp_path):
    header = "step_num,start_point,end_point,total,fp_point,iteration_interval,fp_and_bp,tail"
    text = f"{header}\n1,1,2,x,1,1,1,1\n2,1,2,3,1,1,1,1\n"
    reading = read_text(tmp_path, "step_trace_raw_0_detail_time.csv", text, "step_trace_raw")["step_time"]
    assert reading.table.step_us.isna().tolist() == [True, False]
    assert "total" in notes_text(reading)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_communication_counts_each_tick_once(tmp_path, spans):
    names = [f"stream_1_{i}_AllReduce-op{i}" for i in range(len(spans))]
    header = ["step_num", "start_point", "end_point", "total", "fp_point", "iteration_interval", "fp_and_bp", "tail"]
    cells = ["1", "1000", "2000", "1000", "1000", "0", "900", "100"]
    for name, (start, length) in zip(names, spans, strict=True):
        header += [name, f"{name}_start_point", f"{name}_end_point"]
        cells += [str(length), str(1000 + start), str(1000 + start + length)]
    text = ",".join(header) + "\n" + ",".join(cells) + "\n"
    steps = read_text(tmp_path, "step_trace_raw_0_detail_time.csv", text, "step_trace_raw")["step_time"].table
    ticks = {tick for start, length in spans for tick in range(start, start + length)}
    assert steps.communication_us[0] == pytest.approx(len(ticks) / 100)


def test_cluster_file_of_a_pipeline_stage(data_samples):
    path = data_samples / PIPELINE / "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv"
    steps, notes = read(path, "cluster_analyse")["step_time"]
    assert steps.step.tolist() == [1, 2, 3, 4, 5]  # the sixth row is the average
    second = steps.iloc[1]
    assert (second.computing_us, second.communication_not_overlapped_us) == (
        pytest.approx(14580.6),
        pytest.approx(165836.3),
    )
    assert (second.stage_us, second.bubble_us) == (pytest.approx(124247.5), pytest.approx(56169.5))
    assert second.communication_not_overlapped_exclude_receive_us == pytest.approx(109666.9)
    assert steps.free_us.isna().all()
    assert notes == []


def test_cluster_file_with_a_single_row_says_that_it_may_be_the_average(shared_dir):
    path = shared_dir / RESOURCE / "run_3/normal_run/profiler/ascend_cluster_analyse_model-parallel_1_2_1.csv"
    reading = read(path, "cluster_analyse")["step_time"]
    assert reading.table.computing_us.tolist() == [pytest.approx(651905.1)]
    assert reading.table.communication_not_overlapped_us.tolist() == [pytest.approx(1293123.1)]
    assert "average" in notes_text(reading)


def test_cluster_file_of_a_data_parallel_run_counts_ticks(tmp_path):
    text = "iteration_interval, fp_and_bp, tail\n100, 2000, 300\n200, 2100, 300\n150, 2050, 300\n"
    name = "ascend_cluster_analyse_data-parallel_1_8_3.csv"
    steps = read_text(tmp_path, name, text, "cluster_analyse_data_parallel")["step_time"].table
    assert steps.preparing_us.tolist() == [1.0, 2.0]
    assert steps.step_us.tolist() == [24.0, 26.0]  # 100 + 2000 + 300 ticks


def test_hccl_raw(data_samples):
    readings = read(data_samples / ONE / "hccl_raw_6.csv", "hccl_raw")
    collectives, notes = readings["collectives"]
    assert collectives.step.tolist() == [1, 2]
    assert collectives["name"].tolist() == ["AllReduce-op3143"] * 2
    assert collectives.transit_us.tolist() == [pytest.approx(4516.37), pytest.approx(4519.26)]
    assert collectives.wait_us.tolist() == [pytest.approx(0.04), pytest.approx(0.07)]
    assert collectives.size_bytes[0] == pytest.approx(94356992)
    assert collectives.bandwidth_bytes_per_s[0] == pytest.approx(94356992 / 4.36566e-3)
    assert collectives.elapsed_us.isna().all()  # step_trace_raw has it
    links = readings["links"].table
    total = links[(links.statistic == "total") & (links.step == 1)].set_index("transport")
    assert (total.src_rank["SDMA"], total.dst_rank["SDMA"]) == (1, 0)
    assert total.size_bytes["LOCAL"] == pytest.approx(47178496)
    assert total.transit_us["LOCAL"] == pytest.approx(150.71)
    assert not links.is_global.any()
    assert notes == []


def test_hccl_raw_bandwidth_of_a_step_is_computed_not_the_written_sum(shared_dir):
    readings = read(shared_dir / RESOURCE / "cluster_propose/hccl_raw_0.csv", "hccl_raw")
    links = readings["links"].table
    total = links[(links.statistic == "total") & (links.step == 1) & (links.transport == "SDMA")].iloc[0]
    # 52706.816 kB in 2.52091 ms; the file says 217 GB/s, the sum over 97 operations
    assert total.bandwidth_bytes_per_s == pytest.approx(52706816 / 2.52091e-3, rel=1e-4)
    operations = readings["collectives"].table.set_index(["step", "name"])
    assert operations.wait_us[1, "AllReduce-op4604"] == pytest.approx(225.38)
    assert operations.transit_us[2, "AllReduce-op4630"] == pytest.approx(54.89)


def test_hccl_names_match_those_of_the_step_trace(data_samples):
    folder = data_samples / ONE
    waits = read(folder / "hccl_raw_6.csv", "hccl_raw")["collectives"].table.set_index(["step", "name"])
    trace = read(folder / "step_trace_raw_6_detail_time.csv", "step_trace_raw")["collectives"].table
    joined = trace.set_index(["step", "name"]).join(waits.transit_us, rsuffix="_hccl")
    assert (joined.elapsed_us >= joined.transit_us_hccl).all()


def test_cell_that_is_no_json_is_named(tmp_path):
    operations = json.dumps({"stream_1_0_AllReduce-op1": ["1", 1.0, 0.5, {"0-1": {"RDMA": [1.0, 10.0, 1e4, 0.1]}}]})
    quoted = operations.replace('"', '""')
    text = (
        "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
        f'1,1,0.5,{{}},"{quoted}"\n2,1,0.5,{{}},"{{broken"\n'
    )
    reading = read_text(tmp_path, "hccl_raw_0.csv", text, "hccl_raw")["collectives"]
    assert reading.table.transport.tolist() == ["RDMA"]
    assert reading.table.size_bytes.tolist() == [10_000]
    assert "data row 2" in notes_text(reading)
