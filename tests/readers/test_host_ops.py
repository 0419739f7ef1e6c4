"""api_statistic.csv, dataset.csv and data_preprocess.csv. Expected values are read in the raw files by eye."""

import pytest

from tests.readers.profiles import notes_text, read, read_text


def test_api_statistic(data_samples):
    folder = data_samples / "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    table, notes = read(folder / "api_statistic.csv", "api_statistic")["host_ops"]
    row = table[table["name"] == "aclnnThresholdBackward"].iloc[0]
    assert (row.level, row["count"], row.total_us) == ("acl", 7, 72.95)
    assert (row.avg_us, row.min_us, row.max_us) == (10.421, 6.27, 16.82)
    assert table.level[0] == "communication"  # written as hccl
    assert notes == []


def test_api_statistic_with_leading_device(data_samples, shared_dir):
    folder = data_samples / "pipeline_two_stages/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    row = read(folder / "api_statistic.csv", "api_statistic")["host_ops"].table.iloc[0]
    assert (row.level, row["name"], row.total_us, row.max_us) == ("acl", "ApplyAdamWV2_Tiling", 666.3, 29.17)
    folder = shared_dir / "samples/neo-pan-ascend-msprof-skill/tilelang_baseline"
    row = read(folder / "api_statistic_20260605155140.csv", "api_statistic")["host_ops"].table.iloc[1]
    assert (row.level, row["name"], row["count"], row.avg_us) == ("runtime", "CtxSetSysParamOpt", 1, 8.02)


def test_dataset_events(tmp_path):
    text = (
        "Operation,Stage,Occurrences,Avg. time (us),Custom Info\r\n"
        "Batch,WorkerProcess,4,2.5,\"{'rows': 32}\"\r\nPipeline,,1,7,\r\n"
    )
    table, notes = read_text(tmp_path, "dataset.csv", text, "dataset")["host_ops"]
    assert table["name"].tolist() == ["Batch::WorkerProcess", "Pipeline"]
    assert table.total_us.tolist() == [4 * 2.5, 7]
    assert table.level.tolist() == ["dataset", "dataset"]
    assert notes == []


def test_dataset_with_a_header_alone_is_noted(shared_dir):
    path = shared_dir / "samples/hypertseng-mindbnb/data/profiler/host_info/dataset_0.csv"
    reading = read(path, "dataset")["host_ops"]
    assert reading.table.empty
    assert "no row" in notes_text(reading)


def test_data_preprocess_is_summed_per_operator(tmp_path):
    text = (
        "Device_id,Timestamp(us),Node,Compute_time(us),Memcpy_time(us),Task_time(us),Dispatch_time(us),Total_time(us),"
        "Stream ID,Task ID\n0,1.5,GetNext,1,2,3,4,10,1,1\n0,2.5,Cast,1,1,2,1,3,1,2\n0,3.5,GetNext,1,2,3,4,14,1,3\n"
    )
    table = read_text(tmp_path, "data_preprocess.csv", text, "data_preprocess")["host_ops"].table.set_index("name")
    row = table.loc["GetNext"]
    assert (row.level, row["count"], row.total_us) == ("aicpu", 2, 24)
    assert (row.avg_us, row.min_us, row.max_us) == (pytest.approx((10 + 14) / 2), 10, 14)
    assert table.loc["Cast"].total_us == 3
