"""Damaged CSV text -> its rows, one by one, with the line on which each stands and what is wrong with it."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.readers.text import Buffer

MAX_LINES_OF_ROW = 500  # a quote that is still open after so many lines is damage, not a long cell
FIELD_LIMIT = 1 << 30  # cells hold nested JSON; csv's own limit is 131072 characters


@dataclass(frozen=True)
class Row:
    """One row: the number of its first line, its cells, and whether it opens a quote that is never closed."""

    line: int
    cells: list[str]
    open_quote: bool = False
    is_last: bool = False


def parse_line(text: str, delimiter: str) -> list[str]:
    """The cells of one row of text (which may hold quoted line breaks); [] where there is none."""
    if csv.field_size_limit() < FIELD_LIMIT:
        csv.field_size_limit(FIELD_LIMIT)
    try:
        return next(csv.reader((line + "\n" for line in text.strip("\r\n").split("\n")), delimiter=delimiter), [])
    except csv.Error:
        return text.strip("\r\n").split(delimiter)


def careful_rows(data: Buffer, *, start: int, delimiter: str, width: int, first_line: int) -> Iterator[Row]:
    """Rows of UTF-8 `data` from byte `start`, which is line `first_line`; blank lines are left out.

    A quoted cell may run over lines. A quote that is never closed, whose end does not give `width` cells, or that takes
    in what looks like a row, costs only the line on which it was opened: reading goes on with the next one.
    """
    source = _lines(data, start)
    ahead: deque[str] = deque()
    line = first_line
    while _fill(ahead, source, 1):
        used = _lines_of_row(ahead, source)
        cells = parse_line("\n".join(ahead[i] for i in range(used)), delimiter) if used else []
        open_quote = not used or (used > 1 and (len(cells) != width or _swallows(cells, delimiter)))
        if open_quote:
            used, cells = 1, parse_line(ahead[0], delimiter)
        for _ in range(used):
            ahead.popleft()
        if len(cells) > 1 or any(c.strip() for c in cells):
            yield Row(line, cells, open_quote, is_last=not _fill(ahead, source, 1))
        line += used


def _swallows(cells: list[str], delimiter: str) -> bool:
    """Whether a cell with line breaks holds as many delimiters as a row: a stray quote made one cell of two rows."""
    between = len(cells) - 1
    return between > 1 and any("\n" in cell and cell.count(delimiter) >= between for cell in cells)


def _lines_of_row(ahead: deque[str], source: Iterator[str]) -> int:
    """How many lines the next row takes; 0 where its quote is never closed."""
    quotes = used = 0
    while used < MAX_LINES_OF_ROW and _fill(ahead, source, used + 1):
        quotes += ahead[used].count('"')
        used += 1
        if quotes % 2 == 0:
            return used
    return 0


def _lines(data: Buffer, start: int) -> Iterator[str]:
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield bytes(data[start:end]).decode("utf-8", "replace")
        start = end + 1


def _fill(ahead: deque[str], source: Iterator[str], count: int) -> bool:
    """Take lines from `source` until `ahead` has `count`; whether it has."""
    while len(ahead) < count:
        text = next(source, None)
        if text is None:
            return False
        ahead.append(text)
    return True
