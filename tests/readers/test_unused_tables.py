"""Files that are recognised although no table is filled from them."""

import pytest

from tests.readers.profiles import read, read_text
from workbench.errors import UnreadableFileError


def test_recognised(data_samples, shared_dir, tmp_path):
    assert (
        read(data_samples / "level1_two_of_eight/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/l2_cache.csv", "l2_cache") == {}
    )
    folder = shared_dir / "samples/Ascend-msinsight/test_data/test_rank_0/ASCEND_PROFILER_OUTPUT"
    assert read(folder / "operator_details.csv", "operator_details") == {}
    assert read_text(tmp_path, "operator_details.csv", "Name,Input Shapes\r\nMatMul,\r\n", "operator_details") == {}


def test_empty_file_is_reported(tmp_path):
    with pytest.raises(UnreadableFileError, match="0 bytes"):
        read_text(tmp_path, "l2_cache.csv", "", "l2_cache")
