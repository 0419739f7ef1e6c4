"""Memory files of a profile. Expected values are read in the raw files by eye."""

import pandas as pd
import pytest

from tests.readers.profiles import read, read_text

LEVEL1 = "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
MIB = 1024 * 1024


def test_memory_record_of_torch_npu_is_in_mebibytes(data_samples):
    table, notes = read(data_samples / LEVEL1 / "memory_record.csv", "memory_record")["memory_timeline"]
    row = table.iloc[498]  # line 500
    assert (row.component, row.device, row.time_ns) == ("PTA", "NPU:0", 1736408883733381740)
    assert row.allocated_bytes == 1077.88818359375 * MIB
    assert row.reserved_bytes == 1452 * MIB
    assert row.active_bytes == 1077.93994140625 * MIB
    app = table[table.component == "APP"].iloc[0]
    assert app.reserved_bytes == 2109.6015625 * MIB
    assert app[["allocated_bytes", "active_bytes"]].isna().all()
    assert notes == []


def test_memory_record_of_2023_without_active(data_samples):
    path = data_samples / "profile_2023/rank_0/ASCEND_PROFILER_OUTPUT/memory_record.csv"
    table = read(path, "memory_record")["memory_timeline"].table
    row = table.iloc[8]
    assert (row.component, row.time_ns) == ("GE", 1695115378979271000)
    assert (row.allocated_bytes, row.reserved_bytes) == (0.25 * MIB, 242 * MIB)
    assert table.active_bytes.isna().all()


def test_memory_record_of_mindspore_divides_by_1000_and_writes_zeros_for_unknown(tmp_path):
    text = (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Device Type\r\n"
        "MindSpore,1736405443870818.960,1000.0,2000.0,1500.0,NPU:0\r\n"
        "GE,1736405443870819.960\t,10.0,20.0,0.0,NPU:0\r\n"
        "MindSpore+GE,1736405443870819.960,0.0,2020.0,1500.0,NPU:0\r\n"
        "APP,1736405443756384.100,0.0,3000.0,0.0,NPU:0\r\n"
    )
    table = read_text(tmp_path, "memory_record.csv", text, "memory_record")["memory_timeline"].table
    assert table.allocated_bytes[0] == pytest.approx(1000 * 1000 * 1024)
    assert table.reserved_bytes[3] == pytest.approx(3000 * 1000 * 1024)
    assert table.active_bytes[0] == pytest.approx(1500 * 1000 * 1024)
    assert table.allocated_bytes.isna().tolist() == [False, False, False, True]
    assert table.active_bytes.isna().tolist() == [False, True, False, True]
    assert table.allocated_bytes[2] == 0
    assert table.time_ns[1] == 1736405443870819960


def test_npu_module_mem(data_samples, shared_dir, tmp_path):
    table, notes = read(data_samples / LEVEL1 / "npu_module_mem.csv", "npu_module_mem")["memory_timeline"]
    assert len(table) == 1078
    assert (table.component[0], table.time_ns[1]) == ("module:SLOG", 1736408883677036730)
    assert notes == []
    folder = shared_dir / "samples/Ascend-msinsight/st/level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    row = read(folder / "npu_module_mem.csv", "npu_module_mem")["memory_timeline"].table.iloc[1]
    assert (row.reserved_bytes, row.time_ns, row.device) == (158.65234375 * MIB, 1764246877096581980, "NPU:0")
    text = "Device_id,Component,Timestamp(us),Total Reserved(KB),Device\n0,HCCL,1.5,64,NPU:0\n0,TS,1.5,-1,NPU:0\n"
    table = read_text(tmp_path, "npu_module_mem.csv", text, "npu_module_mem")["memory_timeline"].table
    assert table.reserved_bytes[0] == 64 * 1024
    assert pd.isna(table.reserved_bytes[1])


def test_operator_memory_with_release(data_samples):
    table, notes = read(data_samples / LEVEL1 / "operator_memory.csv", "operator_memory")["tensor_lifetimes"]
    row = table.iloc[98]  # line 100
    assert (row["name"], row.clock, row.stream_id, row.device_id) == ("format_contiguousV2", "ns", "897357296", 0)
    assert row.size_bytes == 17496.5 * 1024
    assert (row.allocated_at, row.freed_at) == (1736408883736106090, 1736408883736117820)
    assert row.allocated_total_bytes == 1050.60205078125 * MIB
    assert row.reserved_total_bytes == 1452 * MIB
    assert pd.isna(table.freed_at[0])
    assert notes == []


def test_operator_memory_of_2023(data_samples):
    path = data_samples / "profile_2023/rank_0/ASCEND_PROFILER_OUTPUT/operator_memory.csv"
    row = read(path, "operator_memory")["tensor_lifetimes"].table.iloc[1]
    assert (row["name"], row.size_bytes) == ("cann::Graph_89", 64 * 1024)
    assert (row.allocated_at, row.freed_at) == (1695115378728829500, 1695115378728851500)
    assert pd.isna(row.stream_id)


def test_operator_memory_of_mindspore(tmp_path):
    text = (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
        "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Stream Ptr,Device Type\r\n"
        "Default/a,1.5,1736405443870818.9,N/A,N/A,N/A,N/A,10.0,20.0,0,NPU:3\r\n"
    )
    row = read_text(tmp_path, "operator_memory.csv", text, "operator_memory")["tensor_lifetimes"].table.iloc[0]
    assert (row.size_bytes, row.allocated_at, row.device_id) == (1536, 1736405443870818900, 3)
    assert pd.isna(row.freed_at)


def test_static_op_mem_leaves_totals_out(data_samples):
    table, notes = read(data_samples / "profile_2023/msprof/static_op_mem.csv", "static_op_mem")["tensor_lifetimes"]
    assert len(table) == 54  # 56 data rows, two of them TOTAL
    assert (table["name"][0], table.size_bytes[0]) == ("sqrt_01", 2343.78125 * 1024)
    assert (table.allocated_at[0], table.freed_at[0], table.clock[0]) == (31, 32, "task")
    forever = table.iloc[13]  # line 15
    assert (forever["name"], forever.allocated_at) == ("matrixinverse_01", 16)
    assert pd.isna(forever.freed_at)
    assert table.kind.unique().tolist() == ["static graph 0", "static graph 1"]
    assert notes == []
