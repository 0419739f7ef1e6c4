"""communication.json and communication_matrix.json. Expected values are read in the raw files by eye."""

import json

import pandas as pd
import pytest

from tests.readers.profiles import notes_text, read, read_text

LEVEL1 = "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
STAGES = "pipeline_two_stages/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT"
OF_2023 = "profile_2023/rank_0/ASCEND_PROFILER_OUTPUT"


def test_operations_of_level_1(data_samples):
    table, notes = read(data_samples / LEVEL1 / "communication.json", "communication", rank_id=1)["collectives"]
    assert len(table) == 4  # without Total Op Info
    row = table.iloc[0]
    assert (row.rank_id, row.step, row["name"]) == (1, 50, "hcom_allReduce__586_0_1")
    assert (row.op_type, row.group_id, row.is_p2p) == ("allreduce", "17522688603477080586", False)
    assert row.start_ns == 1736408883732241500
    assert row.elapsed_us == pytest.approx(79089.52021875)
    assert row.transit_us == pytest.approx(239.18478125)
    assert row.wait_us == pytest.approx(5646.63284375)
    assert row.synchronization_us == pytest.approx(5615.69221875)
    assert row.idle_us == pytest.approx(73203.70259375)
    assert row.size_bytes == pytest.approx(28.647232e6)  # HCCS; SDMA repeats it
    assert row.transport == "HCCS"
    assert row.bandwidth_bytes_per_s == pytest.approx(15.7676e9)
    assert notes == []


def test_transit_of_zero_beside_moved_bytes_is_missing(data_samples):
    reading = read(data_samples / STAGES / "communication.json", "communication")["collectives"]
    row = reading.table.iloc[0]
    assert (row["name"], row.op_type, row.is_p2p) == ("hcom_batchSendRecv__128_3_1", "batchsendrecv", True)
    assert pd.isna(row.transit_us)
    assert row.size_bytes == pytest.approx(8.388608e6)
    assert row.bandwidth_bytes_per_s == pytest.approx(20.9234e9)
    assert row.idle_us == pytest.approx(71424.68)
    one_member = reading.table[reading.table["name"] == "hcom_allReduce__534_6_1"].iloc[0]
    assert (one_member.size_bytes, one_member.transit_us) == (0, 0)
    assert pd.isna(one_member.transport)
    assert "moved bytes" in notes_text(reading)


def test_2023_names_and_rdma(data_samples):
    table = read(data_samples / OF_2023 / "communication.json", "communication")["collectives"].table
    assert len(table) == 28  # 1 + 27, without the two Total Op Info
    send = table.iloc[0]
    assert (send["name"], send.op_type, send.is_p2p, send.transport) == ("hcom_send__822_0", "send", True, "RDMA")
    assert send.size_bytes == pytest.approx(20.97152e6)
    broadcast = table[table["name"] == "hcom_broadcast__483_1"].iloc[0]
    assert broadcast.wait_us == pytest.approx(483.87419921875)
    assert broadcast.start_ns == 1695115378722392500


def operation(name, step="step3", group="collective", **parts):
    bandwidth = {t: {"Transit Size(MB)": s, "Bandwidth(GB/s)": b} for t, (s, b) in {"SDMA": (0, 0), **parts}.items()}
    times = {"Elapse Time(ms)": 1, "Transit Time(ms)": 0.5}
    info = {"Communication Time Info": times, "Communication Bandwidth Info": bandwidth}
    return {step: {"p2p": {}, group: {name: info}}}


def first(tmp_path, content):
    text = json.dumps(content)
    return read_text(tmp_path, "communication.json", text, "communication")["collectives"].table.iloc[0]


def test_send_filed_under_collective_by_mindspore_is_a_send(tmp_path):
    row = first(tmp_path, operation("hcom_send__001_0_1@7"))
    assert (row.is_p2p, row.op_type, row.step) == (True, "send", 3)


@pytest.mark.parametrize("step", ["step0", "step"])
def test_writers_without_steps(tmp_path, step):
    assert pd.isna(first(tmp_path, operation("hcom_allReduce__1_0_1@7", step=step)).step)


def test_bytes_of_several_transports(tmp_path):
    row = first(tmp_path, operation("a@7", RDMA=(10, 1), HCCS=(30, 20), PCIE=(2, 3), SDMA=(32, 9)))
    assert row.size_bytes == (10 + 30 + 2) * 1e6
    assert (row.transport, row.bandwidth_bytes_per_s) == ("HCCS", 20e9)
    row = first(tmp_path, operation("a@7", HCCS=(0, 0), SDMA=(5, 4)))
    assert (row.size_bytes, row.transport) == (5e6, "SDMA")


