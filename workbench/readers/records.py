"""JSON Lines -> typed tables: every intact record is kept, everything else becomes a note."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.readers.text import in_other_encoding, in_utf8
from workbench.tables import Column, Note, Reading, Table

Record = dict[str, Any]


class NumberedRecords(NamedTuple):
    """Records of a file, and the line (from 1) that each was on."""

    records: list[Record]
    lines: list[int]


def read_bytes(path: Path) -> bytes:
    """Content of `path`.

    Raises:
        UnreadableFileError: the file cannot be opened or read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFileError(
            f"{path} cannot be read: {error.strerror or error}.", fix="check the path and its permissions"
        ) from None


def read_json_lines(path: Path, context: FileContext) -> tuple[NumberedRecords, list[Note]]:
    """Read the intact records of a JSON Lines file, in file order.

    UTF-16 is read as well, and so are lines of GBK, with a note. A kill can leave the last line torn: it is left out
    with a note, as is any line that is not a JSON object.

    Raises:
        UnreadableFileError: the file cannot be opened.
    """
    kept = NumberedRecords([], [])
    bad: list[tuple[int, bool]] = []
    content = in_utf8(read_bytes(path)).split(b"\n")
    other: list[int] = []
    for number, line in enumerate(content, 1):
        text = line.strip(b" \t\r\x00")
        if not text:
            continue
        record = object_of(text)
        if record is None and (record := object_of(in_other_encoding(text))) is not None:
            other.append(number)
        if record is None:
            bad.append((number, number == len(content)))
        else:
            kept.records.append(record)
            kept.lines.append(number)
    notes = _notes_on_lines(context.name(path), bad, kept_any=bool(kept.records))
    return kept, [*([_note_on_encoding(context.name(path), other)] if other else []), *notes]


def object_of(text: bytes) -> Record | None:
    """The JSON object of a line; None where it holds none."""
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        record = _with_bare_words(text)
    return record if isinstance(record, dict) else None


def _with_bare_words(text: bytes) -> Any:
    """A record with NaN, Infinity or -Infinity as numbers, which Python's json writes: they become these words."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def _notes_on_lines(file: str, bad: list[tuple[int, bool]], *, kept_any: bool) -> list[Note]:
    torn = [number for number, is_last in bad if is_last]
    broken = [number for number, is_last in bad if not is_last]
    notes = []
    if broken:
        notes.append(
            Note(
                file=file,
                where=shown_lines(broken),
                problem="Not a JSON object.",
                lost=f"{len(broken)} record(s)",
                fix="nothing, if writing was interrupted there; else copy the file again",
            )
        )
    if torn:
        notes.append(
            Note(
                file=file,
                where=f"line {torn[0]}",
                problem="The last record is torn: writing was interrupted.",
                lost="that one record",
                fix="nothing: the writer starts a new line when it resumes",
            )
        )
    if not kept_any:
        notes.append(
            Note(
                file=file,
                where="whole file",
                problem="No intact record.",
                lost="all of it",
                fix="check that the run got as far as its first step, and that the file was copied completely",
            )
        )
    return notes


def _note_on_encoding(file: str, lines: list[int]) -> Note:
    return Note(
        file=file,
        where=shown_lines(lines),
        problem=f"{len(lines)} record(s) are not UTF-8; they were read as GBK.",
        lost="nothing, if they are GBK",
        fix="save the file as UTF-8",
    )


def shown_lines(numbers: Sequence[int]) -> str:
    """`line 3` or `lines 3, 7, 9 and 12 more`."""
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return "lines " + ", ".join(str(n) for n in numbers[:3]) + more


def records_to_table(
    table: Table, rows: NumberedRecords, *, file: str, constants: dict[str, object] | None = None
) -> Reading:
    """Fill `table` from records whose keys are its column names.

    Args:
        table: the table to fill.
        rows: the records, and their lines for the notes.
        file: file as shown in notes.
        constants: columns with one value for all rows.

    Returns:
        One row per record. A cell of the wrong type is missing, with a note; a record without a required value is
        left out, with a note. "NaN", "Infinity" and "-Infinity" are the floats of these names.
    """
    constants = constants or {}
    notes: list[Note] = []
    data: dict[str, Any] = {}
    for column in table.columns:
        if column.name in constants:
            data[column.name] = [constants[column.name]] * len(rows.records)
            continue
        values, bad = convert_column(column, [r.get(column.name) for r in rows.records])
        data[column.name] = values
        notes += _note_on_cells(file, column, [rows.lines[i] for i in bad])
    frame = pd.DataFrame(data, index=range(len(rows.records)))
    incomplete = frame[[c.name for c in table.columns if c.required]].isna().any(axis=1).to_numpy()
    if incomplete.any():
        notes.append(_note_on_incomplete(file, table, [rows.lines[i] for i in np.flatnonzero(incomplete)]))
        frame = frame[~incomplete]
    return Reading(table.check(frame), notes)


def convert_column(column: Column, values: list[Any]) -> tuple[Any, list[int]]:
    """`values` as an array of the column's dtype, and the positions of those that could not be converted."""
    convert = _CONVERTERS[column.dtype]
    try:
        return convert.whole(values), []
    except (ValueError, TypeError, OverflowError):
        cells = [_convert_cell(convert.cell, v) for v in values]
        bad = [i for i, (cell, value) in enumerate(zip(cells, values, strict=True)) if cell is None is not value]
        return convert.whole(cells), bad


