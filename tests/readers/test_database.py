"""SQLite databases of profiles. Expected values are selected from the raw tables by hand."""

import hashlib
import shutil
import sqlite3
from contextlib import closing

import pandas as pd
import pytest

from tests.readers.profiles import notes_text, read
from workbench.errors import UnreadableFileError
from workbench.readers.database import database_rank, read_database
from workbench.readers.kinds import FileContext

KIND = "profiler_database"


@pytest.fixture(scope="module")
def torch_npu_path(shared_dir):
    folder = shared_dir / "samples/Ascend-msinsight/data/pytorch/db/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    return folder / "ascend_pytorch_profiler_0.db"


@pytest.fixture(scope="module")
def torch_npu(torch_npu_path):
    return read(torch_npu_path, KIND)


def test_analysis_step_times(data_samples):
    path = data_samples / "level1_database/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/analysis.db"
    readings = read(path, KIND, rank_id=1)
    row = readings["step_time"].table.iloc[0]
    assert (row.rank_id, row.step, row.computing_us, row.free_us) == (1, 50, 8915.634, 25840.499)
    assert (row.communication_us, row.stage_us, row.preparing_us) == (98590.19, 129312.183, 17512.827)
    assert pd.isna(row.bubble_us)


def test_analysis_operations_and_links(data_samples):
    readings = read(data_samples / "level1_database/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/analysis.db", KIND)
    assert set(readings) == {"step_time", "collectives", "links"}
    table = readings["collectives"].table
    row = table.iloc[0]
    assert (len(table), row["name"], row.step, row.start_ns) == (4, "hcom_allReduce__210_0_1", 50, 1736410576431645250)
    assert row.elapsed_us == pytest.approx(88750.99321875)
    assert row.wait_us == pytest.approx(3568.89128125)
    assert row.size_bytes == pytest.approx(28.647232e6)
    assert row.bandwidth_bytes_per_s == pytest.approx(15.7239e9)
    links = readings["links"].table
    row = links.iloc[0]
    assert (len(links), row.statistic, row.transport, row.is_global) == (48, "top1", "LOCAL", False)
    assert row.bandwidth_bytes_per_s == pytest.approx(496.2378e9)
    assert row.transit_us == pytest.approx(8.32015625)
    assert [n for r in readings.values() for n in r.notes] == []


def test_analysis_at_level_0(shared_dir):
    folder = shared_dir / "samples/Ascend-msinsight/data/pytorch/db/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    readings = read(folder / "analysis.db", KIND)
    assert set(readings) == {"step_time"}
    row = readings["step_time"].table.iloc[0]
    assert (row.computing_us, row.preparing_us) == (8843.91, 16681.808)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_database_and_text_export_of_one_capture_agree(shared_dir, rank):
    folder = shared_dir / f"samples/Ascend-msinsight/st/level2/rank_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT"
    readings = read(folder / "analysis.db", KIND)
    operations = read(folder / "communication.json", "communication")["collectives"].table
    order = ["start_ns", "name"]
    expected = operations.sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(readings["collectives"].table.sort_values(order, ignore_index=True), expected)
    links = read(folder / "communication_matrix.json", "communication_matrix")["links"].table
    order = ["group_id", "op_type", "statistic", "src_rank", "dst_rank"]
    expected = links.sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(readings["links"].table.sort_values(order, ignore_index=True), expected)
    steps = read(folder / "step_trace_time.csv", "step_trace_time")["step_time"].table
    columns = ["step", "computing_us", "communication_us", "free_us"]
    pd.testing.assert_frame_equal(readings["step_time"].table[columns], steps[columns])


