"""Traces of StragglerAnalysis: the real files, a made one, and damaged ones."""

import pandas as pd
import pytest

from tests.readers.profiles import kind_of, notes_text, read
from workbench.errors import MissingColumnsError, UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.readers.straggler_trace import read_straggler_trace

KIND = "straggler_trace"
ROW = {
    "dp_rank": 1, "stage": 2, "rank": 5, "step": 7, "optype": "forward-recv", "start_ts": 0.25, "duration": 0.002,
    "seq_id": 3, "mb_id": -1, "mc": -1, "gmc": -1,
}  # fmt: skip


def write(folder, *rows, name="t.parquet"):
    path = folder / name
    pd.DataFrame([{**ROW, **row} for row in rows]).to_parquet(path)
    return path


def test_a_receive_waits_for_the_send_of_the_stage_before(tmp_path):
    path = write(tmp_path, {}, {"optype": "forward-send", "stage": 1, "rank": 4, "start_ts": 0.2})
    table = read(path, KIND)["operations"].table
    assert list(table["role"]) == ["receive", "send"]
    assert table["group_id"].nunique() == 1
    assert table.loc[0, "start_ns"] == 250_000_000  # 0.25 s
    assert table.loc[0, "duration_us"] == pytest.approx(2000)  # 0.002 s
    assert pd.isna(table.loc[0, "micro_batch"])


def test_who_starts_together(tmp_path):
    kinds = ["grads-reduce-scatter", "optimizer-clip-main-grad", "embedding-grads-all-reduce", "optimizer"]
    rows = [{"optype": kind, "dp_rank": dp, "stage": stage} for kind in kinds for dp in (0, 1) for stage in (0, 1)]
    groups = read(write(tmp_path, *rows), KIND)["operations"].table.groupby("op_type")["group_id"].nunique()
    # reduce-scatter: one group per stage; clipping: all ranks; embedding: one per replica; the optimizer waits for none
    assert groups.to_dict() == {
        "grads-reduce-scatter": 2, "optimizer-clip-main-grad": 1, "embedding-grads-all-reduce": 2, "optimizer": 0,
    }  # fmt: skip


def test_rows_without_a_time_are_noted(tmp_path):
    readings = read(write(tmp_path, {}, {"start_ts": float("nan")}), KIND)
    assert len(readings["operations"].table) == 1
    assert "1 row(s) without a time" in notes_text(readings["operations"])


def test_damaged_and_other_parquet_files(tmp_path):
    whole = write(tmp_path, {}, name="trace-a.parquet").read_bytes()
    cut = tmp_path / "trace-b.parquet"
    cut.write_bytes(whole[: len(whole) // 2])
    assert kind_of(cut).name == KIND
    with pytest.raises(UnreadableFileError, match="not a complete Parquet file"):
        read_straggler_trace(cut, FileContext(root=tmp_path))
    other = tmp_path / "trace-c.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(other)
    assert kind_of(other) is None
    with pytest.raises(MissingColumnsError, match="lacks"):
        read_straggler_trace(other, FileContext(root=tmp_path))


@pytest.mark.parametrize(("name", "rows", "ranks", "steps"), [("AR", 117216, 16, 44), ("ST", 6784, 8, 32)])
def test_the_public_traces(shared_dir, name, rows, ranks, steps):
    path = shared_dir / f"samples/ByteDance-Seed-StragglerAnalysis/data/trace-{name}.parquet"
    table = read(path, KIND)["operations"].table
    assert (len(table), table["rank_id"].nunique(), table["step"].nunique()) == (rows, ranks, steps)
