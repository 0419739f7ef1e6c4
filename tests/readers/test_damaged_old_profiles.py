"""Torture: mutated real files of MindInsight-era profiles, data pipelines, CPU profiles, summaries and trackers."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.mutations import (
    BYTE_MUTATIONS,
    TABLE_MUTATIONS,
    TEXT_MUTATIONS,
    check_contract,
    check_nothing_invented,
    mutate,
)
from tests.readers.profiles import kind_of
from workbench.readers.kinds import FileContext

SEEDS = 66  # each of the 22 mutations of tables comes first three times
DATA_SAMPLES = Path(__file__).parents[2] / "data_samples"
OLD = "mindinsight_profile"
CPU = "cpu_profile/vm_9302_20261129160141866_ascend_ms/FRAMEWORK"
TABLE_SAMPLES = (
    f"{OLD}/one_collective/step_trace_raw_6_detail_time.csv",
    f"{OLD}/one_collective/hccl_raw_6.csv",
    f"{OLD}/pipeline_parallel_rank_0/ascend_cluster_analyse_pipeline-parallel_2_4_0.csv",
    f"{OLD}/resnet_1x/aicore_intermediate_1_detail.csv",
    f"{OLD}/resnet_1x/aicore_intermediate_1_type.csv",
    f"{OLD}/resnet_1x/framework_raw_1.csv",
    f"{OLD}/pynative_sink/pynative_op_intermediate_0_type.csv",
    f"{OLD}/pynative_sink/minddata_pipeline_raw_0.csv",
    f"{OLD}/pynative_sink/output_timeline_data_0.txt",
    f"{CPU}/cpu_op_detail_info_0.csv",
    f"{CPU}/cpu_op_type_info_0.csv",
    f"{CPU}/cpu_ms_memory_record_0.txt",
    "data_pipeline_starved/minddata_pipeline_raw_0.csv",
    "data_pipeline_starved/minddata_pipeline_summary_0.csv",
)
TEXT_SAMPLES = (
    f"{OLD}/resnet_1x/output_op_compute_time_1.txt",
    f"{OLD}/resnet_1x/step_trace_point_info.json",
    f"{OLD}/resnet_1x/timeline_summary_1.json",
    f"{OLD}/pipeline_parallel_rank_0/flops_summary_0.json",
    f"{OLD}/pynative_sink/device_queue_profiling_0.txt",
    f"{OLD}/pynative_sink/minddata_aicpu_0.txt",
    f"{OLD}/pynative_sink/minddata_cpu_utilization_0.json",
    f"{OLD}/pynative_sink/start_time_0.txt",
    f"{OLD}/mixed/dynamic_shape_info_0.json",
    f"{OLD}/mixed/flops_0.txt",
    f"{OLD}/mixed/flops_scope_0.json",
    f"{OLD}/mixed/output_data_preprocess_aicpu_0.txt",
    f"{OLD}/mixed/parallel_strategy_0.json",
    f"{CPU}/cpu_framework_0.txt",
    f"{CPU}/cpu_op_execute_timestamp_0.txt",
    "cpu_profile/RuntimeProfilerSummary1795968112863393439.csv",
    "data_pipeline_starved/dataset_iterator_profiling_0.txt",
    "data_pipeline_starved/minddata_cpu_utilization_0.json",
    "data_pipeline_starved/minddata_pipeline_summary_0.json",
    "data_pipeline_starved/pipeline_profiling_0.json",
)
BINARY_SAMPLES = (
    "summary_events/events.out.events.summary.1795968108.0.vm_MS",
    "summary_events/events.out.events.summary.1795968110.0.vm_MS",
)
HAND_MADE = {
    "memory_block.csv": (
        "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,type,task_name,node_name,python_stack,\n"
        "5,17,0x12c0c0013000,0,MindSpore,4096,Kernel,LaunchKernel,Default/MatMul-op1,File:x.py;Line:3,\n"
        "6,9223372036854775807,0x12c0c0014000,1,MindSpore,512,Weight,Init,,,\n"
    ),
    "memory_usage.csv": (
        "op_name,tensor_id,size_bytes,alloc_time,free_time,device_id,addr\n"
        "MatMul,1,1048576,1700000000.5,1700000001.25,3,0x10\nAdd,2,2048,1700000000.75,,3,0x20\n"
    ),
    "grad_reduced_0-1.csv": (
        "vpp_stage,name,step,norm,max\n0,layers.0.weight,0,0.5,0.25\n0,layers.1.weight,1,0.75,0.5\n"
    ),
    "host_info_0.csv": (
        "tid,pid,parent_pid,module_name,event,stage,level,start_end,custom_info,memory_usage(kB),time_stamp(us)\n"
        "1,2,3,Dataset,Batch,Run,1,0,,100,1000\n1,2,3,Dataset,Batch,Run,1,1,,200,1500\n"
    ),
    "gpu_activity_data_0.csv": (
        "name,type,op_full_name,stream_id,block_dim,grid_dim,occurrences,total_duration(us),avg_duration(us),"
        "max_duration(us),min_duration(us)\n"
        '"kernel<2, int>(int*)",cuLaunchKernel,Default/Equal-op15,20,"1,1,1","1,1,1",15,40.606,2.70707,2.751,2.688\n'
    ),
}
# a cut at the end of a line, or of an aggregate over lines, cannot be seen in these
CUT_SAMPLES = tuple(
    sample
    for sample in TABLE_SAMPLES + TEXT_SAMPLES
    if not sample.endswith(("cpu_framework_0.txt", "cpu_op_execute_timestamp_0.txt", ".json"))
    and "analyse" not in sample
    and "intermediate" not in sample
)


def _torture(source, content, folder, mutations, seeds):
    path = folder / source
    path.write_bytes(content)
    kind = kind_of(path)
    for seed in range(seeds):
        damaged, how = mutate(content, seed, mutations)
        path.write_bytes(damaged)
        check_contract(kind, path, f"{source}, {how}")


@pytest.mark.parametrize("sample", TABLE_SAMPLES)
def test_damaged_table(sample, tmp_path):
    source = DATA_SAMPLES / sample
    _torture(source.name, source.read_bytes(), tmp_path, TABLE_MUTATIONS, SEEDS)


@pytest.mark.parametrize("sample", TEXT_SAMPLES)
def test_damaged_text(sample, tmp_path):
    source = DATA_SAMPLES / sample
    _torture(source.name, source.read_bytes(), tmp_path, TEXT_MUTATIONS, SEEDS)


@pytest.mark.parametrize("sample", BINARY_SAMPLES)
def test_damaged_event_file(sample, tmp_path):
    source = DATA_SAMPLES / sample
    _torture(source.name, source.read_bytes(), tmp_path, BYTE_MUTATIONS, SEEDS)


@pytest.mark.parametrize("name", HAND_MADE)
def test_damaged_hand_made_table(name, tmp_path):
    _torture(name, HAND_MADE[name].encode(), tmp_path, TABLE_MUTATIONS, SEEDS)


@pytest.mark.parametrize("sample", CUT_SAMPLES)
@settings(max_examples=15, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_cut_file_invents_nothing(sample, share, tmp_path_factory):
    source = DATA_SAMPLES / sample
    kind = kind_of(source)
    data = source.read_bytes()
    folder = tmp_path_factory.mktemp("cut")
    whole, cut = folder / source.name, folder / "cut" / source.name
    whole.write_bytes(data)
    cut.parent.mkdir()
    beginning = data[: int(share * len(data))]
    cut.write_bytes(beginning)
    how = f"{source.name} cut at {share}"
    expected = kind.read(whole, FileContext(root=folder))
    check_nothing_invented(expected, check_contract(kind, cut, how), how, at_line_end=beginning.endswith(b"\n"))