def test_kernels(torch_npu):
    table, notes = torch_npu["kernels"]
    assert len(table) == 187 + 4  # COMPUTE_TASK_INFO and COMMUNICATION_OP
    row = table.iloc[0]
    assert (row["name"], row.op_type, row.accelerator_core) == ("trans_TransData_0", "TransData", "AI_VECTOR_CORE")
    assert row.start_ns == 1736410576404465403
    assert row.duration_us == pytest.approx((1736410576404519164 - 1736410576404465403) / 1000)
    assert (row.step, row.stream_id, row.task_id, row.device_id, row.block_num) == (50, 2, 11063, 0, 32)
    assert row.input_shapes == "32,3,224,224"
    assert (row.aiv_cycles, row.aicore_us) == (2874988, 0)
    conv = table[table["name"] == "Conv2D1"].iloc[0]
    assert (conv.accelerator_core, conv.input_shapes) == ("AI_CORE", "32,1,224,224,8;121,4,16,8;64")
    collective = table[table.is_communication].iloc[0]
    assert (collective["name"], collective.accelerator_core) == ("hcom_allReduce__210_0_1", "COMMUNICATION")
    assert collective.duration_us == pytest.approx((1736410576520382799 - 1736410576431631806) / 1000)
    assert notes == []


def test_memory(torch_npu):
    table = torch_npu["memory_timeline"].table
    first = table.iloc[0]
    assert (first.component, first.time_ns, first.device) == ("PTA", 1736410576394583320, "NPU:0")
    assert (first.allocated_bytes, first.reserved_bytes, first.active_bytes) == (981462016, 1522532352, 981462016)
    assert table[table.component == "APP"].reserved_bytes.iloc[0] == 2212077568
    assert table[table.component == "GE"].reserved_bytes.max() == 78381056
    assert table[table.component == "module:SLOG"].time_ns.iloc[0] == 1736410576357979490
    lifetimes = torch_npu["tensor_lifetimes"].table
    row = lifetimes.iloc[2]
    assert (row["name"], row.size_bytes) == ("aten::_convolution", 25609728)
    assert (row.allocated_at, row.freed_at, row.clock) == (1736410576401535490, 1736410576436342580, "ns")
    assert pd.isna(lifetimes.freed_at[0])


def test_calls_clock_and_settings(torch_npu):
    calls = torch_npu["host_ops"].table
    row = calls[calls["name"] == "aclrtSynchronizeDevice"].iloc[0]
    assert (row.level, row["count"], row.total_us) == ("acl", 1, pytest.approx(222.93))
    assert calls["count"].sum() == 710  # rows of CANN_API
    clock = torch_npu["telemetry"].table
    assert clock.value.tolist() == [1800, 1800, 1800]
    assert (clock.time_ns[0], clock.host[0]) == (1736410576284680000, "ubuntu")
    settings = torch_npu["settings"].table.set_index("name").value
    assert (settings["npu.0"], settings["SCHEMA_VERSION"]) == ("Ascend910B", "1.0.0")


def test_collectives_of_a_database_that_stands_alone(torch_npu, torch_npu_path, tmp_path):
    assert "collectives" not in torch_npu  # analysis.db beside it tells more
    shutil.copy(torch_npu_path, tmp_path / "ascend_mindspore_profiler_0.db")
    table = read(tmp_path / "ascend_mindspore_profiler_0.db", KIND)["collectives"].table
    row = table.iloc[1]
    assert (row["name"], row.op_type, row.start_ns) == ("hcom_allReduce__210_1_1", "allreduce", 1736410576520386579)
    assert row.elapsed_us == pytest.approx((1736410576522566903 - 1736410576520386579) / 1000)
    assert pd.isna(row.wait_us)
    assert database_rank(tmp_path / "ascend_mindspore_profiler_0.db") == 0


def test_database_that_a_viewer_changed(data_samples):
    readings = read(data_samples / "profile_2023/msprof/msprof_0.db", KIND)
    row = readings["kernels"].table.iloc[0]
    assert (row["name"], row.block_num) == ("aclnnInplaceZero_ZerosLikeAiCore_ZerosLike", 48)
    assert row.duration_us == pytest.approx((1698220811392966786 - 1698220811392354694) / 1000)
    assert (row.device_id, row.task_id) == (2, 17458)
    memory = readings["memory_timeline"].table
    assert (len(memory), memory.allocated_bytes[2]) == (494, 6422528)
    assert database_rank(data_samples / "profile_2023/msprof/msprof_0.db") is None