def test_no_collective_took_place(tmp_path):
    text = '{"step0": {"p2p": {}, "collective": {}}}'
    reading = read_text(tmp_path, "communication.json", text, "communication")["collectives"]
    assert reading.table.empty
    assert "no communication operation" in notes_text(reading)


def test_odd_members_are_noted_and_the_rest_is_read(tmp_path):
    content = operation("a@7", HCCS=("many", 20))
    content["step3"]["collective"]["b@7"] = [1]
    content["step4"] = None
    reading = read_text(tmp_path, "communication.json", json.dumps(content), "communication")["collectives"]
    assert reading.table["name"].tolist() == ["a"]
    assert pd.isna(reading.table.size_bytes[0])
    assert "3 members" in notes_text(reading)


def test_start_stays_exact_beside_a_missing_one(tmp_path):
    content = operation("a@7")
    content["step3"]["collective"]["a@7"]["Communication Time Info"]["Start Timestamp(us)"] = 1736408883732241.25
    content["step3"]["collective"]["b@7"] = operation("b@7")["step3"]["collective"]["b@7"]
    text = json.dumps(content)
    table = read_text(tmp_path, "communication.json", text, "communication")["collectives"].table
    assert table.start_ns.tolist() == [1736408883732241250, pd.NA]


def test_links_of_level_1(data_samples):
    table, notes = read(data_samples / LEVEL1 / "communication_matrix.json", "communication_matrix")["links"]
    assert len(table) == 6 * 8
    row = table[(table.statistic == "top1") & (table.dst_rank == 1)].iloc[0]
    assert (row.step, row.op_type, row.op_name) == (50, "allreduce", "hcom_allReduce__586_2_1")
    assert (row.src_rank, row.is_global, row.transport) == (0, False, "HCCS")
    assert row.size_bytes == pytest.approx(37.781504e6)
    assert row.transit_us == pytest.approx(2153.383)
    assert row.bandwidth_bytes_per_s == pytest.approx(17.5452e9)
    local = table[(table.statistic == "top1") & (table.dst_rank == 0)].iloc[0]
    assert (local.transport, local.group_id) == ("LOCAL", "17522688603477080586")
    assert pd.isna(table[table.statistic == "total"].op_name).all()
    assert notes == []


def test_links_between_stages(data_samples):
    table = read(data_samples / STAGES / "communication_matrix.json", "communication_matrix")["links"].table
    row = table[(table.op_type == "batchsendrecv") & (table.statistic == "top1") & (table.dst_rank == 0)].iloc[0]
    assert (row.src_rank, row.op_name) == (1, "hcom_batchSendRecv__128_3_1")
    assert row.bandwidth_bytes_per_s == pytest.approx(20.9234e9)
    assert "reduce" in set(table.op_type)


def test_links_of_2023_have_global_ranks(data_samples):
    table = read(data_samples / OF_2023 / "communication_matrix.json", "communication_matrix")["links"].table
    row = table[(table.op_type == "send") & (table.dst_rank == 8)].iloc[0]
    assert (row.src_rank, row.is_global, row.statistic, row.transport) == (0, True, "op", "RDMA")
    assert row.transit_us == pytest.approx(863.81540625)


def test_op_name_of_mindspore(tmp_path):
    link = {"Transport Type": "HCCS", "Transit Size(MB)": 1, "Transit Time(ms)": 2, "Bandwidth(GB/s)": 3}
    content = {"step1": {"p2p": {}, "collective": {"allgather-middle@9": {"4-5": {**link, "op_name": "x"}}}}}
    text = json.dumps(content)
    row = read_text(tmp_path, "communication_matrix.json", text, "communication_matrix")["links"].table.iloc[0]
    assert (row.op_type, row.statistic, row.op_name, row.src_rank, row.dst_rank) == ("allgather", "middle", "x", 4, 5)
    content["step1"]["collective"] = {"hcom_send__190_0_1@7-top1@7": {"1-0": {**link, "op_name": "hcom_send__190_0_1"}}}
    text = json.dumps(content)
    row = read_text(tmp_path, "communication_matrix.json", text, "communication_matrix")["links"].table.iloc[0]
    assert (row.op_type, row.statistic, row.group_id, row.is_global) == ("send", "top1", "7", False)
