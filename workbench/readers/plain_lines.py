"""Text files with one record per line, not CSV -> the records that match, and a note on the lines that do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.readers.text import decode_to_utf8, normalise_bytes, read_bytes
from workbench.tables import Note

COPY_AGAIN = "copy the file again from the training host, or profile again"
LINES_NAMED = 5  # in a note

T = TypeVar("T")


@dataclass(frozen=True)
class Lines(Generic[T]):
    """Records of the lines that could be read, the number (from 1) of each line, and notes on the others."""

    records: list[T]
    numbers: list[int]
    notes: list[Note]


def read_lines(
    path: Path,
    context: FileContext,
    parse: Callable[[str], T | None],
    *,
    what: str,
    parse_torn: Callable[[str], T | None] | None = None,
) -> Lines[T]:
    """Parse each line that is not blank; None from `parse` marks a line that is no record.

    The writers of such files end the last line: a last line without an end is taken as cut. `parse_torn` saves what can
    be saved of it, else it is left out; the note is there in both cases.

    Raises:
        UnreadableFileError: the file is empty or cannot be opened, or no line is a record (`what` names one).
    """
    file = context.name(path)
    data, notes = normalise_bytes(read_bytes(path, context), file)
    text, more = decode_to_utf8(data, file)
    lines = text.decode().split("\n")
    records: list[T] = []
    numbers, bad = list[int](), list[int]()
    for number, line in enumerate(lines[:-1], 1):
        stripped = line.strip()
        record = parse(stripped) if stripped else None
        if record is not None:
            records.append(record)
            numbers.append(number)
        elif stripped:
            bad.append(number)
    notes += more + bad_lines_notes(file, bad, what)
    if torn := lines[-1].strip():
        notes.append(torn_line_note(file, len(lines)))
        record = parse_torn(torn) if parse_torn else None
        if record is not None:
            records.append(record)
            numbers.append(len(lines))
    if not records:
        raise UnreadableFileError(f"{file} holds no complete line with {what}.", fix=COPY_AGAIN)
    return Lines(records, numbers, notes)


def bad_lines_notes(file: str, numbers: Sequence[int], what: str) -> list[Note]:
    """One note for all lines that are no record."""
    if not numbers:
        return []
    named = ", ".join(str(n) for n in numbers[:LINES_NAMED]) + (", ..." if len(numbers) > LINES_NAMED else "")
    problem = f"{len(numbers)} lines are not {what}."
    return [Note(file=file, where=f"line {named}", problem=problem, lost="those lines", fix=COPY_AGAIN)]


def torn_line_note(file: str, number: int) -> Note:
    """The note on a last line that was cut."""
    problem = "The file ends inside this line."
    return Note(file=file, where=f"line {number}", problem=problem, lost="what was cut off", fix=COPY_AGAIN)


def share_of_lines(head: bytes, pattern: re.Pattern[str]) -> float:
    """Share of the complete, non-blank lines of `head` that match `pattern` as a whole; 0 without any."""
    data, _ = normalise_bytes(head, "") if head else (b"", [])
    lines = [line.strip() for line in bytes(data).decode("utf-8", "replace").split("\n")[:-1]]
    lines = [line for line in lines if line]
    return sum(bool(pattern.fullmatch(line)) for line in lines) / len(lines) if lines else 0.0