def test_files_are_never_changed(data_samples, tmp_path):
    path = tmp_path / "analysis.db"
    shutil.copy(data_samples / "level1_database/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/analysis.db", path)
    before = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
    read(path, KIND)
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["analysis.db"]


def test_cluster_database(tmp_path):
    path = tmp_path / "cluster_analysis.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            """
            CREATE TABLE ClusterStepTraceTime (step TEXT, type TEXT, "index" TEXT, computing REAL, free REAL);
            INSERT INTO ClusterStepTraceTime VALUES ('5', 'rank', '3', 100.5, 7), ('5', 'stage', '(0, 3)', 101, 8);
            CREATE TABLE ClusterCommunicationTime (step TEXT, rank_id INTEGER, hccl_op_name TEXT, group_name TEXT,
              start_timestamp REAL, elapsed_time REAL, transit_time REAL, wait_time REAL);
            INSERT INTO ClusterCommunicationTime VALUES ('step5', 3, 'hcom_allReduce__1_0_1', '77', 1000.5, 2, 0.5, 1),
              ('step5', 3, 'Total Op Info', '77', NULL, 2, 0.5, 1);
            CREATE TABLE ClusterCommunicationBandwidth (step TEXT, rank_id INTEGER, hccl_op_name TEXT, group_name TEXT,
              band_type TEXT, transit_size REAL, bandwidth REAL, package_size REAL);
            INSERT INTO ClusterCommunicationBandwidth VALUES
              ('step5', 3, 'hcom_allReduce__1_0_1', '77', 'HCCS', 6, 12, 1),
              ('step5', 3, 'hcom_allReduce__1_0_1', '77', 'HCCS', 6, 12, 2);
            CREATE TABLE ClusterCommunicationMatrix (step TEXT, hccl_op_name TEXT, group_name TEXT, src_rank INTEGER,
              dst_rank INTEGER, transport_type TEXT, transit_size REAL, transit_time REAL, bandwidth REAL);
            INSERT INTO ClusterCommunicationMatrix VALUES ('step5', 'allreduce-total', '77', 3, 4, 'HCCS', 6, 0.5, 12);
            """
        )
        db.commit()
    readings = read(path, KIND)
    step = readings["step_time"].table
    assert (step.rank_id.tolist(), step.computing_us.tolist(), step.step.tolist()) == ([3], [100.5], [5])
    operation = readings["collectives"].table
    assert operation[["rank_id", "elapsed_us", "size_bytes", "start_ns"]].values.tolist() == [[3, 2000, 6e6, 1000500]]
    link = readings["links"].table.iloc[0]
    assert (link.rank_id, link.dst_rank, link.is_global, link.statistic) == (3, 4, True, "total")


def test_text_in_number_columns_is_missing_with_a_note(tmp_path):
    path = tmp_path / "analysis.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE StepTraceTime (step, computing, free); INSERT INTO StepTraceTime VALUES ('1', 'oops', '2.5')"
        )
        db.commit()
    reading = read(path, KIND)["step_time"]
    assert pd.isna(reading.table.computing_us[0])
    assert reading.table.free_us[0] == 2.5
    assert "1 values are not numbers" in notes_text(reading)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 8192, b"hello"])
def test_what_is_no_database_is_an_error_with_a_fix(tmp_path, content):
    path = tmp_path / "analysis.db"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match="Fix:"):
        read(path, KIND)
    with pytest.raises(UnreadableFileError, match="Fix:"):
        read_database(tmp_path / "absent.db", FileContext())


def test_database_without_a_profile_is_an_error(tmp_path):
    path = tmp_path / "analysis.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE other (a)")
        db.commit()
    with pytest.raises(UnreadableFileError, match="other"):
        read(path, KIND)


def test_waiting_journal_is_noted(data_samples, tmp_path):
    path = tmp_path / "analysis.db"
    shutil.copy(data_samples / "level1_database/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/analysis.db", path)
    path.with_name("analysis.db-wal").write_bytes(b"x")
    assert "-wal" in "".join(notes_text(r) for r in read(path, KIND).values())
