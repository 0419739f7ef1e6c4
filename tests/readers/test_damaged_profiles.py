"""Torture: mutated real files of every kind of modern profiler output."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.mutations import BYTE_MUTATIONS, TABLE_MUTATIONS, check_contract, check_nothing_invented, mutate
from tests.readers.profiles import kind_of
from workbench.readers.kinds import FileContext

SEEDS = 88  # each of the 22 mutations comes first four times
DATA_SAMPLES = Path(__file__).parents[2] / "data_samples"
LEVEL1 = "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
STAGES = "pipeline_two_stages/rank_0_ascend_pt"
TEXT_SAMPLES = (
    f"{LEVEL1}/step_trace_time.csv",
    f"{LEVEL1}/kernel_details.csv",
    f"{LEVEL1}/op_statistic.csv",
    f"{LEVEL1}/api_statistic.csv",
    f"{LEVEL1}/memory_record.csv",
    f"{LEVEL1}/operator_memory.csv",
    f"{LEVEL1}/npu_module_mem.csv",
    f"{LEVEL1}/l2_cache.csv",
    f"{LEVEL1}/communication.json",
    f"{LEVEL1}/communication_matrix.json",
    f"{STAGES}/profiler_info_0.json",
    f"{STAGES}/profiler_metadata.json",
    f"{STAGES}/ASCEND_PROFILER_OUTPUT/step_trace_time.csv",
    f"{STAGES}/ASCEND_PROFILER_OUTPUT/communication.json",
    "profile_2023/rank_0/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "profile_2023/msprof/static_op_mem.csv",
    "profile_2023/cluster_analysis_output/cluster_step_trace_time.csv",
    "profile_2023/cluster_analysis_output/cluster_communication.json",
    "profile_2023/cluster_analysis_output/cluster_communication_matrix.json",
    "profile_2023/cluster_analysis_output/communication_group.json",
)
DATABASES = ("level1_database/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/analysis.db", "profile_2023/msprof/msprof_0.db")
CUT_SAMPLES = tuple(
    s for s in TEXT_SAMPLES if not s.endswith(("memory_record.csv", "npu_module_mem.csv", "l2_cache.csv"))
)


@pytest.mark.parametrize("sample", TEXT_SAMPLES)
def test_damaged_text(sample, tmp_path):
    _torture(DATA_SAMPLES / sample, tmp_path, TABLE_MUTATIONS, SEEDS)


@pytest.mark.parametrize("sample", DATABASES)
def test_damaged_database(sample, tmp_path):
    _torture(DATA_SAMPLES / sample, tmp_path, BYTE_MUTATIONS, SEEDS)


def _torture(source, folder, mutations, seeds):
    kind = kind_of(source)
    path = folder / source.name
    for seed in range(seeds):
        damaged, how = mutate(source.read_bytes(), seed, mutations)
        path.write_bytes(damaged)
        check_contract(kind, path, f"{source.name}, {how}")


@pytest.mark.parametrize("sample", CUT_SAMPLES)
@settings(max_examples=25, deadline=None)
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
