"""JSON files of msprof-analyze. Expected values are read in the raw files by eye."""

import json

import pytest

from tests.readers.profiles import notes_text, read, read_text

FOLDER = "profile_2023/cluster_analysis_output"


def test_cluster_communication(data_samples):
    reading = read(data_samples / FOLDER / "cluster_communication.json", "cluster_communication")["collectives"]
    table = reading.table
    assert len(table) == 6  # three operations of two ranks
    assert table.rank_id.tolist() == [0, 1] * 3
    assert table["name"].unique().tolist() == ["hcom_send__822_0", "hcom_broadcast__483_0", "hcom_broadcast__483_1"]
    assert table.start_ns[1] == 1695115378810055500
    assert table.wait_us[3] == pytest.approx(3699.72)
    assert table.idle_us[3] == pytest.approx(4965.56)
    assert table.step.eq(2).all()
    assert "moved bytes" in notes_text(reading)


def test_rank_that_is_no_number_is_noted(tmp_path):
    info = {"Communication Time Info": {"Elapse Time(ms)": 1}, "Communication Bandwidth Info": {}}
    text = json.dumps({"(0, 1)": {"step": {"hcom_allReduce__1_1@2": {"0": info, "x": info}}}})
    reading = read_text(tmp_path, "a.json", text, "cluster_communication")["collectives"]
    assert reading.table.rank_id.tolist() == [0]
    assert "hcom_allReduce__1_1@2/x" in notes_text(reading)


def test_cluster_matrix(data_samples):
    path = data_samples / FOLDER / "cluster_communication_matrix.json"
    table, notes = read(path, "cluster_communication_matrix")["links"]
    assert len(table) == 8  # without the two of Total Op Info
    receive = table[(table.op_type == "receive") & (table.dst_rank == 9)].iloc[0]
    assert (receive.rank_id, receive.src_rank, receive.transport) == (9, 9, "LOCAL")
    assert receive.bandwidth_bytes_per_s == pytest.approx(709.9221e9)
    broadcast = table[(table.op_name == "hcom_broadcast__483_0") & (table.src_rank == 1)].iloc[0]
    assert (broadcast.transit_us, broadcast.size_bytes) == (pytest.approx(1.62), pytest.approx(40))
    assert table.is_global.all()
    assert notes == []


def test_communication_groups(data_samples, shared_dir):
    table = read(data_samples / FOLDER / "communication_group.json", "communication_group")["settings"].table
    values = table.set_index("name").value
    assert values["communication_group.p2p.1"] == "[8,9,10,11,12,13,14,15]"
    old = shared_dir / "samples/Ascend-msinsight/test_data/communication_group/communication_group_old.json"
    values = read(old, "communication_group")["settings"].table.set_index("name").value
    assert values["communication_group.collective.0"] == "[0,1,2,3,4,5,6,7]"
    assert values["communication_group.collective.18"] == "[7]"
