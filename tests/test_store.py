"""Parquet parts and queries over them."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UnknownParameterError
from workbench.store import PartWriter, query, read_parts, to_arrow
from workbench.tables import EVALS, TABLES, TRACE_EVENTS, TRAINING_STEPS


def write(path: Path, declared, frame: pd.DataFrame) -> PartWriter:
    writer = PartWriter(path, declared)
    writer.write(to_arrow(declared.check(frame), declared))
    writer.close()
    return writer


@pytest.mark.parametrize("name", TABLES)
def test_every_table_survives_the_way_to_disk(tmp_path, name):
    declared = TABLES[name]
    values = {
        "float64": [1.5, float("nan")],
        "string": ["ä'\"\n", None],
        "boolean": [True, None],
        "Int64": [2**60 + 1, None],
    }
    frame = declared.check(
        pd.DataFrame({c.name: pd.array(values.get(c.dtype, [3, 4]), dtype=c.dtype) for c in declared.columns})
    )
    write(tmp_path / "a.parquet", declared, frame)
    back = read_parts(declared, [tmp_path / "a.parquet"])
    pd.testing.assert_frame_equal(back, frame)


def test_no_part_is_an_empty_table_with_its_columns():
    assert list(read_parts(EVALS, [])) == EVALS.column_names


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=5))
@settings(max_examples=30, deadline=None)
def test_parts_are_read_in_their_order_and_filtered_by_rank(tmp_path_factory, ranks):
    """Law: reading parts is concatenation; a rank filter is the filter of that."""
    folder = tmp_path_factory.mktemp("parts")
    frames = [pd.DataFrame({"rank_id": r, "step": range(len(r))}) for r in ranks]
    parts = [folder / f"{i}.parquet" for i in range(len(frames))]
    writers = [write(p, TRAINING_STEPS, f.astype({"rank_id": "int64"})) for p, f in zip(parts, frames, strict=True)]
    parts = [p for p, w in zip(parts, writers, strict=True) if p.exists()]
    flat = [x for r in ranks for x in r]
    assert read_parts(TRAINING_STEPS, parts).rank_id.tolist() == flat
    assert read_parts(TRAINING_STEPS, parts, ranks=[1, 3]).rank_id.tolist() == [x for x in flat if x in (1, 3)]
    assert [w.ranks for w in writers] == [set(r) for r in ranks]


def test_a_table_without_ranks_cannot_be_filtered():
    with pytest.raises(UnknownParameterError, match="has no ranks"):
        read_parts(EVALS, [], ranks=[0])


def test_a_part_appears_only_when_it_is_complete(tmp_path):
    writer = PartWriter(tmp_path / "a.parquet", TRAINING_STEPS)
    frame = TRAINING_STEPS.check(pd.DataFrame({"rank_id": [0] * 70000, "step": range(70000)}))
    writer.write(to_arrow(frame, TRAINING_STEPS))
    assert not (tmp_path / "a.parquet").exists()
    writer.discard()
    assert list(tmp_path.iterdir()) == []
    writer = write(tmp_path / "a.parquet", TRAINING_STEPS, frame)
    assert (writer.rows, writer.ranks, writer.steps) == (70000, {0}, (0, 69999))
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_pieces_with_other_dictionaries_make_one_part(tmp_path):
    writer = PartWriter(tmp_path / "a.parquet", TRACE_EVENTS)
    for name in ("b", "a"):
        text = pa.array([name, None]).dictionary_encode()
        columns = {c: text for c in ("layer", "track", "name", "category")}
        numbers = {c: pa.array([1, 2], pa.int64()) for c in ("rank_id", "window", "start_ns", "duration_ns")}
        writer.write(pa.table({c: {**columns, **numbers}[c] for c in TRACE_EVENTS.column_names}))
    writer.close()
    assert read_parts(TRACE_EVENTS, [writer.path]).name.tolist() == ["b", pd.NA, "a", pd.NA]
    counts = query(
        "SELECT name, count(*) AS n FROM trace_events GROUP BY name ORDER BY name",
        {"trace_events": [writer.path]},
        scratch=tmp_path,
    )
    assert counts.n.tolist() == [1, 1, 2]


@pytest.mark.parametrize("folder", ["plain", "it's", "a[1]", "star*", "q?", "{x,y}", "名"])
def test_queries_take_any_path(tmp_path, folder):
    path = tmp_path / folder / "a.parquet"
    write(path, TRAINING_STEPS, pd.DataFrame({"rank_id": [0, 1], "step": [1, 1], "loss": [2.0, 4.0]}))
    result = query("SELECT avg(loss) AS loss FROM training_steps", {"training_steps": [path]}, scratch=tmp_path)
    assert result.loss.tolist() == [(2.0 + 4.0) / 2]


def test_a_wrong_query_says_what_there_is(tmp_path):
    path = tmp_path / "a.parquet"
    write(path, EVALS, pd.DataFrame({"kind": ["a"], "subset": ["s"], "metric": ["m"], "value": [1.0]}))
    with pytest.raises(UnknownParameterError, match=r"use the tables \['evals'\]"):
        query("SELEC * FROM evals", {"evals": [path]}, scratch=tmp_path)
