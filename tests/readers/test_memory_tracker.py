"""memory_block.csv and hand-made tables of tensors. The columns are those MindSpore 2.10 wrote; rows are by hand."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.readers.profiles import notes_text, read_text

HEADER = (
    "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_used_memory,actual_peak_memory,file_name,"
    "line_num,type,producer_task,task_name,node_name,graph_name,user_tasks,last_user_task,python_stack,is_persistent,is_small,"
)
ROWS = """
5,17,0x12c0c0013000,0,MindSpore,4096,4096,8192,a.cc,10,Kernel,5,LaunchKernel,Default/MatMul-op1,g,{6-7-},7,File:x.py;Line:3,0,0,
6,9223372036854775807,0x12c0c0014000,1,MindSpore,512,4608,8192,a.cc,11,Weight,6,Init,,g,{},,,1,1,
"""


def test_blocks_of_the_tracker(tmp_path):
    table, notes = read_text(tmp_path, "memory_block.csv", HEADER + ROWS, "memory_block", rank_id=2)["tensor_lifetimes"]
    assert table["name"].tolist() == ["Default/MatMul-op1", "Init"]
    assert table.size_bytes.tolist() == [4096, 512]
    assert table.allocated_at.tolist() == [5, 6]
    assert table.freed_at[0] == 17
    assert table.freed_at.isna().tolist() == [False, True]  # INT64_MAX: never freed
    assert table.clock.eq("task").all()
    assert table.address[1] == "0x12c0c0014000"
    assert table.allocated_total_bytes.tolist() == [4096, 4608]
    assert table.kind.tolist() == ["Kernel", "Weight"]
    assert notes == []


def test_header_alone_is_what_a_cpu_run_writes(tmp_path):
    reading = read_text(tmp_path, "memory_block.csv", HEADER + "\n", "memory_block")["tensor_lifetimes"]
    assert reading.table.empty
    assert "CPU pool" in notes_text(reading)


def test_table_of_an_article_with_times_of_day(tmp_path):
    text = (
        "op_name,tensor_id,size_bytes,alloc_time,free_time,device_id,addr\n"
        "MatMul,1,1048576,1700000000.5,1700000001.25,3,0x10\nAdd,2,2048,1700000000.75,,3,0x20\n"
    )
    table, notes = read_text(tmp_path, "memory_usage.csv", text, "tensor_table")["tensor_lifetimes"]
    assert table.allocated_at.tolist() == [1700000000500000000, 1700000000750000000]
    assert table.freed_at[0] == 1700000001250000000
    assert table.freed_at.isna().tolist() == [False, True]
    assert (table.clock[0], table.device_id[0], table.address[1]) == ("ns", 3, "0x20")
    assert table.size_bytes[0] == 2**20
    assert notes == []


def test_last_uses_of_a_hand_made_table(tmp_path):
    text = "op_name,size_bytes,alloc_time,free_time,last_use_time\nMatMul,8,10,20,15\nAdd,16,11,21,\n"
    table = read_text(tmp_path, "memory_usage.csv", text, "tensor_table")["tensor_lifetimes"].table
    assert table.last_used_at[0] == 15
    assert table.last_used_at.isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("times", "expected", "clock"),
    [
        (("10", "20"), (10, 20), "task"),
        (("1700000000123456789", "1700000000123456790"), (1700000000123456789, 1700000000123456790), "ns"),
        (("1700000000123456.5", "1700000000123457"), (1700000000123456500, 1700000000123457000), "ns"),
        (("1700000000123", "1700000000124"), (1700000000123000000, 1700000000124000000), "ns"),
        (("0.5", "1.25"), (500000, 1250000), "task"),
    ],
)
def test_unit_of_the_times_is_told_by_their_size(tmp_path, times, expected, clock):
    text = f"op_name,size_bytes,alloc_time,free_time\nMatMul,8,{times[0]},{times[1]}\n"
    table = read_text(tmp_path, "memory_usage.csv", text, "tensor_table")["tensor_lifetimes"].table
    assert (table.allocated_at[0], table.freed_at[0]) == expected
    assert table.clock[0] == clock


def test_time_that_is_no_number_is_missing_and_named(tmp_path):
    text = "op_name,size_bytes,alloc_time,free_time\nMatMul,8,x,20\nAdd,16,11,21\n"
    reading = read_text(tmp_path, "memory_usage.csv", text, "tensor_table")["tensor_lifetimes"]
    assert reading.table.allocated_at.isna().tolist() == [True, False]
    assert "no numbers" in notes_text(reading)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_order_and_length_of_lives_survive(tmp_path, lives):
    rows = "".join(f"Op{i},8,{start},{start + length}\n" for i, (start, length) in enumerate(lives))
    text = "op_name,size_bytes,alloc_time,free_time\n" + rows
    table = read_text(tmp_path, "memory_usage.csv", text, "tensor_table")["tensor_lifetimes"].table
    assert (table.freed_at - table.allocated_at).tolist() == [length for _, length in lives]
