"""CSV files of any writer, version and state -> frame of the columns that a table needs, and notes on the rest.

Columns are found by header, never by position; units are taken from the header.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.readers.cells import Numbers, header_unit, to_integers, to_ns, to_numbers, to_text, unit_factor
from workbench.readers.csv_body import Body, RowRules, damaged_rows, read_body, read_damaged_body
from workbench.readers.csv_header import Layout, find_header, sniff_headers
from workbench.readers.json_file import read_json
from workbench.readers.kinds import FileContext
from workbench.readers.text import Buffer, begins_as_utf8, decode_to_utf8, normalise_bytes, read_bytes
from workbench.tables import Column, Note, Table

__all__ = ["Delimited", "read_delimited", "read_json", "sniff_headers"]

ROW_PROBLEMS = {
    "cut": ("the file ends in the middle of a line.", "the end of that line, and all that came after it"),
    "short": ("fewer cells than the header, so that it is unknown which one is absent.", "these rows"),
    "shifted": (
        "fewer cells than the header, so that it is unknown which one is absent.",
        "the later cells of these rows",
    ),
    "long": ("more cells than the header.", "these rows"),
    "open_quote": ("a quote is opened and never closed.", "these lines"),
    "header_again": ("the header comes again: files were put one after the other.", "nothing"),
}


class Delimited(NamedTuple):
    """What was read: `table` has the columns that the file has, under the names of the table; `headers` as written."""

    table: pd.DataFrame
    notes: list[Note]
    headers: tuple[str, ...]


def read_delimited(
    path: Path,
    context: FileContext,
    *,
    columns: Table | Sequence[Column],
    required: Collection[str] | None = None,
    missing_values: Mapping[str, float] | None = None,
    trust_short_rows_to: str | None = None,
    writer_ends_lines: bool = True,
) -> Delimited:
    """Read the declared columns of a CSV file, found by `Column.raw_names`.

    Args:
        path: the file.
        context: gives the name in notes.
        columns: table or columns; those without a raw header are left out of the result.
        required: names of columns without which a row is of no use; default: the required ones that have a header. A
            file with some of them is read, and a note says which are absent.
        missing_values: column name -> number (in the unit of the column) that this writer uses for "none".
        trust_short_rows_to: column up to which a row with too few cells is still right; without it such rows are left
            out.
        writer_ends_lines: the writer always ends the last line, so that the last cell of a file without a line end is
            cut, and missing. False keeps that cell.

    Returns:
        The columns that the file has, and the required ones that it lacks, missing in all rows. `_ns` columns are exact
        Int64, other int columns Int64, float64 columns are in the unit of their name, string columns are trimmed pandas
        strings. Cells that cannot be read are missing, with one note per column; a file without rows has a note.

    Raises:
        UnreadableFileError: no bytes, or no line that holds any required header.
    """
    declared = columns.columns if isinstance(columns, Table) else tuple(columns)
    wanted = tuple(c for c in declared if c.raw_names)
    names = set(required) if required is not None else {c.name for c in wanted if c.required}
    file = context.name(path)
    data, notes = normalise_bytes(read_bytes(path, context), file)
    data, layout, body, more = _rows(data, wanted, names, file, trust_short_rows_to, writer_ends_lines)
    notes += more
    notes += [_absent_note(c, layout, file) for c in wanted if c.name in names - layout.index.keys()]
    notes += [_row_note(file, problem, lines) for problem, lines in body.problems.items()]
    table, bad = _converted(body, layout, missing_values or {})
    if absent := {c.name: _missing(c, len(table)) for c in wanted if c.name in names - layout.index.keys()}:
        table = table.assign(**absent)
    notes += [_cell_note(file, layout, name, rows, body, data) for name, rows in bad.items()]
    table = table.dropna(how="all", ignore_index=True)  # lines of delimiters alone, as spreadsheets leave them
    if table.empty:
        notes.append(_empty_note(file))
    return Delimited(table, notes, layout.headers)


def _rows(
    data: Buffer, columns: tuple[Column, ...], required: set[str], file: str, trust: str | None, ends: bool
) -> tuple[Buffer, Layout, Body, list[Note]]:
    begun = decode_to_utf8(data, file) if not begins_as_utf8(data) else (data, [])  # the header may not be, either
    layout = find_header(begun[0], columns, required, file)
    try:
        return begun[0], layout, read_body(begun[0], layout, _rules(layout, trust, ends)), begun[1]
    except (pa.ArrowInvalid, UnicodeDecodeError):
        data, notes = decode_to_utf8(data, file)
    layout = find_header(data, columns, required, file)  # a recoded header has another length
    rules = _rules(layout, trust, ends)
    if notes:
        try:
            return data, layout, read_body(data, layout, rules), notes
        except pa.ArrowInvalid:
            pass  # its rows are damaged as well
    return data, layout, read_damaged_body(data, layout, rules), notes


def _rules(layout: Layout, trust: str | None, ends: bool) -> RowRules:
    return RowRules(trust_to=layout.index.get(trust) if trust else None, writer_ends_lines=ends)


def _converted(
    body: Body, layout: Layout, missing_values: Mapping[str, float]
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Typed columns, and for those with bad cells the numbers of the rows."""
    columns: dict[str, np.ndarray | pd.Series] = {}
    bad: dict[str, np.ndarray] = {}
    for column in layout.columns:
        cells = body.cells[layout.index[column.name]]
        header = layout.headers[layout.index[column.name]]
        if column.dtype == "string":
            columns[column.name] = to_text(cells)
            continue
        values, wrong = _numbers(cells, column, header, layout.delimiter)
        if column.name in missing_values:
            values = pd.Series(values).mask(values == missing_values[column.name])
        columns[column.name] = values
        if wrong.any():
            bad[column.name] = np.flatnonzero(wrong)
    return pd.DataFrame(columns), bad


