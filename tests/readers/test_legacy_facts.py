"""Small files of MindInsight-era profiles, parallel strategy and host_info. Expected values are read by eye."""

import json

import pytest

from tests.readers.profiles import notes_text, read, read_text
from workbench.errors import UnreadableFileError

SINK = "mindinsight_profile/pynative_sink"
MIXED = "mindinsight_profile/mixed"
GPU = "samples/hypertseng-mindbnb/data/profiler"


def values(readings) -> dict[str, str]:
    table = readings["settings"].table
    return dict(zip(table.name, table.value, strict=True))


def test_device_clock_of_ascend_counts_us(data_samples):
    facts = values(read(data_samples / SINK / "start_time_0.txt", "start_time"))
    assert facts["clock.host_monotonic_raw_time_ns"] == "1804859222014740"
    assert facts["clock.device_start_time_ns"] == "1804859222014000"  # the file says 1804859222014 "ns"


def test_device_clock_of_a_gpu_is_the_time_of_day(shared_dir):
    facts = values(read(shared_dir / GPU / "start_time_0.txt", "start_time"))
    assert facts["clock.gpu_start_time_ns"] == "1724861687874962979"


def test_timeline_summary(data_samples):
    facts = values(read(data_samples / SINK / "ascend_timeline_summary_0.json", "timeline_summary"))
    assert facts["timeline.total_us"] == "123221"  # 123.22099999999999 ms
    assert facts["timeline.op_exe_times"] == "25"


def test_step_trace_points(data_samples, tmp_path):
    facts = values(read(data_samples / "mindinsight_profile/resnet_1x/step_trace_point_info.json", "trace_points"))
    assert facts == {"step_trace.fp_start": "Default/Cast-op6", "step_trace.bp_end": "Default/TransData-op7"}
    text = '{"1": {"fp_start": "Default/A-op1", "bp_end": ""}}'
    assert values(read_text(tmp_path, "step_trace_point_info_0.json", text, "trace_points")) == {
        "step_trace.1.fp_start": "Default/A-op1"
    }


def test_flops_summary(data_samples):
    path = data_samples / "mindinsight_profile/pipeline_parallel_rank_0/flops_summary_0.json"
    facts = values(read(path, "flops_summary"))
    assert facts["flops_summary.flops_per_step"] == "107146763000"  # 107146.763 million
    assert facts["flops_summary.flops_per_s"] == "5385552000000"
    assert facts["flops_summary.flops_utilization_share"] == "0.0023"


def test_flops_by_scope(data_samples):
    table = read(data_samples / MIXED / "flops_scope_0.json", "flops_scope")["series"].table
    rows = table.set_index(["row", "column"])
    assert rows.text[1, "parent"] == "Default"
    assert rows.value[1, "flops"] == pytest.approx(4536.56e6)
    assert rows.text[0, "scope"] == "Default"
    assert len(table) == 34 * 3


def test_flops_per_step_is_a_text_file_named_json(tmp_path):
    text = "steps, FLOPS_Utilization %\n1,3.5\n2,4.25\n3,4"
    reading = read_text(tmp_path, "flops_utilization_step_0.json", text, "flops_steps")["series"]
    shares = reading.table[reading.table.column == "flops_utilization_share"].value
    assert shares.tolist() == [pytest.approx(0.035), pytest.approx(0.0425)]
    assert "line 4" in notes_text(reading)


def test_value_that_is_no_number_is_named(tmp_path):
    text = '{"total_time": "x", "num_of_streams": 2, "num_of_ops": 3}'
    readings = read_text(tmp_path, "timeline_summary_0.json", text, "timeline_summary")
    assert values(readings) == {"timeline.num_of_streams": "2", "timeline.num_of_ops": "3"}
    assert "timeline.total_us" in notes_text(readings["settings"])


def test_memory_usage_is_recognised_and_said_not_to_be_read(tmp_path):
    reading = read_text(tmp_path, "memory_usage_0.pb", "\x08\x01", "memory_usage_pb")["memory_timeline"]
    assert reading.table.empty
    assert "not read" in notes_text(reading)


def test_parallel_strategy(data_samples):
    readings = read(data_samples / MIXED / "parallel_strategy_0.json", "parallel_strategy", rank_id=5)
    facts = values(readings)
    assert facts["parallel_strategy.parallelType"] == "auto_parallel"
    assert json.loads(facts["parallel_strategy.stageDevices"]) == [[0, 1]]
    table = readings["graph_ops"].table
    assert table["name"].tolist() == ["Default/GetNext-op767", "Default/conv1-Conv2d/Conv2D-op2"]
    attributes = json.loads(table.attributes[1])
    assert attributes["gen_strategy"] == [[2, 1, 1, 1], [1, 1, 1, 1]]
    assert attributes["stride"] == [1, 1, 2, 2]
    assert json.loads(table.attributes[0])["output_num"] == 2
    assert table.rank_id.eq(0).all()  # the file names its rank


def test_host_info(shared_dir):
    readings = read(shared_dir / GPU / "host_info/host_info_0.csv", "host_info")
    ops = readings["host_ops"].table.set_index("name")
    # DeviceInit starts at ...218598 and ends at ...218885 us
    assert (ops.total_us["DeviceInit"], ops["count"]["DeviceInit"], ops.level["DeviceInit"]) == (287, 1, "runtime")
    assert ops["count"]["OptimizeGraph.SetKernelInfo"] == 19
    assert "memory_timeline" not in readings  # host_memory_0.csv lies beside it


def test_host_memory(shared_dir):
    readings = read(shared_dir / GPU / "host_info/host_memory_0.csv", "host_info")
    memory = readings["memory_timeline"].table
    assert (memory.time_ns[0], memory.reserved_bytes[0]) == (1724861689218598000, 2414468 * 1024)
    assert memory.reserved_bytes.iloc[-1] == 3072460 * 1024
    assert len(memory) == 40
    assert "host_ops" not in readings


def test_host_info_without_its_memory_file_gives_both(tmp_path):
    header = "tid,pid,parent_pid,module_name,event,stage,level,start_end,custom_info,memory_usage(kB),time_stamp(us)\n"
    rows = "1,2,3,Dataset,Batch,Run,1,0,,100,1000\n1,2,3,Dataset,Batch,Run,1,1,,200,1500\n1,2,3,GPU,X,Y,1,0,,300,1600\n"
    readings = read_text(tmp_path, "host_info_0.csv", header + rows, "host_info")
    assert readings["memory_timeline"].table.reserved_bytes.tolist() == [102400, 204800, 307200]
    ops = readings["host_ops"].table.set_index("name")
    assert ops.total_us["Batch.Run"] == 500
    assert ops.total_us.isna()["X.Y"]
    assert "no partner" in notes_text(readings["host_ops"])


def test_file_that_states_nothing_is_unreadable(tmp_path):
    with pytest.raises(UnreadableFileError):
        read_text(tmp_path, "flops_summary_0.json", '{"FLOPs": null, "FLOPS": null}', "flops_summary")
