"""JSON Lines beside logs, one flat object per row, recognised by their keys -> the same tables as CSV series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.column_aliases import know
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.records import NumberedRecords, object_of, read_json_lines
from workbench.readers.series import SERIES_TABLES, tables_of
from workbench.readers.series_cells import SeriesFile
from workbench.readers.text import in_other_encoding, in_utf8
from workbench.tables import Reading

LEAST_KNOWN_KEYS = 2  # one may be chance, as in a CSV whose name does not call it a table
PLACES = frozenset(("step", "from_step", "time_ns", "rank_id", "device_id"))  # what tells a record of a run from a text
HEAD_RECORDS = 5
SUFFIXES = frozenset((".jsonl", ".ndjson"))


def sniff_records(path: Path, head: bytes) -> bool:
    """Whether the first lines are flat JSON objects that name a step, time or place and another known column."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    text = in_utf8(head)
    if not text.lstrip().startswith(b"{"):
        return False
    lines = [line for line in text.split(b"\n")[:-1] or [text] if line.strip()][:HEAD_RECORDS]
    records = [r for line in lines if (r := object_of(line) or object_of(in_other_encoding(line))) is not None]
    return bool(records) and len(records) == len(lines) and all(_is_row(r) for r in records)


def _is_row(record: dict[str, Any]) -> bool:
    columns = {known.column for key in record if (known := know(key)) is not None}
    is_flat = not any(isinstance(value, (dict, list)) for value in record.values())
    return is_flat and len(columns) >= LEAST_KNOWN_KEYS and not columns.isdisjoint(PLACES)


def read_records(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one JSON Lines file into every table that its keys open.

    Keys are column names as in docs/csv_columns.md; a key that a line lacks, or that is null, is an empty cell.

    Raises:
        UnreadableFileError: no intact record with a known key.
    """
    rows, notes = read_json_lines(path, context)
    texts = _texts(rows)
    known = {key: k for key in texts if (k := know(key)) is not None}
    if not known:
        raise UnreadableFileError(
            f"{context.name(path)} has no record with a known column name.", fix="name keys as docs/csv_columns.md says"
        )
    return tables_of(SeriesFile(context.name(path), texts, known, notes, ","), path, context)


def _texts(rows: NumberedRecords) -> dict[str, pd.Series]:
    """Cells by key, in the order in which the keys come, as a CSV file would hold them."""
    keys = list(dict.fromkeys(key for record in rows.records for key in record))
    return {key: pd.Series([_text(r.get(key)) for r in rows.records], dtype="str") for key in keys}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


KINDS = (
    FileKind(
        name="json_lines_series",
        meaning="JSON Lines beside logs whose keys are known column names: the same tables as CSV series",
        tables=SERIES_TABLES,
        sniff=sniff_records,
        read=read_records,
    ),
)
