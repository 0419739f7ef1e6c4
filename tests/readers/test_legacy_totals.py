"""Operator totals of MindInsight-era profiles. Expected values are raw cells, ms as us."""

import pytest

from tests.readers.profiles import notes_text, read, read_text

RESNET = "mindinsight_profile/resnet_1x"
SINK = "mindinsight_profile/pynative_sink"


def test_operators_of_the_ai_core(data_samples):
    table, notes = read(data_samples / RESNET / "aicore_intermediate_1_detail.csv", "intermediate_detail")[
        "kernel_totals"
    ]
    row = table.set_index("name").loc["Default/TransData-op114"]
    assert (row.avg_us, row["count"]) == (pytest.approx(16.093333333), 3)
    assert row.total_us == pytest.approx(3 * 16.093333333)
    assert (row.op_type, row.side, row.source) == ("TransData", "device", "aicore_intermediate_detail")
    assert table.share.sum() == pytest.approx(1)
    assert notes == []


def test_types_of_the_ai_core_are_sums_over_their_operators(data_samples):
    detail = read(data_samples / RESNET / "aicore_intermediate_1_detail.csv", "intermediate_detail")[
        "kernel_totals"
    ].table
    types = read(data_samples / RESNET / "aicore_intermediate_1_type.csv", "intermediate_type")["kernel_totals"].table
    types = types.set_index("op_type")
    assert (types.total_us["MatMul"], types["count"]["Cast"]) == (pytest.approx(2807.82), 27)
    sums = detail.groupby("op_type").total_us.sum()
    assert types.total_us["AssignAdd"] == pytest.approx(sums["AssignAdd"])  # 9.22 us
    assert types.total_us["TransData"] == pytest.approx(sums["TransData"])  # 86.12 us


def test_operators_without_a_frequency_column(shared_dir):
    folder = shared_dir / "samples/Travelguest-Mindinsight/tests/utils/resource/profiler"
    table = read(folder / "aicore_intermediate_1_detail.csv", "intermediate_detail")["kernel_totals"].table
    row = table.set_index("name").loc["Default/TransData-op11"]
    assert row.avg_us == pytest.approx(6.366)
    assert table["count"].isna().all()
    assert table.total_us.isna().all()
    types = read(folder / "aicore_intermediate_1_type.csv", "intermediate_type")["kernel_totals"].table
    assert types.set_index("op_type").total_us["MatMul"] == pytest.approx(1085)


def test_pynative_types_are_means(data_samples):
    table = read(data_samples / SINK / "pynative_op_intermediate_0_type.csv", "intermediate_type")[
        "kernel_totals"
    ].table
    matmul = table.set_index("op_type").loc["MatMul"]
    # calls of output_timeline_data: 0.236 + 0.099 + 0.048 + 0.104 ms = 4 calls of 0.12175 ms
    assert (matmul.avg_us, matmul["count"]) == (pytest.approx(121.75), 4)
    assert matmul.total_us == pytest.approx(487)
    detail = read(data_samples / SINK / "pynative_op_intermediate_0_detail.csv", "intermediate_detail")
    assert detail["kernel_totals"].table.set_index("name").avg_us["GetNext-op1"] == pytest.approx(59148.5)
    assert detail["kernel_totals"].table.source.eq("pynative_intermediate_detail").all()


def test_totals_of_2_2_are_ms_and_their_percent_is_a_fraction(tmp_path):
    detail = "full_op_name,task_duration,execution_frequency,task_type\nDefault/MatMul-op1,0.5,4,AI_CORE\n"
    table = read_text(tmp_path, "aicore_intermediate_0_detail.csv", detail, "intermediate_detail")[
        "kernel_totals"
    ].table
    assert (table.avg_us[0], table.total_us[0], table.core_type[0]) == (500, 2000, "AI_CORE")
    types = "op_type,total_time,execution_frequency,percent\nMatMul,3,4,0.75\nCast,1,2,0.25\n"
    table = read_text(tmp_path, "aicore_intermediate_0_type.csv", types, "intermediate_type")["kernel_totals"].table
    assert table.total_us.tolist() == [3000, 1000]
    assert table.share.tolist() == [0.75, 0.25]


def test_compute_times_below_a_banner(data_samples):
    table, notes = read(data_samples / RESNET / "output_op_compute_time_1.txt", "op_compute_time")["kernel_totals"]
    times = table.set_index("name").avg_us
    assert len(table) == 199
    assert times["Default/network-TrainStepWrap/optimizer_d-Adam/Adam-op202"] == pytest.approx(84.27071428571428)
    assert times["Default/AssignAdd-op414"] == pytest.approx(1.688)
    assert "total op" not in times
    assert notes == []


def test_flops(data_samples):
    reading = read(data_samples / "mindinsight_profile/mixed/flops_0.txt", "flops")["kernel_totals"]
    row = reading.table.set_index("name").loc["Default/Cast-op6"]
    assert (row.flops, row.flops_per_s, row.flops_utilization_share) == (333e6, 333e9, pytest.approx(0.33))
    assert reading.table.flops_utilization_share.isna().tolist() == [False] * 3 + [True]  # the last line has no end
    assert "line 5" in notes_text(reading)


def test_flops_and_speed_are_not_confused(tmp_path):
    text = "op_full_name, MFLOPs(10^6), GFLOPS(10^9), FLOPS utilization(%) \nDefault/MatMul-op1, 12.5, 300.0, 1.5\n"
    table = read_text(tmp_path, "flops_0.txt", text, "flops")["kernel_totals"].table
    assert (table.flops[0], table.flops_per_s[0], table.flops_utilization_share[0]) == (12.5e6, 300e9, 0.015)


def test_lines_that_are_no_operator_are_named(tmp_path):
    text = "full_kernel_name, FLOPs, FLOPS, FLOPS utilization\nDefault/A-op1, 1, 2, 3\nDefault/B-op2, 1, N/A, 3\n"
    reading = read_text(tmp_path, "flops_0.txt", text, "flops")["kernel_totals"]
    assert reading.table["name"].tolist() == ["Default/A-op1"]
    assert "line 3" in notes_text(reading)