def _convert_cell(convert: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError):
        return None


def _to_integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not (math.isfinite(value) and value == int(value))):
        raise ValueError
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole_floats(values: list[Any]) -> np.ndarray:
    cells = np.array(values, dtype="float64")
    if cells.ndim != 1:  # lists of one length would make a second axis
        raise ValueError
    return cells


def _whole_integers(values: list[Any]) -> Any:
    return pd.array([None if v is None else _to_integer(v) for v in values], dtype="Int64")


def _whole_texts(values: list[Any]) -> Any:
    return pd.array([None if v is None else _to_text(v) for v in values], dtype="string")


def _whole_booleans(values: list[Any]) -> Any:
    return pd.array([None if v is None else _to_boolean(v) for v in values], dtype="boolean")


class _Converter(NamedTuple):
    whole: Callable[[list[Any]], Any]
    cell: Callable[[Any], Any]


_CONVERTERS = {
    "float64": _Converter(_whole_floats, float),
    "int64": _Converter(_whole_integers, _to_integer),
    "Int64": _Converter(_whole_integers, _to_integer),
    "string": _Converter(_whole_texts, _to_text),
    "boolean": _Converter(_whole_booleans, _to_boolean),
}


def _note_on_cells(file: str, column: Column, lines: list[int]) -> list[Note]:
    if not lines:
        return []
    problem = f"Column {column.name} holds something that is not {column.dtype}."
    return [
        Note(
            file=file,
            where=shown_lines(lines),
            problem=problem,
            lost=f"{len(lines)} cell(s), which are missing",
            fix="check the program that wrote the file",
        )
    ]


def _note_on_incomplete(file: str, table: Table, lines: list[int]) -> Note:
    required = ", ".join(c.name for c in table.columns if c.required)
    return Note(
        file=file,
        where=shown_lines(lines),
        problem=f"A record without one of {required}.",
        lost=f"{len(lines)} row(s) of table {table.name}",
        fix="check the program that wrote the file",
    )


def last_of_each(rows: NumberedRecords, keys: Iterable[str]) -> tuple[NumberedRecords, list[int]]:
    """Keep the last record of each combination of `keys`; the lines of the others come second. Order is kept.

    Records without any of the keys are not repetitions of each other: all of them are kept.
    """
    names = tuple(keys)
    last = {_identity(record, names) or i: i for i, record in enumerate(rows.records)}
    keep = sorted(last.values())
    kept = set(keep)
    dropped = [line for i, line in enumerate(rows.lines) if i not in kept]
    return NumberedRecords([rows.records[i] for i in keep], [rows.lines[i] for i in keep]), dropped


def _identity(record: Record, names: Sequence[str]) -> tuple[str, ...] | None:
    values = [record.get(name) for name in names]
    return None if all(v is None for v in values) else tuple(map(str, values))
