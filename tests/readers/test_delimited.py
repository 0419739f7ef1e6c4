"""The CSV base of all readers: every state in which files are found."""

import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UnreadableFileError
from workbench.readers.cells import us_text_to_ns
from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.kinds import FileContext
from workbench.tables import Column

COLUMNS = (
    Column("name", "string", "name", ("Name", "Op Name"), required=True),
    Column("start_ns", "Int64", "start", "Start Time(us)"),
    Column("duration_us", "float64", "duration", ("Duration(us)", "Duration(ms)"), required=True),
    Column("size_bytes", "float64", "size", ("Size(KB)", "Size(MB)")),
    Column("share", "float64", "share", "Ratio(%)"),
    Column("model", "Int64", "model id", "Model ID"),
)
TEXT = (
    "Name,Start Time(us),Duration(us),Model ID,Ratio(%)\n"
    "MatMul,1736408883704643.212\t,53.741,7,12.5\n"
    "Add,1736408883704801.156\t,6.54,4294967295,N/A\n"
)


def read(tmp_path: Path, content: str | bytes, **options):
    path = tmp_path / "f.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_delimited(path, FileContext(root=tmp_path), columns=COLUMNS, **options)


def problems(result) -> str:
    return "\n".join(map(str, result.notes))


def check_text(result) -> None:
    table = result.table
    assert table.name.tolist() == ["MatMul", "Add"]
    assert table.start_ns.tolist() == [1736408883704643212, 1736408883704801156]
    assert table.duration_us.tolist() == [53.741, 6.54]
    assert table.share[0] == pytest.approx(0.125)
    assert math.isnan(table.share[1])


def test_clean_file_has_exact_times_units_and_no_notes(tmp_path):
    result = read(tmp_path, TEXT, missing_values={"model": 4294967295})
    check_text(result)
    assert result.table.model[0] == 7
    assert result.table.model.isna().tolist() == [False, True]
    assert result.notes == []
    assert "size_bytes" not in result.table
    assert result.headers[0] == "Name"


@pytest.mark.parametrize(
    "content",
    [
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r\n", 1).encode(),
        TEXT.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.replace(",", ";").encode(),
        TEXT.replace("\t", "").replace(",", "\t").encode(),
        ("banner\n\n" + TEXT).encode(),
        TEXT.replace("MatMul", '"MatMul"').encode(),
        TEXT.replace("Duration(us)", " duration(us) ").encode(),
        TEXT.replace("6.54,4294967295,N/A", "6.54,4294967295,NaN").encode(),
        TEXT.replace("\nAdd", "\n\n\nAdd").encode(),
    ],
    ids=["crlf", "mixed", "cr", "bom", "utf16", "utf16le", "utf16be", "semicolon", "tab", "banner", "quoted", "case",
         "nan", "blank lines"],
)  # fmt: skip
def test_encodings_line_ends_and_delimiters_do_not_matter(tmp_path, content):
    result = read(tmp_path, content)
    check_text(result)
    assert result.notes == []


def test_reordered_and_extra_columns(tmp_path):
    result = read(tmp_path, "Extra,Duration(us),Name\nx,1.5,A\n")
    assert result.table.to_dict("records") == [{"name": "A", "duration_us": 1.5}]


def test_units_come_from_the_header(tmp_path):
    result = read(tmp_path, "Name,Duration(ms),Size(MB)\nA,1.5,2\n")
    assert result.table.duration_us[0] == 1500.0
    assert result.table.size_bytes[0] == 2 * 1024 * 1024
    assert read(tmp_path, "Name,Size(KB)\nA,2\n").table.size_bytes[0] == 2048


def test_decimal_comma_between_semicolons(tmp_path):
    assert read(tmp_path, "Name;Duration(us)\nA;1,25\n").table.duration_us[0] == 1.25


def test_gbk_text_is_read_with_a_note(tmp_path):
    result = read(tmp_path, TEXT.replace("MatMul", "矩阵乘").encode("gbk"))
    assert result.table.name[0] == "矩阵乘"
    assert result.table.duration_us[1] == 6.54
    assert "GBK" in problems(result)


def test_gbk_header_moves_no_row(tmp_path):
    result = read(tmp_path, TEXT.replace("Ratio", "占比Ratio").encode("gbk"))
    assert result.table.name.tolist() == ["MatMul", "Add"]


def test_line_breaks_commas_and_quotes_in_cells(tmp_path):
    result = read(tmp_path, 'Name,Duration(us)\n"a,b\n""c""",1\nd,2\n')
    assert result.table.name.tolist() == ['a,b\n"c"', "d"]
    assert result.notes == []


def test_unreadable_cells_are_missing_with_one_note_per_column(tmp_path):
    text = TEXT + "Sub,1,oops,1,1\nMul,1,3 4,1,1\nDiv,1,2.0,1.5,1\n"
    result = read(tmp_path, text)
    assert result.table.duration_us[2:4].isna().all()
    assert result.table.duration_us[4] == 2.0
    assert pd.isna(result.table.model[4])
    assert [(n.where, n.lost) for n in result.notes] == [
        ("line 4, column Duration(us)", "duration_us of these rows"),
        ("line 6, column Model ID", "model of these rows"),
    ]
    assert "2 cells ('oops')" in result.notes[0].problem


def test_time_that_a_spreadsheet_rounded_is_missing(tmp_path):
    result = read(tmp_path, TEXT.replace("1736408883704801.156\t", "1.69512E+15"))
    assert result.table.start_ns.tolist() == [1736408883704643212, pd.NA]
    assert "spreadsheet" in result.notes[0].problem
    assert "line 3" in result.notes[0].where


