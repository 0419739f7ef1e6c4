"""profiler_info and profiler_metadata of all versions. Expected values are read in the raw files by eye."""

import json

import pytest

from tests.readers.profiles import read, read_text
from workbench.readers.profiler_info import profiled_rank


def values(readings):
    return readings["settings"].table.set_index("name").value


def test_torch_npu(data_samples):
    path = data_samples / "pipeline_two_stages/rank_2_ascend_pt/profiler_info_2.json"
    table, notes = read(path, "profiler_info", rank_id=7)["settings"]
    found = table.set_index("name").value
    assert found["cann_version"] == "8.3.RC1"
    assert found["config.experimental_config._profiler_level"] == "Level2"
    assert found["config.common_config.record_shapes"] == "true"
    assert found["config.experimental_config._export_type"] == '["text"]'
    assert "config.experimental_config._gc_detect_threshold" not in found  # null
    assert table.rank_id.eq(2).all()  # that of the file counts
    assert table.source[0] == "profiler_info_2.json"
    assert notes == []


def test_mindspore_2_0_and_2_2(shared_dir):
    samples = shared_dir / "samples"
    found = values(read(samples / "hypertseng-mindbnb/data/profiler/profiler_info_0.json", "profiler_info"))
    assert (found["ms_version"], found["context_mode"]) == ("2.2.14", "pynative")
    folder = samples / "mindspore-ai-mindinsight/tests/utils/resource/parallel_strategy"
    found = values(read(folder / "profiler_info_0.json", "profiler_info"))
    assert (found["parallel_mode"], found["rank_size"]) == ("auto_parallel", "2")


def test_mindspore_2_5(tmp_path):
    content = {
        "profiler_parameters": {"profiler_level": "Level1", "activities": ["CPU", "NPU"]},
        "ms_profiler_info": {"rank_id": "3", "device_id": "1"},
        "ms_version": "2.10.0",
    }
    table = read_text(tmp_path, "profiler_info_3.json", json.dumps(content), "profiler_info")["settings"].table
    assert table.rank_id.eq(3).all()
    assert table.set_index("name").value["profiler_parameters.profiler_level"] == "Level1"


def test_metadata(data_samples, shared_dir):
    path = data_samples / "pipeline_two_stages/rank_1_ascend_pt/profiler_metadata.json"
    found = values(read(path, "profiler_metadata"))
    assert found["distributed_args.pipeline_model_parallel_size"] == "2"
    assert found["parallel_group_info.group_name_22.global_ranks"] == "[1,3]"
    path = shared_dir / "samples/Ascend-msinsight/test_data/metadata/profiler_metadata.json"
    assert values(read(path, "profiler_metadata"))["distributed_args.tensor_model_parallel_size"] == "2"


def test_metadata_without_any_value_is_noted(data_samples):
    path = data_samples / "level1_two_of_eight/rank0_ascend_pt/profiler_metadata.json"
    table, notes = read(path, "profiler_metadata")["settings"]
    assert table.empty
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("info", "rank"),
    [
        ({"rank_id": 3}, 3),
        ({"rank_id": "0"}, 0),
        ({"ms_profiler_info": {"rank_id": "5"}}, 5),
        ({"distributed_args": {"rank": 2}}, 2),
        ({"rank_id": 4294967295}, None),
        ({"rank_id": "N/A"}, None),
        ({"rank_id": True}, None),
        ({}, None),
        ([], None),
    ],
)
def test_rank(info, rank):
    assert profiled_rank(info) == rank
