"""A CSV file with unknown headers -> its columns as text and as numbers, and what each header is known to mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import UnreadableFileError
from workbench.readers.careful_rows import parse_line
from workbench.readers.cells import Numbers, to_ns, to_numbers
from workbench.readers.column_aliases import Known, know
from workbench.readers.csv_header import DELIMITERS, HEADER_WITHIN_LINES
from workbench.readers.delimited import read_delimited
from workbench.readers.kinds import HEAD_BYTES, FileContext
from workbench.readers.log_prefix import time_ns
from workbench.readers.text import normalise_bytes, text_of_head
from workbench.tables import Column, Note

WIDE_HEAD_BYTES = 16 * HEAD_BYTES  # a header of thousands of names
FIX_CELLS = "write numbers as plain decimals, and leave a cell empty where there is none"
LATEST_NS = 1e20  # a time without unit has the largest unit with which it is not beyond any calendar
UNKNOWN_UNIT = 0.0
NVIDIA_HEADERS = ("temperature.gpu", "utilization.", "clocks.", "power.draw", "memory.total", "memory.used",
                  "memory.free")  # of a query; its `index` is the card  # fmt: skip
_UNIT = re.compile(r"\[([^\]]+)\]\s*$")
COMMA_FILES = frozenset((".csv", ".tsv"))


@dataclass
class SeriesFile:
    """Columns of one file by header, as written and as numbers."""

    file: str
    texts: dict[str, pd.Series]
    known: dict[str, Known]
    notes: list[Note]
    delimiter: str
    _noted: set[str] = field(default_factory=set)

    @property
    def rows(self) -> int:
        """Data rows."""
        return len(next(iter(self.texts.values()))) if self.texts else 0

    def header_of(self, column: str) -> str | None:
        """The header that stands for `column`; the first one if there are several."""
        return next((h for h, k in self.known.items() if k.column == column), None)

    def plain_numbers(self, header: str) -> Numbers:
        """Cells as float64 as they are written, and which are no numbers."""
        return to_numbers(self._cells(header), decimal_comma=self.delimiter == ";")

    def numbers(self, header: str) -> np.ndarray:
        """Cells as float64 in the unit of the known column; what is no number is missing and noted."""
        values, bad = self.plain_numbers(header)
        if bad.any() and header not in self._noted:
            self._noted.add(header)
            first = int(np.flatnonzero(bad)[0])
            self.notes.append(
                Note(
                    file=self.file,
                    where=f"data row {first + 1}, column {header}",
                    problem=f"{int(bad.sum())} cells ({str(self.texts[header].iloc[first])[:40]!r}) are not numbers.",
                    lost="these cells",
                    fix=FIX_CELLS,
                )
            )
        factor = self.known[header].factor if header in self.known else 1.0
        # x / 100 is the number that "x percent" names, x * 0.01 often its neighbour
        return np.asarray(values) * factor if factor >= 1 else np.asarray(values) / round(1 / factor)

    def is_numeric(self, header: str) -> bool:
        """Whether most filled cells of a column are numbers."""
        filled = int(self.texts[header].notna().sum())
        return filled > 0 and int(np.isfinite(self.plain_numbers(header).values).sum()) * 2 > filled

    def integers(self, column: str) -> pd.Series | None:
        """A key column as Int64; fractions are missing. None where the file has no such column."""
        header = self.header_of(column)
        if header is None:
            return None
        values = self.numbers(header)
        whole = np.isfinite(values) & (values == np.round(values)) & (np.abs(values) < 2**53)
        return pd.Series(pd.arrays.IntegerArray(np.where(whole, values, 0).astype("int64"), ~whole))

    def times_ns(self) -> pd.Series | None:
        """Column `time_ns`: numbers by their unit or size, else written dates. None where the file has none."""
        header = self.header_of("time_ns")
        if header is None:
            return None
        if not self.is_numeric(header):
            return pd.Series([time_ns(str(t)) if pd.notna(t) else None for t in self.texts[header]], dtype="Int64")
        return pd.Series(to_ns(self._cells(header), self._time_unit(header)).values)

    def _time_unit(self, header: str) -> str:
        factor = self.known[header].factor
        if factor == UNKNOWN_UNIT:
            largest = float(np.nanmax(np.abs(np.asarray(self.plain_numbers(header).values))))
            factor = next((f for f in (1e9, 1e6, 1e3) if largest * f < LATEST_NS), 1.0)
        return {1e9: "s", 1e6: "ms", 1e3: "us"}.get(factor, "ns")

    def _cells(self, header: str) -> pa.ChunkedArray:
        texts = self.texts[header]
        if unit := _UNIT.search(header):  # nvidia-smi repeats the unit of `power.draw [W]` in every cell
            suffix = unit[1]
            texts = texts.astype(object).map(lambda t: t.removesuffix(suffix).rstrip() if isinstance(t, str) else t)
        cells = pa.array(texts, pa.string(), from_pandas=True)
        return cells if isinstance(cells, pa.ChunkedArray) else pa.chunked_array([cells])


def header_line(head: bytes, least: int = 1) -> tuple[int, str, list[str]] | None:
    """Number of the header line among the first ones, its delimiter and cells: the line with most known headers.

    None where no line has `least` known headers beside at least one more cell, above a row of as many cells (of
    thousands of columns the head of a file may hold only a part of that row).
    """
    data, _ = normalise_bytes(head, "")
    text = text_of_head(bytes(data))
    lines = text.split("\n", HEADER_WITHIN_LINES + 1)[: HEADER_WITHIN_LINES + 1]
    is_cut = len(head) >= HEAD_BYTES and text.count("\n") < len(lines)  # within the last of these lines
    best: tuple[int, int, str, list[str]] | None = None
    for number, line in enumerate(lines[:HEADER_WITHIN_LINES]):
        for delimiter in DELIMITERS:
            cells = [c.strip() for c in parse_line(line, delimiter)]
            hits = sum(know(c) is not None for c in cells)
            if len(cells) < 2 or hits < least or not all(cells) or (best is not None and hits <= best[0]):
                continue
            below = next((n for n in range(number + 1, len(lines)) if lines[n].strip()), len(lines))
            is_part = below == len(lines) or (is_cut and below == len(lines) - 1)
            if is_part or len(parse_line(lines[below], delimiter)) == len(cells):
                best = (hits, number, delimiter, cells)
    return best[1:] if best else None


def least_known(path: Path) -> int:
    """How many headers must be known: in a file that does not call itself a table, one may be chance."""
    return 1 if path.suffix.lower() in COMMA_FILES else 2


def read_cells(path: Path, context: FileContext) -> SeriesFile:
    """Read all columns of a CSV file whose header has a known name.

    Raises:
        UnreadableFileError: no bytes, or no such header.
    """
    try:
        with path.open("rb") as f:
            found = header_line(f.read(WIDE_HEAD_BYTES), least_known(path))
    except OSError as error:
        raise UnreadableFileError(f"{context.name(path)} cannot be read: {error}.", fix="check the file") from error
    if found is None:
        raise UnreadableFileError(
            f"{context.name(path)} has no line with a known column name.",
            fix="name columns as docs/csv_columns.md says",
        )
    _, delimiter, cells = found
    headers = list(dict.fromkeys(cells))
    columns = [Column(header, "string", "", raw=header) for header in headers]
    raw = read_delimited(path, context, columns=columns, required=headers, writer_ends_lines=False)
    texts = {h: raw.table[h] for h in headers if h in raw.table}
    known = {h: k for h in texts if (k := know(h)) is not None}
    if "index" in texts and any(h.startswith(NVIDIA_HEADERS) for h in texts):
        known["index"] = Known("device_id", 1.0, "key")
    return SeriesFile(context.name(path), texts, known, list(raw.notes), delimiter)