def test_rows_with_too_few_or_too_many_cells_cost_only_themselves(tmp_path):
    result = read(tmp_path, TEXT + "Short,1,2\nLong,1,2,3,4,5\nOk,1,2,3,4,,\nEnd,1,9,3,4\n")
    assert result.table.name.tolist() == ["MatMul", "Add", "Ok", "End"]
    assert [n.where for n in result.notes] == ["line 4", "line 5"]


def test_short_row_is_kept_up_to_the_trusted_column(tmp_path):
    result = read(tmp_path, TEXT + "Short,1,2,4\nEnd,1,9,3,4\n", trust_short_rows_to="start_ns")
    assert result.table.name.tolist() == ["MatMul", "Add", "Short", "End"]
    assert result.table.start_ns[2] == 1000
    assert math.isnan(result.table.duration_us[2])


def test_cut_last_line_keeps_only_whole_cells(tmp_path):
    result = read(tmp_path, TEXT + "Sub,1736408883704802.1,12.5,3")
    assert result.table.duration_us.tolist() == [53.741, 6.54, 12.5]
    assert pd.isna(result.table.model[2])
    assert "line 4" in result.notes[0].where
    result = read(tmp_path, TEXT + "Sub,1736408883704802.1,12")  # 12 may be the beginning of 125: the row is of no use
    assert result.table.name.tolist() == ["MatMul", "Add"]
    assert len(result.notes) == 1


def test_last_line_without_end_is_kept_where_writers_do_that(tmp_path):
    result = read(tmp_path, TEXT.rstrip("\n").replace("N/A", "50"), writer_ends_lines=False)
    assert result.table.share.tolist() == [0.125, 0.5]
    assert result.notes == []


def test_open_quote_costs_one_line(tmp_path):
    result = read(tmp_path, TEXT + '"Sub,1,2,3,4\nMul,1,3,3,4\n')
    assert result.table.name.tolist() == ["MatMul", "Add", "Mul"]
    assert "line 4" in result.notes[0].where


def test_two_open_quotes_do_not_swallow_what_is_between(tmp_path):
    result = read(tmp_path, TEXT + '"Sub,1,2,3,4\nMul,1,3,3,4\n"Div,1,2,3,4\nEnd,1,5,3,4\n')
    assert result.table.name.tolist() == ["MatMul", "Add", "Mul", "End"]


def test_lines_of_delimiters_are_no_rows(tmp_path):
    result = read(tmp_path, TEXT + ",,,,\n\nSub,1,2,3,4\n,,,,\n")
    assert result.table.name.tolist() == ["MatMul", "Add", "Sub"]
    assert result.notes == []


def test_repeated_header_is_no_row(tmp_path):
    result = read(tmp_path, TEXT + TEXT)
    assert result.table.name.tolist() == ["MatMul", "Add"] * 2
    assert "header comes again" in problems(result)


def test_nul_bytes_are_noted(tmp_path):
    result = read(tmp_path, TEXT.encode() + b"\0" * 100 + b"\n")
    assert result.table.name.tolist() == ["MatMul", "Add"]
    assert "100 NUL bytes" in problems(result)


def test_header_alone_is_noted(tmp_path):
    result = read(tmp_path, TEXT.split("\n")[0] + "\n")
    assert result.table.empty
    assert "no row" in problems(result)


def test_absent_required_header_is_noted(tmp_path):
    result = read(tmp_path, TEXT.replace("Duration", "Length"))
    assert result.table.name.tolist() == ["MatMul", "Add"]
    assert "Length(us)" in problems(result)


@pytest.mark.parametrize("content", [b"", b"\0\1\2\xff" * 99, b"hello\nworld\n", b"MatMul,1,2\n"])
def test_what_is_no_such_file_is_an_error_with_a_fix(tmp_path, content):
    with pytest.raises(UnreadableFileError, match="Fix:"):
        read(tmp_path, content)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(UnreadableFileError, match="cannot be opened"):
        read_delimited(tmp_path / "absent.csv", FileContext(root=tmp_path), columns=COLUMNS)


def test_very_long_cells(tmp_path):
    long = "x" * 400_000
    result = read(tmp_path, f'Name,Duration(us)\n"{long}",1\nshort row\nB,2\n')
    assert result.table.name.str.len().tolist() == [400_000, 1]


def test_sniff_by_headers():
    assert sniff_headers(TEXT.encode(), ["Name", "duration(us)"])
    assert not sniff_headers(TEXT.encode(), ["Name", "Size(KB)"])
    assert not sniff_headers(TEXT.encode(), ["Name"], none_of=["Model ID"])
    assert sniff_headers(TEXT.encode("utf-16"), ["Name"])
    assert not sniff_headers(b"", ["Name"])


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_us_text_keeps_every_nanosecond(times_ns):
    texts = pd.Series([f"{t // 1000}.{t % 1000:03d}\t" for t in times_ns])
    assert us_text_to_ns(texts).tolist() == times_ns


def test_us_text_of_old_writers():
    texts = pd.Series(["1695115378653323.5", "98.5999", "0.0000004", "", "N/A", "1.7E+15", "x", None, "9" * 30])
    expected = [1695115378653323500, 98600, 0] + [pd.NA] * 6  # 98.5999 us = 98599.9 ns
    assert us_text_to_ns(texts).tolist() == expected
