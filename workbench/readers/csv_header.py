"""The header of a CSV file: on which line it is, how its cells are divided, and which cell is which column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from workbench.errors import UnreadableFileError
from workbench.readers.careful_rows import parse_line
from workbench.readers.text import Buffer, normalise_bytes
from workbench.tables import Column

DELIMITERS = (",", ";", "\t", "|")
HEADER_WITHIN_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the header is, and which cell is which column."""

    headers: tuple[str, ...]
    delimiter: str
    line: int  # of the header, from 1
    body: int  # first byte after the header
    index: Mapping[str, int]  # column name -> cell
    columns: tuple[Column, ...]  # those that the file has
    required: frozenset[str]  # names of columns without which a row is of no use

    @property
    def width(self) -> int:
        """Cells of a whole row."""
        return len(self.headers)

    @property
    def needed(self) -> list[int]:
        """Cells that are some column."""
        return sorted(set(self.index.values()))


def find_header(data: Buffer, columns: tuple[Column, ...], required: Collection[str], file: str) -> Layout:
    """The line among the first ones, and the delimiter, under which most headers of `columns` are found.

    Raises:
        UnreadableFileError: no line has any header of the required columns.
    """
    best: Layout | None = None
    at = 0
    for number in range(1, HEADER_WITHIN_LINES + 1):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = bytes(data[at:end]).decode("utf-8", "replace")
        for delimiter in DELIMITERS:
            headers = tuple(parse_line(line, delimiter))
            index = _match(headers, columns)
            if index.keys() & set(required) and (best is None or len(index) > len(best.index)):
                best = Layout(
                    headers=headers,
                    delimiter=delimiter,
                    line=number,
                    body=min(end + 1, len(data)),
                    index=index,
                    columns=tuple(c for c in columns if c.name in index),
                    required=frozenset(required) & index.keys(),
                )
        at = end + 1
        if at >= len(data):
            break
    if best is None:
        names = [c.raw_names[0] for c in columns if c.name in required]
        raise UnreadableFileError(
            f"{file} has none of the headers {names} in its first lines.",
            fix="check that the file is what its name says and that its first line was not lost",
        )
    return best


def sniff_headers(head: bytes, required: Collection[str], *, none_of: Collection[str] = ()) -> bool:
    """Whether one of the first lines of `head` holds all of `required`, and none of `none_of`; case does not matter."""
    want, reject = {_key(h) for h in required}, {_key(h) for h in none_of}
    for line in _first_lines(head):
        for delimiter in DELIMITERS:
            names = _cells(line, delimiter)
            if want <= names:
                return not names & reject
    return False


@lru_cache(maxsize=2)  # every kind of CSV file asks about the same head, thousands of files in a row
def _first_lines(head: bytes) -> tuple[str, ...]:
    """Lines in which the header may be; none for JSON, which may be one line of any length."""
    data, _ = normalise_bytes(head, "")
    text = bytes(data).decode("utf-8", "replace")
    return () if text.lstrip()[:1] in ("{", "[") else tuple(text.split("\n", HEADER_WITHIN_LINES)[:HEADER_WITHIN_LINES])


@lru_cache(maxsize=4 * HEADER_WITHIN_LINES)
def _cells(line: str, delimiter: str) -> frozenset[str]:
    return frozenset(map(_key, parse_line(line, delimiter)))


@lru_cache(maxsize=1 << 16)  # the same headers are compared line by line, delimiter by delimiter, file by file
def _key(header: str) -> str:
    return " ".join(header.strip().strip('"').split()).casefold()


def _match(headers: tuple[str, ...], columns: tuple[Column, ...]) -> dict[str, int]:
    """Column name -> cell; of several cells with one header the first counts, of several headers the newest."""
    places: dict[str, int] = {}
    for i, header in enumerate(headers):
        places.setdefault(_key(header), i)
    found = {c.name: [places[_key(raw)] for raw in c.raw_names if _key(raw) in places] for c in columns}
    return {name: cells[0] for name, cells in found.items() if cells}
