"""Operator files of CPU and GPU profiles. Expected values are read in the raw files by eye."""

import pytest

from tests.readers.profiles import notes_text, read, read_text

CPU = "cpu_profile/vm_9302_20261129160141866_ascend_ms/FRAMEWORK"
GPU = "samples/hypertseng-mindbnb/data/profiler"
FC1 = "Default/network-WithLossCell/_backbone-Net/fc1-Dense/MatMul-op0"


def test_calls_of_a_cpu_profile(data_samples):
    table, notes = read(data_samples / CPU / "cpu_op_execute_timestamp_0.txt", "op_timestamps", window=1)["kernels"]
    assert len(table) == 44  # 22 operators, two calls each
    first = table.iloc[0]
    assert (first["name"], first.op_type, first.accelerator_core) == (FC1, "MatMul", "CPU")
    assert (first.start_ns, first.duration_us, first.stream_id) == (1795968101870863837, 42.503, 0)
    assert first.window == 1
    grad = table[table["name"].str.endswith("act-GELU/Grad_GeLU/GeLUGrad-op0")]
    assert grad.start_ns.tolist() == [1795968101871364711, 1795968101872668727]
    assert grad.duration_us.tolist() == [pytest.approx(15.383), pytest.approx(13.44)]  # 0.015383 ms
    assert not table.is_communication.any()
    assert table.start_ns.is_monotonic_increasing
    assert notes == []


def test_calls_and_totals_of_a_cpu_profile_agree(data_samples):
    calls = read(data_samples / CPU / "cpu_op_execute_timestamp_0.txt", "op_timestamps")["kernels"].table
    totals = read(data_samples / CPU / "cpu_op_detail_info_0.csv", "op_detail_info")["kernel_totals"].table
    expected = calls.groupby("name").duration_us.agg(["sum", "size"])
    joined = totals.set_index("name").join(expected)
    assert joined.total_us.to_numpy() == pytest.approx(joined["sum"].to_numpy(), rel=1e-4)
    assert (joined["count"] == joined["size"]).all()


def test_totals_per_operator_on_cpu_are_ms(data_samples):
    totals, notes = read(data_samples / CPU / "cpu_op_detail_info_0.csv", "op_detail_info")["kernel_totals"]
    row = totals.set_index("name").loc[FC1]
    assert (row.total_us, row.avg_us, row["count"]) == (pytest.approx(61.291), pytest.approx(30.6455), 2)
    assert (row.share, row.side, row.source) == (0.111251, "host", "op_detail_info")
    assert totals.share.sum() == pytest.approx(1, abs=1e-4)
    assert notes == []


def test_totals_per_type_on_cpu_are_ms_without_saying_so(data_samples):
    totals = read(data_samples / CPU / "cpu_op_type_info_0.csv", "op_type_info")["kernel_totals"].table
    matmul = totals.set_index("op_type").loc["MatMul"]
    assert (matmul.total_us, matmul.avg_us, matmul["count"]) == (pytest.approx(361.815), pytest.approx(36.1815), 10)
    assert (matmul.share, matmul.side) == (0.656741, "host")
    assert totals["name"].isna().all()


def test_shapes_of_cpu_calls_are_counted(data_samples):
    table = read(data_samples / CPU / "cpu_framework_0.txt", "op_framework")["graph_ops"].table
    assert (table["name"][0], table.input_shapes[0], table["count"][0]) == ("MatMul-op0", "8,32;64,32;;", 2)
    loss = table[table.op_type == "SparseSoftmaxCrossEntropyWithLogits"]
    assert (loss.input_shapes.item(), loss["count"].item()) == ("8,10;8", 4)
    assert table.graph_id.eq("1340026263").all()
    assert table["count"].sum() == 44


