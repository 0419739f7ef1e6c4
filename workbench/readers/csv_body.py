"""The rows of a CSV file as text cells of the needed columns, and a list of the rows that are damaged.

Whole files go through pyarrow; where it refuses, rows are read one by one, so that a damaged one costs itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from workbench.readers.careful_rows import Row, careful_rows, parse_line
from workbench.readers.csv_header import Layout
from workbench.readers.text import Buffer

ROWS_PER_BATCH = 50_000
BLOCK_BYTES = 8 << 20
COUNTED_BYTES = 64 << 20

Cells = dict[int, pa.ChunkedArray]


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """What may be used of rows that are not whole."""

    trust_to: int | None = None  # last cell that is right in a row with too few cells; None: such rows are left out
    writer_ends_lines: bool = True  # so that a last line without its end is cut


@dataclass
class Body:
    """Text cells by their number, and what was wrong with rows (problem -> lines)."""

    cells: Cells
    problems: dict[str, list[int]] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)  # of each row, where rows were left out

    def problem(self, what: str, line: int) -> None:
        """Remember a damaged row."""
        self.problems.setdefault(what, []).append(line)


def read_body(data: Buffer, layout: Layout, rules: RowRules) -> Body:
    """All rows of an intact file, by pyarrow.

    Raises:
        pyarrow.ArrowInvalid: text is not UTF-8, rows have different lengths, a quote is never closed, cells have line
            breaks, or the header comes again: `read_damaged_body` reads such a file.
    """
    end = data.rfind(b"\n") + 1
    body = Body(_arrow_cells(data, layout, end) if end > layout.body else _no_cells(layout))
    tail = bytes(data[max(end, layout.body) :]).decode()
    if tail.strip():
        if tail.count('"') % 2:
            raise pa.ArrowInvalid("the last line opens a quote")
        line = layout.line + 1 + _count(data, b"\n", layout.body, end)
        last = _usable(Row(line, parse_line(tail, layout.delimiter), is_last=True), layout, rules, False, body)
        if last is not None:
            body.cells = _joined([_plain(body.cells), _batch([last], layout)], layout)
    return body


def read_damaged_body(data: Buffer, layout: Layout, rules: RowRules) -> Body:
    """All rows that can be used, row by row; the others are listed in `problems`."""
    body = Body(_no_cells(layout))
    complete = bytes(data[-1:]) == b"\n"
    kept = _kept(data, layout, rules, complete, body)
    batches = []
    while batch := list(islice(kept, ROWS_PER_BATCH)):
        batches.append(_batch(batch, layout))
    body.cells = _joined(batches, layout)
    return body


def _kept(data: Buffer, layout: Layout, rules: RowRules, complete: bool, body: Body) -> Iterator[list[str | None]]:
    for row in damaged_rows(data, layout):
        cells = _usable(row, layout, rules, complete, body)
        if cells is not None:
            body.lines.append(row.line)
            yield cells


def damaged_rows(data: Buffer, layout: Layout) -> Iterator[Row]:
    """Rows below the header, with their lines."""
    return careful_rows(
        data, start=layout.body, delimiter=layout.delimiter, width=layout.width, first_line=layout.line + 1
    )


def _arrow_cells(data: Buffer, layout: Layout, end: int) -> Cells:
    words = {layout.index[c.name] for c in layout.columns if c.dtype == "string"}
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(memoryview(data)[layout.body : end])),
        read_options=arrow_csv.ReadOptions(column_names=[str(i) for i in range(layout.width)], block_size=BLOCK_BYTES),
        parse_options=arrow_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=False),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=[str(i) for i in layout.needed],
            column_types={
                str(i): pa.dictionary(pa.int32(), pa.string()) if i in words else pa.string() for i in layout.needed
            },
            strings_can_be_null=False,
        ),
    )
    first = layout.needed[0]
    again = pc.equal(table[str(first)].cast(pa.string()), layout.headers[first])
    if pc.any(again).as_py():
        raise pa.ArrowInvalid("the header comes again")
    lines = _count(data, b"\n", layout.body, end)
    if len(table) < lines and len(table) < lines - _blank_lines(data, layout.body, end):
        raise pa.ArrowInvalid("cells have line breaks, which a stray quote may have made")
    return {i: table[str(i)] for i in layout.needed}


def _blank_lines(data: Buffer, start: int, end: int) -> int:
    """Lines with nothing on them, perhaps some too few."""
    first = bytes(data[start : start + 2]).startswith((b"\n", b"\r\n"))
    return first + _count(data, b"\n\n", start, end) + _count(data, b"\n\r\n", start, end)


def _count(data: Buffer, what: bytes, start: int, end: int) -> int:
    """How often `what` stands between two bytes; a mapped file is copied piece by piece for it."""
    if isinstance(data, bytes):
        return data.count(what, start, end)
    return sum(bytes(data[at : min(at + COUNTED_BYTES, end)]).count(what) for at in range(start, end, COUNTED_BYTES))


def _usable(row: Row, layout: Layout, rules: RowRules, complete: bool, body: Body) -> list[str | None] | None:
    """The cells of a row that can be trusted, missing ones as None; None where the row is of no use."""
    cells: list[str | None] = list(row.cells)
    while len(cells) > layout.width and not (cells[-1] or "").strip():
        cells.pop()
    whole = len(cells) == layout.width
    if row.is_last and not complete and (rules.writer_ends_lines or not whole or row.open_quote):
        body.problem("cut", row.line)
        sure = len(cells) - 1 if whole or rules.trust_to is None else rules.trust_to + 1
        return _padded(cells[: min(sure, layout.width - 1, len(cells) - 1)], layout)
    if row.open_quote:
        body.problem("open_quote", row.line)
        return None
    if tuple(row.cells) == layout.headers:
        body.problem("header_again", row.line)
        return None
    if whole:
        return cells
    if len(cells) > layout.width or rules.trust_to is None or len(cells) <= rules.trust_to:
        body.problem("long" if len(cells) > layout.width else "short", row.line)
        return None
    body.problem("shifted", row.line)
    return [*cells[: rules.trust_to + 1], *[None] * (layout.width - rules.trust_to - 1)]


def _padded(cells: list[str | None], layout: Layout) -> list[str | None] | None:
    if any(layout.index[name] >= len(cells) for name in layout.required):
        return None
    return [*cells, *[None] * (layout.width - len(cells))]


def _batch(rows: list[list[str | None]], layout: Layout) -> Cells:
    return {i: pa.chunked_array([pa.array([row[i] for row in rows], pa.string())]) for i in layout.needed}


def _plain(cells: Cells) -> Cells:
    return {i: column.cast(pa.string()) for i, column in cells.items()}


def _no_cells(layout: Layout) -> Cells:
    return {i: pa.chunked_array([], type=pa.string()) for i in layout.needed}


def _joined(parts: list[Cells], layout: Layout) -> Cells:
    return {i: pa.chunked_array([c for part in parts for c in part[i].chunks], type=pa.string()) for i in layout.needed}
