"""Large tables in pieces: the same rows and notes as in one go."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.readers import pieces
from workbench.readers.discovery import KINDS_BY_NAME
from workbench.readers.kinds import FileContext
from workbench.readers.pieces import is_large_table, read_pieces

KIND = KINDS_BY_NAME["kernel_details"]
HEADER = "Name,Type,Accelerator Core,Start Time(us),Duration(us),Input Shapes\n"
SHAPE = st.sampled_from(['"""8,4;2"""', "N/A", '"two\nlines"', '"a,b"', ""])


def row(number, duration, shape):
    return f"op{number},MatMul,AI_CORE,{number}.125,{duration},{shape}\n"


@given(
    st.lists(st.tuples(st.sampled_from(["1.5", "2", "x", "N/A"]), SHAPE), min_size=1, max_size=40), st.integers(60, 400)
)
@settings(max_examples=60, deadline=None)
def test_pieces_give_the_rows_and_notes_of_the_whole(tmp_path_factory, cells, size):
    folder = tmp_path_factory.mktemp("pieces")
    path = folder / "kernel_details.csv"
    path.write_text(HEADER + "".join(row(i, *c) for i, c in enumerate(cells)))
    context = FileContext(rank_id=2, window=1, root=folder)
    whole = KIND.read(path, context)["kernels"]
    tables = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", size)
        notes = read_pieces(KIND, path, context, lambda readings: tables.append(readings["kernels"].table))
    pd.testing.assert_frame_equal(pd.concat(tables, ignore_index=True), whole.table)
    assert {n.file for n in notes} <= {"kernel_details.csv"}
    assert bool(notes) == bool(whole.notes)


def test_notes_name_the_line_of_the_whole_file(tmp_path, monkeypatch):
    path = tmp_path / "kernel_details.csv"
    path.write_text(HEADER + "".join(row(i, "x" if i == 30 else "1.5", "") for i in range(40)))
    monkeypatch.setattr(pieces, "PIECE_BYTES", 300)
    taken = []
    notes = read_pieces(KIND, path, FileContext(root=tmp_path), taken.append)
    assert len(taken) > 3
    assert len(notes) == 1
    assert "line 32" in notes[0].where or "line 32" in notes[0].problem  # header is line 1, row 0 is line 2


def test_only_large_tables_whose_rows_stand_alone(tmp_path, monkeypatch):
    path = tmp_path / "kernel_details.csv"
    path.write_text(HEADER + row(1, "1.5", "") * 9)
    size = path.stat().st_size
    assert not is_large_table(KIND, path, size)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 20)
    assert not is_large_table(KIND, path, size)  # the header alone is longer than a piece
    monkeypatch.setattr(pieces, "PIECE_BYTES", size // 2 - 1)
    assert is_large_table(KIND, path, size)
    assert not is_large_table(KINDS_BY_NAME["step_trace_time"], path, size)
    path.write_text("banner\n" + HEADER + row(1, "1.5", "") * 9)
    assert not is_large_table(KIND, path, 10 * size)