def test_memory_of_a_cpu_profile(data_samples):
    table, notes = read(data_samples / CPU / "cpu_ms_memory_record_0.txt", "cpu_memory")["memory_timeline"]
    assert len(table) == 84
    assert (table.time_ns[0], table.allocated_bytes[0], table.active_bytes[0]) == (1795968101870853872, 6144, 6144)
    assert (table.allocated_bytes[4], table.reserved_bytes[4]) == (10240, 2**30)
    assert table.component.eq("CPU").all()
    assert notes == []


def test_gpu_calls_are_us_and_have_no_thread(shared_dir):
    table, notes = read(shared_dir / GPU / "gpu_op_execute_timestamp_0.txt", "op_timestamps")["kernels"]
    custom = table[table["name"] == "Default/Custom-op10"]
    assert custom.start_ns.iloc[0] == 1724861689765506196
    assert custom.duration_us.tolist()[:3] == [90.656, 100.032, 101.312]
    assert custom.accelerator_core.eq("GPU").all()
    assert table.stream_id.isna().all()
    assert table[table["name"] == "Default/Custom-op4"].duration_us.iloc[-1] == 26611
    assert notes == []


def test_gpu_totals_are_us(shared_dir):
    detail = read(shared_dir / GPU / "gpu_op_detail_info_0.csv", "op_detail_info")["kernel_totals"].table
    row = detail.set_index("name").loc["Default/Custom-op14"]
    assert (row.total_us, row.avg_us, row.side) == (8264.74, 550.982, "device")
    types = read(shared_dir / GPU / "gpu_op_type_info_0.csv", "op_type_info")["kernel_totals"].table
    custom = types.set_index("op_type").loc["Custom"]
    assert (custom.total_us, custom["count"], custom.share) == (46549.2, 120, 0.793588)


def test_gpu_kernels_whose_names_hold_commas(shared_dir):
    table, notes = read(shared_dir / GPU / "gpu_activity_data_0.csv", "gpu_activity")["kernel_totals"]
    name = "Default/Custom-op14/ampere_int32_i16832gemm_int8_128x256_ldg16_stages_64x3_nt"
    row = table.set_index("name").loc[name]
    assert (row.total_us, row.max_us, row.min_us, row["count"]) == (2419.35, 161.661, 161.213, 15)
    assert row.op_type == "Custom"
    assert table["name"].str.contains("kdequant_mm_int32_fp16<4, 128, 512>", regex=False).any()
    assert notes == []


def test_gpu_framework(shared_dir):
    table = read(shared_dir / GPU / "gpu_framework_0.txt", "op_framework")["graph_ops"].table
    row = table.set_index("name").loc["MatMul-op1"]
    assert (row.input_shapes, row["count"], row.graph_id) == ("32,8192;8192,16", 14, "4000000001")


def test_all_calls_but_the_cut_one_are_kept(tmp_path):
    text = "Default/A-op1;HostCpuOps;100,0.5,7 200,0.25,7 \nDefault/AllReduce-op2;HostCpuOps;300,1.5,7 400,2."
    reading = read_text(tmp_path, "cpu_op_execute_timestamp_0.txt", text, "op_timestamps")["kernels"]
    assert reading.table.duration_us.tolist() == [500, 250, 1500]
    assert reading.table.is_communication.tolist() == [False, False, True]
    assert "line 2" in notes_text(reading)


def test_a_broken_call_is_named_and_the_others_kept(tmp_path):
    text = "Default/A-op1;HostCpuOps;100,0.5,7 x,0.25,7 300,0.125,7 \n"
    reading = read_text(tmp_path, "cpu_op_execute_timestamp_0.txt", text, "op_timestamps")["kernels"]
    assert reading.table.start_ns.tolist() == [100, 300]
    assert "line 1" in notes_text(reading)


def test_damaged_header_is_reported_not_passed_over(tmp_path):
    text = "op_typ,type_occ,x\nMatMul,1,2\n"
    path = tmp_path / "cpu_op_type_info_0.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="none of the headers"):
        read(path, "op_type_info")
