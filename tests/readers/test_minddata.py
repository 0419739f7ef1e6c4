"""Files of the data pipeline. Expected values are read in the raw files by eye, or counted from their lists."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.profiles import notes_text, read, read_text
from workbench.errors import UnreadableFileError
from workbench.readers.discovery import discover
from workbench.readers.kinds import FileContext
from workbench.readers.minddata import queue_figures, read_pipeline
from workbench.readers.minddata_cpu import aligned

STARVED = "data_pipeline_starved"
SINK = "mindinsight_profile/pynative_sink"


def test_pipeline_profiling_of_a_starved_run(data_samples):
    readings = read(data_samples / STARVED / "pipeline_profiling_0.json", "minddata_pipeline", rank_id=2)
    ops, notes = readings["data_ops"]
    assert ops.op_type.tolist() == ["Batch", "Map", "Generator"]
    assert ops.parent_id[1:].tolist() == [0, 1]
    assert ops.parent_id.isna().tolist() == [True, False, False]
    assert ops.num_workers.tolist() == [2, 1, 1]
    # Batch: 0 0 1 2 0 0 0 0 0 0 0; Generator: ten times 16, once 7
    assert ops.queue_mean.tolist() == [pytest.approx(3 / 11), 0, pytest.approx(167 / 11)]
    assert ops.queue_fill_share[2] == pytest.approx(167 / 11 / 16)
    assert ops.queue_empty_share.tolist() == [pytest.approx(9 / 11), 1, 0]
    assert ops.samples.tolist() == [11, 11, 11]
    assert ops.sample_interval_us.tolist() == [100_000] * 3
    samples = readings["data_queue_samples"].table
    assert len(samples) == 33
    assert samples[(samples.op_id == 2) & (samples["sample"] == 10)].queue_size.item() == 7
    assert samples.rank_id.eq(2).all()
    assert notes == []


def test_pipeline_profiling_with_an_epoch_operator_on_top(shared_dir):
    path = shared_dir / "samples/mindspore-ai-mindinsight/tests/utils/resource/profiler/pipeline_profiling_0.json"
    ops = read(path, "minddata_pipeline")["data_ops"].table.set_index("op_id")
    assert ops.op_type[4] == "EpochCtrl"
    assert np.isnan(ops.queue_capacity[4])
    assert ops.parent_id[0] == 4
    assert (ops.queue_mean[0], ops.queue_capacity[3], ops.num_workers[3]) == (1, 128, 8)  # size [0, 2]


def test_raw_table_has_the_same_figures_as_its_source(data_samples):
    raw = read(data_samples / STARVED / "minddata_pipeline_raw_0.csv", "minddata_pipeline_raw")
    source = read(data_samples / STARVED / "pipeline_profiling_0.json", "minddata_pipeline")
    for table in ("data_ops", "data_queue_samples"):
        pd.testing.assert_frame_equal(raw[table].table, source[table].table)
    assert raw["data_ops"].notes == []


def test_raw_table_of_sink_mode(data_samples):
    ops = read(data_samples / SINK / "minddata_pipeline_raw_0.csv", "minddata_pipeline_raw")["data_ops"].table
    assert ops.op_type.tolist() == ["DataQueue", "Generator"]
    assert (ops.queue_mean[1], ops.queue_fill_share[1], ops.samples[1]) == (3, 0.1875, 1)
    assert ops.queue_mean.isna().tolist() == [True, False]


def test_raw_table_lists_a_filter_of_early_files(shared_dir):
    path = (
        shared_dir / "samples/mindspore-ai-mindinsight/tests/ut/profiler/analyser/resource/minddata_pipeline_raw_1.csv"
    )
    ops = read(path, "minddata_pipeline_raw")["data_ops"].table.set_index("op_id")
    assert ops.queue_mean[4] == (10 + 20 + 30 + 20) / 4
    assert (ops.queue_fill_share[3], ops.parent_id[3], ops.sample_interval_us[3]) == (0.9375, 1, 10_000)


@pytest.mark.parametrize(("end", "kind"), [("csv", "minddata_summary_csv"), ("json", "minddata_summary_json")])
def test_summary_in_both_forms(data_samples, end, kind):
    readings = read(data_samples / STARVED / f"minddata_pipeline_summary_0.{end}", kind)
    ops, notes = readings["data_ops"]
    assert ops.op_type.tolist() == ["Batch", "Map", "Generator"]
    assert ops.queue_mean.tolist() == [0.27, 0.0, 15.18]
    assert ops.queue_fill_share.tolist() == [pytest.approx(0.0169), 0.0, pytest.approx(0.9488)]
    assert ops.queue_empty_share[0] == pytest.approx(0.8182)
    assert ops.cpu_share.tolist() == [0.0, pytest.approx(0.0264), pytest.approx(0.0391)]
    assert ops.parent_id.isna().tolist() == [True, False, False]  # -1 at the root
    times = readings["host_ops"].table.set_index("name").avg_us
    assert times["pipeline time per batch"] == pytest.approx(29161)
    assert times["batch time per batch"] == pytest.approx(37145)
    settings = readings["settings"].table.set_index("name").value
    assert settings["minddata.bottleneck_warning"] == "Batch(id=0)"
    assert notes == []


def test_iterator_profiling(data_samples):
    table, notes = read(data_samples / STARVED / "dataset_iterator_profiling_0.txt", "minddata_batches")["data_batches"]
    assert len(table) == 32
    sixth = table.set_index("batch").loc[6]
    assert (sixth.pipeline_us, sixth.push_us, sixth.total_us) == (33_000, 0, 33_000)
    assert (sixth.queue_size, sixth.queue_capacity, sixth.time_us) == (0, 16, 747_360_000)
    assert table.queue_size[1] == 3
    assert notes == []


def test_device_queue_profiling(data_samples):
    table = read(data_samples / SINK / "device_queue_profiling_0.txt", "minddata_batches")["data_batches"].table
    assert table.batch.tolist() == [1, 2]
    assert table.push_us.tolist() == [62_000, 0]
    assert table.pipeline_us.tolist() == [2_000, 1_000]
    assert table.total_us.tolist() == [64_000, 1_000]
    assert table.queue_size.tolist() == [0, 3]


def test_four_integers_a_line_of_early_versions(shared_dir):
    folder = shared_dir / "samples/mindspore-ai-mindinsight/tests/utils/resource/run_2/normal_run/profiler"
    table = read(folder / "dataset_iterator_profiling_1.txt", "minddata_batches")["data_batches"].table
    assert (table.batch[0], table.queue_capacity[0], table.queue_size[0]) == (1, 64, 3)
    assert table.time_us.isna().all()


def test_dequeues_of_the_device(data_samples):
    table, notes = read(data_samples / SINK / "minddata_aicpu_0.txt", "minddata_dequeues")["data_batches"]
    assert table.device_wait_us.tolist() == [144823428813 - 144823312317, 1, 1, 0]
    assert table.device_queue_size.tolist() == [0, 3, 2, 1]
    assert table.time_us[3] == 144839224381
    assert notes == []


def test_torn_and_foreign_lines_of_batches_are_named(tmp_path):
    text = "0 0 1 5 100\n0 1 1 0 100\nnonsense\n0 2 1 5 100\n1 16 1 2 100\n0 0 2 7 11"
    reading = read_text(tmp_path, "dataset_iterator_profiling_0.txt", text, "minddata_batches")["data_batches"]
    assert reading.table.batch.tolist() == [1]
    assert reading.table.total_us.tolist() == [5000]
    assert "line 3" in notes_text(reading)
    assert "line 6" in notes_text(reading)


def test_cpu_file_of_2_10_with_doubled_host_samples(data_samples):
    readings = read(data_samples / STARVED / "minddata_cpu_utilization_0.json", "minddata_cpu")
    samples = readings["data_queue_samples"].table
    generator = samples[samples.op_id == 2].set_index("sample")
    assert generator.system_cpu_share[5] == 0.07
    assert generator.user_cpu_share[7] == 0.08
    assert generator.time_us[10] == 748_199_000
    assert generator.user_cpu_share.isna().tolist() == [True] + [False] * 10  # nothing is measured before sample 1
    cpu = readings["data_ops"].table.set_index("op_id").cpu_share
    # Generator: user 7 7 8 7, system 7 7 in ten samples, per cent of one core
    assert cpu[2] == pytest.approx((7 + 7 + 8 + 7 + 7 + 7) / 10 / 100)
    host = readings["telemetry"].table
    user = host[host.metric == "host_cpu_user_share"]
    assert user.value.tolist() == [
        0.32,
        0.38,
        0.48,
        0.39,
        0.12,
    ]  # list cut to 11 of 22 entries: six samples, first none
    idle = host[host.metric == "host_cpu_idle_share"].value
    assert idle.tolist() == [0.56, 0.42, 0.44, 0.46, 0.81, 0.79, 0.84, 0.81, 0.85, 0.81]
    assert user.time_us.tolist()[0] == 746_992_000
    process = host[host.metric == "process_cpu_user_cores"].value
    assert process.tolist()[:2] == [0.64, 0.75]
    rss = host[host.metric == "process_rss_bytes"].value
    assert rss.iloc[0] == 400.77734375 * 1024**2
    assert readings["data_queue_samples"].notes == []


def test_cpu_file_with_one_sample(data_samples):
    readings = read(data_samples / SINK / "minddata_cpu_utilization_0.json", "minddata_cpu")
    host = readings["telemetry"].table.set_index("metric").value
    assert host["host_runnable_processes"] == 37
    assert host["process_rss_bytes"] == 1196.375 * 1024**2
    assert host["host_memory_total_bytes"] == 784629.9375 * 1024**2
    assert host["host_processors"] == 192
    assert "host_cpu_user_share" not in host  # one sample: nothing was measured
    assert readings["data_ops"].table.cpu_share.isna().all()


def test_cpu_file_of_early_versions_has_one_entry_less(tmp_path):
    value = {
        "cpu_processor_num": 4,
        "sampling_interval": 10,
        "time_stamp": [100, 110, 120],
        "device_info": {
            "user_utilization": [0, 25, 50],
            "idle_utilization": [0, 75, 50],
            "runnable_process": [1, 2, 3],
        },
        "op_info": [
            {"op_id": -1, "metrics": {"user_utilization": [5, 5], "sys_utilization": [1, 1]}},
            {"op_id": 0, "metrics": {"user_utilization": [80, 60], "sys_utilization": [20, 20]}},
        ],
        "process_info": {"user_utilization": [100, 150], "sys_utilization": [20, 30]},
    }
    readings = read_text(tmp_path, "minddata_cpu_utilization_0.json", json.dumps(value), "minddata_cpu")
    samples = readings["data_queue_samples"].table
    operator = samples[samples.op_id == 0]
    assert operator.user_cpu_share.tolist()[1:] == [0.8, 0.6]
    assert operator.time_us.tolist() == [100_000, 110_000, 120_000]
    ops = readings["data_ops"].table
    assert ops.op_id.tolist() == [0]  # the other threads are no operator
    assert ops.cpu_share.tolist() == [pytest.approx((0.8 + 0.2 + 0.6 + 0.2) / 2)]
    host = readings["telemetry"].table
    assert host[host.metric == "host_cpu_user_share"].value.tolist() == [0.25, 0.5]
    assert host[host.metric == "process_cpu_user_cores"].value.tolist() == [1.0, 1.5]
    assert host[host.metric == "host_runnable_processes"].value.tolist() == [1, 2, 3]


def test_cut_pipeline_keeps_the_operators_before_the_cut(data_samples, tmp_path):
    text = (data_samples / STARVED / "pipeline_profiling_0.json").read_text()
    cut = text[: text.index('"op_id":2')]
    reading = read_text(tmp_path, "pipeline_profiling_0.json", cut, "minddata_pipeline")["data_ops"]
    assert reading.table.op_id.tolist() == [0, 1]
    assert "cut" in notes_text(reading)


def test_pipeline_without_operators_is_unreadable(tmp_path):
    path = tmp_path / "pipeline_profiling_0.json"
    path.write_text('{"op_info":[],"sampling_interval":10}')
    with pytest.raises(UnreadableFileError, match="names no operator"):
        read_pipeline(path, FileContext())


@given(st.lists(st.integers(0, 16), min_size=1, max_size=50))
def test_shares_of_a_queue_lie_between_0_and_1(sizes):
    figures = queue_figures(np.array(sizes, float), 16, 1000)
    assert 0 <= figures["queue_fill_share"] <= 1
    assert figures["queue_empty_share"] == sum(s == 0 for s in sizes) / len(sizes)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_doubled_samples_are_undone(values):
    doubled = np.array([v for value in values for v in (value, 0)], float)
    assert aligned(doubled, len(values), measured_between=False).tolist() == [float(v) for v in values]


@pytest.mark.parametrize(
    ("place", "rank"),
    [
        ("profiler/pipeline_profiling_3.json", 3),
        ("minddata_cpu_utilization_2.json", 2),
        ("datapipe/rank_5/pipeline_profiling_0.json", 5),  # the folder of our own runs says more than the file
    ],
)
def test_rank_of_data_files_is_in_their_name_or_folder(data_samples, tmp_path, place, rank):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    name = "minddata_cpu_utilization_0.json" if "cpu" in place else "pipeline_profiling_0.json"
    path.write_bytes((data_samples / STARVED / name).read_bytes())
    assert [source.rank_id for source in discover(tmp_path).sources] == [rank]