def _numbers(cells: pa.ChunkedArray, column: Column, header: str, delimiter: str) -> Numbers:
    if column.name.endswith("_ns"):
        return to_ns(cells, header_unit(header))
    if column.dtype in ("Int64", "int64"):
        return to_integers(cells)
    values, bad = to_numbers(cells, decimal_comma=delimiter == ";")
    return Numbers(values * unit_factor(header, column.name), bad)


def _missing(column: Column, rows: int) -> pd.Series:
    dtype = "Int64" if column.dtype == "int64" else column.dtype
    return pd.Series([None] * rows, dtype=dtype)


def _absent_note(column: Column, layout: Layout, file: str) -> Note:
    return Note(
        file=file,
        where=f"line {layout.line}",
        problem=f"the header {' or '.join(column.raw_names)} is absent; there are {_shown(', '.join(layout.headers))}.",
        lost=f"{column.name} of all rows",
        fix="restore the header, or profile again with this version's default settings",
    )


def _row_note(file: str, problem: str, lines: list[int]) -> Note:
    what, lost = ROW_PROBLEMS[problem]
    count = f"{len(lines)} rows: " if len(lines) > 1 else ""
    return Note(
        file=file,
        where=f"line {lines[0]}" + (f" and {len(lines) - 1} more" if len(lines) > 1 else ""),
        problem=f"{count}{what}",
        lost=lost,
        fix="copy the file again from the training host, or parse the profile again",
    )


def _cell_note(file: str, layout: Layout, name: str, rows: np.ndarray, body: Body, data: Buffer) -> Note:
    """One note for all unreadable cells of a column, with the line of the first."""
    cell = layout.index[name]
    first = int(rows[0])
    text = str(body.cells[cell][first].as_py()).strip()
    is_exponent = text.lower().replace("e", "", 1).strip("+-.0123456789") == "" and "e" in text.lower()
    what = "have lost digits in a spreadsheet" if name.endswith("_ns") and is_exponent else "are not numbers"
    return Note(
        file=file,
        where=f"line {_line(first, body, data, layout)}, column {_shown(layout.headers[cell])}",
        problem=f"{len(rows)} cells ({_shown(text, 40)!r}) {what}.",
        lost=f"{name} of these rows",
        fix="use the file as the profiler wrote it, not one saved by a spreadsheet or an editor",
    )


def _line(row: int, body: Body, data: Buffer, layout: Layout) -> int:
    """The line on which a row stands; blank lines and cells with line breaks make it more than a sum."""
    if body.lines:
        return body.lines[row]
    found = next(islice(damaged_rows(data, layout), row, None), None)
    return found.line if found else layout.line + 1 + row


def _shown(text: str, length: int = 300) -> str:
    """Text of a file as it may be printed."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text.strip()[:length])


def _empty_note(file: str) -> Note:
    return Note(
        file=file,
        where="whole file",
        problem="no row could be used.",
        lost="all rows",
        fix="check the notes on this file; if there are none, nothing was recorded: profile again",
    )
