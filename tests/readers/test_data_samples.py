"""Tables on training data in a run directory: round trip of Parquet, one row per sample of a step, damage."""

import json

import pandas as pd
import pytest

from workbench.errors import UnreadableFileError
from workbench.readers.data_samples import read_data_samples, read_sample_ids
from workbench.readers.kinds import FileContext
from workbench.tables import DATA_SAMPLES


def test_one_row_per_sample_of_a_step(tmp_path):
    path = tmp_path / "rank_1.jsonl"
    records = [
        {"step": 1, "epoch": 1, "samples": [5, 3], "subsets": ["code", "math"]},
        {"step": 2, "epoch": 1, "samples": [9]},
        {"step": 1, "epoch": 1, "samples": [7, 8], "subsets": ["math", "math"]},
    ]
    path.write_text("\n".join(map(json.dumps, records)) + '\n{"step": 3, "sam')
    reading = read_sample_ids(path, FileContext(rank_id=1))["sample_ids"]
    rows = reading.table[["rank_id", "step", "position", "sample", "subset"]]
    assert rows.astype(object).where(rows.notna(), None).to_numpy().tolist() == [
        [1, 1, 0, 7, "math"], [1, 1, 1, 8, "math"], [1, 2, 0, 9, None],
    ]  # fmt: skip
    assert {note.where for note in reading.notes} == {"line 1", "line 4"}


def test_samples_of_a_data_set_survive_parquet(tmp_path):
    frame = DATA_SAMPLES.check(pd.DataFrame({"dataset": ["a", "a"], "sample": [0, 1], "tokens": [5.0, None]}))
    frame.to_parquet(tmp_path / "a.parquet")
    read = read_data_samples(tmp_path / "a.parquet", FileContext())["data_samples"].table
    pd.testing.assert_frame_equal(read, frame)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(UnreadableFileError, match="not a complete Parquet file"):
        read_data_samples(tmp_path / "b.parquet", FileContext())
