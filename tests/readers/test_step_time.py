"""step_trace_time.csv of all versions. Expected values are read in the raw files by eye."""

import pandas as pd
import pytest

from tests.readers.profiles import notes_text, read, read_text

HEADER = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
EXCLUDE = "Communication(Not Overlapped and Exclude Receive)"


def test_level_1_of_2025(data_samples):
    path = data_samples / "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
    table, notes = read(path, "step_trace_time", rank_id=5, window=2)["step_time"]
    row = table.iloc[0]
    assert (row.rank_id, row.window, row.step) == (5, 2, 50)
    assert row.computing_us == pytest.approx(8873.756)
    assert row.communication_not_overlapped_us == 101963.203
    assert row.overlapped_us == pytest.approx(4028.675)
    assert row.communication_us == pytest.approx(105991.878)
    assert row.free_us == pytest.approx(25744.05)
    assert row.stage_us == 136581.0
    assert row.communication_not_overlapped_exclude_receive_us == 101963.203
    assert row.preparing_us == 17902.5
    assert row.bubble_us == 0  # communication.json beside it shows no send: the 0 is a measurement
    assert notes == []


def test_leading_device_column_shifts_nothing_and_zero_bubble_beside_sends_is_unknown(data_samples):
    path = data_samples / "pipeline_two_stages/rank_2_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
    reading = read(path, "step_trace_time", rank_id=2)["step_time"]
    row = reading.table.iloc[0]
    assert row.step == 13
    assert row.computing_us == pytest.approx(400448.26)
    assert row.free_us == pytest.approx(131705.28)
    assert row.preparing_us == 189.0
    assert row.stage_us == 809803.25
    assert pd.isna(row.bubble_us)
    assert "Bubble is 0 although" in notes_text(reading)


def test_2023_without_preparing(data_samples):
    path = data_samples / "profile_2023/rank_0/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
    row = read(path, "step_trace_time")["step_time"].table.iloc[0]
    assert row.step == 2
    assert row.computing_us == 75174.57464453117
    assert row.stage_us == 291698.0
    assert pd.isna(row.preparing_us)


def test_level_0(shared_dir):
    folder = shared_dir / "samples/Ascend-msinsight/data/pytorch/text/level0/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT"
    row = read(folder / "step_trace_time.csv", "step_trace_time")["step_time"].table.iloc[0]
    assert row.computing_us == pytest.approx(8813.173)
    assert row.free_us == pytest.approx(27172.943)
    assert pd.isna(row.bubble_us)  # no communication.json at level 0: unknown


def test_row_without_step_has_junk_in_the_pipeline_columns(tmp_path):
    text = f"{HEADER}{EXCLUDE}\r\n,100.5,20.25,5,25.25,7,1000,990,10\r\n"
    reading = read_text(tmp_path, "step_trace_time.csv", text, "step_trace_time")["step_time"]
    row = reading.table.iloc[0]
    assert (row.computing_us, row.free_us) == (100.5, 7)
    assert row[["step", "stage_us", "bubble_us", "communication_not_overlapped_exclude_receive_us"]].isna().all()
    assert "2.2.14 to 2.4" in notes_text(reading)


def test_zero_stage_is_unknown_and_lone_step_zero_is_no_step(tmp_path):
    text = f"{HEADER}{EXCLUDE},Preparing\r\n0,100.5,20.25,5,25.25,7,0,0,20.25,0\r\n"
    row = read_text(tmp_path, "step_trace_time.csv", text, "step_trace_time")["step_time"].table.iloc[0]
    assert row[["step", "stage_us", "bubble_us"]].isna().all()
    assert row.preparing_us == 0


def test_several_steps_keep_step_zero_and_bubble(tmp_path):
    text = f"{HEADER}{EXCLUDE}\r\n0,1,2,3,5,4,30,6,2\r\n1,1,2,3,5,4,31,0,2\r\n"
    table = read_text(tmp_path, "step_trace_time.csv", text, "step_trace_time")["step_time"].table
    assert table.step.tolist() == [0, 1]
    assert table.bubble_us[0] == 6
    assert pd.isna(table.bubble_us[1])


def test_cluster_rows_of_ranks_only(data_samples):
    path = data_samples / "profile_2023/cluster_analysis_output/cluster_step_trace_time.csv"
    table, notes = read(path, "cluster_step_trace_time")["step_time"]
    assert table.rank_id.tolist() == list(range(16))
    assert table.free_us[15] == pytest.approx(81662.86)
    assert table.bubble_us[8] == 178320.2648359375
    assert pd.isna(table.bubble_us[0])
    assert table.computing_us[1] == 75422.22
    assert notes == []
