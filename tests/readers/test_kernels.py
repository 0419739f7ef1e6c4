"""kernel_details.csv, op_summary and op_statistic of all versions. Expected values are read in the raw files by eye."""

import pandas as pd
import pytest

from tests.readers.profiles import notes_text, read, read_text

LEVEL1 = "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"


def test_level_1_compute_row_and_collective(data_samples):
    table, notes = read(data_samples / LEVEL1 / "kernel_details.csv", "kernel_details", rank_id=1)["kernels"]
    assert len(table) == 191  # 192 lines
    row = table.iloc[0]
    assert (row.step, row["name"], row.op_type) == (50, "trans_TransData_0", "TransData")
    assert (row.accelerator_core, row.op_state, row.task_id, row.stream_id) == ("AI_VECTOR_CORE", "dynamic", 11051, 2)
    assert row.start_ns == 1736408883704643212
    assert (row.duration_us, table.wait_us[1], row.block_num) == (53.741, 104.202, 32)
    assert (row.input_shapes, row.output_shapes) == ("32,3,224,224", "32,1,224,224,8")
    assert (row.input_dtypes, row.output_dtypes) == ("FLOAT", "FLOAT")
    assert (row.aicore_us, row.aiv_us, row.aicore_cycles, row.aiv_cycles) == (0, 50.522, 0, 2910056)
    collective = table[table["name"] == "hcom_allReduce__586_0_1"].iloc[0]
    assert collective.is_communication
    assert collective.start_ns == 1736408883732241563
    assert (collective.duration_us, collective.wait_us) == (79089.52, 590.331)
    assert collective[["task_id", "stream_id", "input_shapes", "aiv_us"]].isna().all()
    assert table.is_communication.sum() == 4
    assert notes == []


def test_level_0_has_neither_type_nor_shapes(shared_dir):
    folder = shared_dir / "samples/Ascend-msinsight/data/pytorch/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    table, notes = read(folder / "kernel_details.csv", "kernel_details")["kernels"]
    assert table["name"][1] == "trans_TransData_1"
    assert (table.duration_us[1], table.wait_us[1]) == (6.28, 105.722)
    assert table.op_type.isna().all()
    assert table.input_shapes.isna().all()
    assert table[table.is_communication].duration_us.iloc[0] == 72994.438
    assert notes == []


def test_device_id_in_second_place(shared_dir):
    folder = shared_dir / "samples/Ascend-msinsight/st/level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    table, notes = read(folder / "kernel_details.csv", "kernel_details")["kernels"]
    row = table.iloc[1]
    assert (row.step, row.device_id, row.task_id) == (13, 0, 34486)
    assert row.start_ns == 1764246877077343740
    assert (row.duration_us, row.wait_us) == (48.68, 1881.08)
    assert row.input_shapes == "151936,1024;1,4096;1"
    assert row.input_dtypes == "DT_BF16;INT64;INT64"
    assert table.is_communication.sum() == 15  # rows with core COMMUNICATION
    assert notes == []


@pytest.mark.parametrize("name", ["rank_0/ASCEND_PROFILER_OUTPUT/kernel_details.csv", "msprof/op_summary_1.csv"])
def test_2023_row_without_its_duration_is_kept_up_to_the_start(data_samples, name):
    reading = read(data_samples / "profile_2023" / name, "kernel_details")["kernels"]
    table = reading.table
    assert len(table) == 21
    assert table.start_ns[1] == 1695115378715400200
    assert table.duration_us[1] == 4975.2664
    short = table.iloc[15]  # line 17
    assert (short["name"], short.start_ns) == ("FlashAttentionScore", 1695115378795017500)
    assert short[["duration_us", "wait_us", "block_num", "input_shapes"]].isna().all()
    assert table.duration_us[14] == 7023.5739
    assert table.aiv_us[16:].tolist()[1] == 5.85
    assert "line 17" in notes_text(reading)


def test_op_summary_of_2026(shared_dir):
    folder = shared_dir / "samples/neo-pan-ascend-msprof-skill/tilelang_candidate"
    table, notes = read(folder / "op_summary_20260605161737.csv", "kernel_details")["kernels"]
    row = table.iloc[0]
    assert (row["name"], row.accelerator_core) == ("main_kernel", "MIX_AIC")
    assert row.start_ns == 1780676244313289000
    assert (row.duration_us, table.wait_us[1], row.block_num) == (87139.38, 6958.62, 256)
    assert row.cube_utilization_share == pytest.approx(0.00014)  # 0.014 %
    assert row.aiv_cycles == 6666439114
    assert notes == []


def test_file_without_last_line_end_has_a_cut_last_cell(shared_dir):
    path = shared_dir / "samples/Ascend-msprof-analyze/test/ut/advisor/compute_advice/data/kernel_details.csv"
    reading = read(path, "kernel_details")["kernels"]
    table = reading.table
    assert table.cube_utilization_share[0] == pytest.approx(0.79295)
    assert table.input_shapes[0] == "81920,4096;8192,512"
    assert (table["name"].iloc[-1], table.duration_us.iloc[-1]) == ("aclnnAdd_AddAiCore_Add", 1.58)
    assert pd.isna(table.cube_utilization_share.iloc[-1])
    assert "line 30" in notes_text(reading)


def test_mindspore_names_and_ids(tmp_path):
    text = (
        "Step ID,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
        "Wait Time(us),Block Num,Input Shapes\r\n"
        "7,4294967295,4294967295,2,m::KernelLaunch::Default/net/MatMul-op12/k1,MatMul,static,AI_CORE,"
        '1736408883704643.212\t,53.741,0,24,"""2,3;"""\r\n'
    )
    row = read_text(tmp_path, "kernel_details.csv", text, "kernel_details")["kernels"].table.iloc[0]
    assert (row.step, row.block_num) == (7, 24)
    assert pd.isna(row.task_id)
    assert row.input_shapes == "2,3;"
    assert row["name"].endswith("MatMul-op12/k1")
    assert not row.is_communication


def test_op_statistic(data_samples, shared_dir):
    table, notes = read(data_samples / LEVEL1 / "op_statistic.csv", "op_statistic")["kernel_totals"]
    row = table[table.op_type == "MatMulV2"].iloc[0]
    assert (row.side, row.core_type, row["count"]) == ("device", "AI_CORE", 8)
    assert (row.total_us, row.min_us, row.avg_us, row.max_us) == (921.498, 16.54, 115.187, 346.567)
    assert row.share == pytest.approx(0.10385)
    assert table.share.sum() == pytest.approx(1, abs=1e-3)
    assert notes == []
    folder = shared_dir / "samples/neo-pan-ascend-msprof-skill/tilelang_baseline"
    row = read(folder / "op_statistic_20260605155140.csv", "op_statistic")["kernel_totals"].table.iloc[0]
    assert (row.op_type, row["count"], row.max_us, row.share) == ("main_kernel", 3, 83401.66, 1)


def test_op_statistic_with_leading_device(data_samples):
    path = data_samples / "pipeline_two_stages/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/op_statistic.csv"
    row = read(path, "op_statistic")["kernel_totals"].table.iloc[1]
    assert (row.op_type, row.core_type, row.total_us, row.avg_us) == ("MatMulV3", "AI_CORE", 48000.78, 171.431)
