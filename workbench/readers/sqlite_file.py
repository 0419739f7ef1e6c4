"""SQLite databases of profilers -> frames, without ever changing the file; of damaged tables the rows before it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.tables import Note

MAGIC = b"SQLite format 3\0"
ROWS_PER_FETCH = 100_000
INTEGER_LIMIT = 2**63
ERRORS = (sqlite3.Error, OverflowError, UnicodeDecodeError)  # the last for names of columns in a damaged schema
FIX = "copy the database again from the training host, or export it again from the profile"


@dataclass
class SqliteFile:
    """An open database: its tables with their columns, and notes on what could not be read."""

    connection: sqlite3.Connection
    file: str
    tables: Mapping[str, list[str]]
    notes: list[Note] = field(default_factory=list)

    def has(self, table: str) -> bool:
        """Whether the table is there; viewers add tables, writers leave out empty ones."""
        return table in self.tables

    def frame(self, table: str, **columns: str | tuple[str, ...]) -> pd.DataFrame:
        """Columns of a table as objects, named by the keyword.

        Each keyword's value is the column's name in the file, or several of which the first that exists is taken; case
        does not matter. A column that is absent is None in all rows; an absent table has no rows.
        """
        have = {name.lower(): name for name in self.tables.get(table, [])}
        picked: dict[str, str | None] = {}
        for name, raws in columns.items():
            options = (raws,) if isinstance(raws, str) else raws
            picked[name] = next((have[raw.lower()] for raw in options if raw.lower() in have), None)
        if not have or not any(picked.values()):
            return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})
        selected = ", ".join("NULL" if raw is None else _quoted(raw) for raw in picked.values())
        rows = self._rows(f"SELECT {selected} FROM {_quoted(table)}", table)
        return pd.DataFrame(rows, columns=list(picked), dtype=object)

    def _rows(self, query: str, table: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        try:
            cursor = self.connection.execute(query)
            while chunk := cursor.fetchmany(ROWS_PER_FETCH):
                rows.extend(chunk)
        except ERRORS as e:
            self.note(f"table {table}", f"it is damaged after {len(rows)} rows ({e}).", "the rows after that")
        return rows

    def note(self, where: str, problem: str, lost: str) -> None:
        """Remember what could not be used."""
        self.notes.append(Note(file=self.file, where=where, problem=problem, lost=lost, fix=FIX))

    def integers(self, values: pd.Series, where: str) -> pd.Series:
        """Values as exact Int64; numbers in text are read, all else is missing with a note."""
        found = [_integer(v) for v in values]
        bad = sum(1 for f, v in zip(found, values, strict=True) if f is None and v is not None)
        if bad:
            self.note(where, f"{bad} values are not whole numbers.", "these values")
        return pd.Series(pd.array(found, dtype="Int64"), index=values.index)

    def floats(self, values: pd.Series, where: str) -> pd.Series:
        """Values as float64; numbers in text are read, all else is missing with a note."""
        found = pd.to_numeric(values, errors="coerce").astype("float64")
        bad = int((found.isna() & values.notna()).sum())
        if bad:
            self.note(where, f"{bad} values are not numbers.", "these values")
        return found.where(np.isfinite(found))


@contextmanager
def open_sqlite(path: Path, context: FileContext) -> Iterator[SqliteFile]:
    """Open a database read-only and immutable: no lock, no journal, no change.

    Raises:
        UnreadableFileError: it cannot be opened, or its list of tables cannot be read.
    """
    file = context.name(path)
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as e:
        raise UnreadableFileError(f"{file} cannot be opened: {e}.", fix="check that it exists and may be read") from e
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield _opened(connection, path, file)
    finally:
        connection.close()


def _opened(connection: sqlite3.Connection, path: Path, file: str) -> SqliteFile:
    try:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except ERRORS as e:
        raise UnreadableFileError(f"{file} is no readable SQLite database: {e}.", fix=FIX) from e
    if not names:
        raise UnreadableFileError(f"{file} is an empty database.", fix=FIX)
    opened = SqliteFile(connection, file, {})
    tables = {}
    for name in names:
        try:
            tables[name] = [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")]
        except ERRORS as e:
            opened.note(f"table {name}", f"its columns cannot be read ({e}).", "its rows")
    opened.tables = tables
    journal = path.with_name(path.name + "-wal")
    if journal.is_file() and journal.stat().st_size:
        opened.note("file beside it ending in -wal", "changes are waiting in it.", "what has not been written through")
    return opened


def _integer(value: object) -> int | None:
    try:
        found = int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None
    if isinstance(value, float) and value.is_integer():
        found = int(value)
    return found if found is not None and -INTEGER_LIMIT <= found < INTEGER_LIMIT else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
