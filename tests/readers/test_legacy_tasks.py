"""Task and operator lists of MindInsight-era profiles. Expected values are read in the raw files by eye."""

import pytest

from tests.readers.profiles import notes_text, read, read_text

RESNET = "mindinsight_profile/resnet_1x"
SINK = "mindinsight_profile/pynative_sink"
MIXED = "mindinsight_profile/mixed"


def test_timeline_data_counts_ms_since_boot(data_samples):
    table, notes = read(data_samples / SINK / "output_timeline_data_0.txt", "output_timeline", rank_id=6)["kernels"]
    assert len(table) == 25
    row = table.set_index("name").loc["Default/GetNext-op1"].iloc[0]
    assert (row.start_ns, row.duration_us, row.stream_id) == (1804868923104000, pytest.approx(117620), 1)
    assert (row.op_type, row.rank_id) == ("GetNext", 6)
    matmul = table.set_index("name").loc["Default/MatMul-op2"]
    assert matmul.duration_us == pytest.approx(236)
    assert notes == []


def test_timeline_data_of_a_resnet_is_exact(shared_dir):
    folder = shared_dir / "samples/mindspore-ai-mindinsight/tests/utils/resource/run_1/normal_run/profiler"
    table = read(folder / "output_timeline_data_1.txt", "output_timeline")["kernels"].table
    assert len(table) == 2817
    assert (table.start_ns[0], table.duration_us[0]) == (438068415920, pytest.approx(2.66))
    assert table.start_ns.iloc[-1] == 441029086070


def test_timeline_data_of_2_2_says_us_above_ms(tmp_path):
    rows = "".join(f"Default/MatMul-op{i},3,{1000.0 + 2 * i},1.5\n" for i in range(4))
    text = "op_name,stream_id,start_time(us),duration(ms)\n" + rows
    table = read_text(tmp_path, "output_timeline_data_0.txt", text, "output_timeline")["kernels"].table
    # 2 us between tasks of 1500 us on one stream cannot be: it is 2 ms
    assert table.start_ns.tolist() == [1_000_000_000, 1_002_000_000, 1_004_000_000, 1_006_000_000]
    assert table.duration_us.tolist() == [1500] * 4


def test_timeline_data_in_us_is_believed_where_it_fits(tmp_path):
    rows = "".join(f"Default/MatMul-op{i},3,{1000.0 + 2000 * i},1.5\n" for i in range(4))
    text = "op_name,stream_id,start_time(us),duration(ms)\n" + rows
    table = read_text(tmp_path, "output_timeline_data_0.txt", text, "output_timeline")["kernels"].table
    assert table.start_ns.tolist() == [1_000_000, 3_000_000, 5_000_000, 7_000_000]


def test_ai_cpu_table_with_six_names(data_samples):
    path = data_samples / MIXED / "output_data_preprocess_aicpu_0.txt"
    table, notes = read(path, "aicpu_text")["kernels"]
    assert table["name"].tolist() == ["InitData", "GetNext", "TruncatedNormal"]
    assert table.start_ns.tolist() == [2298200409000, 2302769932000, 4098200409000]
    assert table.duration_us.tolist() == [129, 48, 129]  # run_end - run_start, us
    assert table.wait_us.tolist() == [pytest.approx(100), pytest.approx(87), pytest.approx(105)]
    assert table.accelerator_core.eq("AI_CPU").all()
    assert notes == []


def test_ai_cpu_table_with_seven_names(shared_dir):
    folder = shared_dir / "samples/mindspore-ai-mindspore_test/tests/ut/data/profiler_data/JOB_AICPU/expect_txt"
    table = read(folder / "output_data_preprocess_aicpu_0.txt", "aicpu_text")["kernels"].table
    assert table.duration_us.tolist() == [pytest.approx(129), pytest.approx(48), pytest.approx(129)]  # 0.129 ms
    assert table.start_ns[2] == 4098200409000


def test_ai_cpu_csv_of_2_2_counts_ms_throughout(tmp_path):
    text = (
        "serial_number,op_type,total_time,dispatch_time,execution_time,run_start,run_end\n"
        "1,GetNext,1.5,0.5,1.0,100000.25,100001.75\n2,InitData,2.5,0.5,2.0,100010.0,100012.5\n"
    )
    table = read_text(tmp_path, "aicpu_intermediate_0.csv", text, "aicpu_csv")["kernels"].table
    assert table.duration_us.tolist() == [1000, 2000]
    assert table.start_ns.tolist() == [100000250000, 100010000000]


def test_framework_of_three_generations(data_samples, shared_dir):
    table, notes = read(data_samples / RESNET / "framework_raw_1.csv", "framework_raw")["graph_ops"]
    assert len(table) == 81
    first = table.iloc[0]
    assert (first["name"], first.op_type, first.task_id, first.stream_id) == (
        "Default/InitDataSetQueue-op0", "InitDataSetQueue", 2, 8,
    )  # fmt: skip
    assert (first.input_shapes, first.input_dtypes, first.graph_id) == ("1;1", "INT32;INT32", "11")
    assert table.output_shapes[2] == "32,1,32,32;32"
    assert notes == []
    older = shared_dir / "samples/Travelguest-Mindinsight/tests/utils/resource/profiler/framework_raw_0.csv"
    table = read(older, "framework_raw")["graph_ops"].table
    assert (table.task_id[1], table.output_shapes[1]) == (51518, "32,1,224,224,16")
    newer = shared_dir / "samples/mindspore-ai-mindinsight/tests/utils/resource/profiler/framework_raw_0.csv"
    table = read(newer, "framework_raw")["graph_ops"].table
    assert (table.op_type[0], table.input_dtypes[0]) == ("Cast", "NUMBER_TYPE_FLOAT32")


def test_broken_json_cell_costs_the_shapes_of_its_row(tmp_path):
    text = 'task_id,stream_id,full_op_name,op_type,op_info\n1,2,Default/A-op1,A,"{broken"\n3,4,Default/B-op2,B,{}\n'
    reading = read_text(tmp_path, "framework_raw_0.csv", text, "framework_raw")["graph_ops"]
    assert reading.table.task_id.tolist() == [1, 3]
    assert "op_info" in notes_text(reading)


def test_dynamic_shapes(data_samples):
    table, notes = read(data_samples / MIXED / "dynamic_shape_info_0.json", "dynamic_shapes")["kernels"]
    assert len(table) == 19
    add = table[table["name"] == "Add-op6"].set_index("step")
    assert (add.duration_us[1], add.duration_us[4]) == (75.616, 18.272)
    assert add.input_shapes[2] == "32,1;32,1"
    assert table.accelerator_core.eq("GPU").all()
    assert notes == []
