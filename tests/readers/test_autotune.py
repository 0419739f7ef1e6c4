import json

import pytest

from workbench.analyses.pipeline_tuning import setting_of
from workbench.errors import UnreadableFileError
from workbench.readers.autotune import read_autotune

SUMMARY = [
    "GeneratorOp(ID:4)   (num_parallel_workers:NA, prefetch_size:16)",
    "MapOp(ID:3)         (num_parallel_workers: 2, prefetch_size:28)",
    "MapOp(ID:2)         (num_parallel_workers: 1, prefetch_size:16)",
    "BatchOp(ID:1)       (num_parallel_workers: 1, prefetch_size:60)",
]


def test_operators_come_sources_first_with_what_autotune_set(tmp_path):
    path = tmp_path / "tuned_0.json"
    path.write_text(json.dumps({"remark": "made", "summary": SUMMARY, "tree": {}}))
    chosen = read_autotune(path)
    assert chosen.op_id.tolist() == [4, 3, 2, 1]
    assert chosen.op_type.tolist() == ["Generator", "Map", "Map", "Batch"]
    assert chosen.num_workers.isna().tolist() == [True, False, False, False]
    setting = setting_of(chosen)
    assert setting.workers == {"Map#1": 2, "Map#2": 1, "Batch": 1}
    assert setting.prefetch_size == 60


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"summary": []}', '{"summary": ["nothing", 3]}'])
def test_a_file_that_names_no_operator_is_an_error_with_a_fix(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UnreadableFileError, match="Fix: give the file"):
        read_autotune(path)
    with pytest.raises(UnreadableFileError):
        read_autotune(tmp_path / "nowhere.json")
