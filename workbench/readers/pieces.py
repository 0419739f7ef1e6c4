"""A large table of text in pieces, each with the header: memory does not grow with the file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext, FileKind
from workbench.tables import Note, Reading

PIECE_BYTES = 16 << 20
LONGEST_ROW_BYTES = 4 << 20  # a quote that is not closed within so many bytes is damage, not a line break in a cell
_LINES = re.compile(r"\blines? (\d+(?:, \d+)*)")


def is_large_table(kind: FileKind, path: Path, size_bytes: int) -> bool:
    """Whether a file is to be read in pieces: large, with rows that stand alone, and its header on the first line."""
    if not kind.rows_stand_alone or size_bytes <= 2 * PIECE_BYTES:
        return False
    try:
        with path.open("rb") as f:
            head = f.readline(PIECE_BYTES)
    except OSError:
        return False
    return b"\0" not in head and head.endswith(b"\n") and kind.sniff(Path("unnamed"), head)


def read_pieces(
    kind: FileKind, path: Path, context: FileContext, take: Callable[[dict[str, Reading]], None]
) -> list[Note]:
    """Read a large table piece by piece.

    Args:
        kind: its kind, whose rows stand alone.
        path: the file.
        context: what its place tells.
        take: gets the tables of each piece, in file order.

    Returns:
        Notes of all pieces, with the lines of the whole file.

    Raises:
        UnreadableFileError: the file cannot be read.
    """
    notes: list[Note] = []
    name = context.name(path)
    with tempfile.TemporaryDirectory(dir=context.scratch) as folder, _opened(path) as f:
        header = f.readline()
        piece_path = Path(folder) / path.name
        inside = replace(context, root=Path(folder))
        lines_before = 0
        for piece in _pieces(f):
            piece_path.write_bytes(header + piece)
            readings = kind.read(piece_path, inside)
            take(readings)
            found = [note for reading in readings.values() for note in reading.notes]
            notes += [replace(note, file=name, where=_shifted(note.where, lines_before)) for note in found]
            lines_before += piece.count(b"\n")
    return notes


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UnreadableFileError(
            f"{path} cannot be read: {error.strerror or error}.", fix="check the path and its permissions"
        ) from None


def _pieces(f: BinaryIO) -> Iterator[bytes]:
    """Whole lines of about PIECE_BYTES; a line break inside quotes does not end a piece."""
    rest = b""
    while block := f.read(PIECE_BYTES):
        rest += block
        end = _end_of_row(rest)
        yield rest[:end]
        rest = rest[end:]
    if rest:
        yield rest


def _end_of_row(text: bytes) -> int:
    end = text.rfind(b"\n") + 1
    lowest = max(0, len(text) - LONGEST_ROW_BYTES)
    is_open = text.count(b'"', 0, end) % 2 == 1
    while is_open and end > lowest:  # go back to a line break outside quotes
        before = text.rfind(b"\n", 0, end - 1) + 1
        is_open ^= text.count(b'"', before, end) % 2 == 1
        end = before
    return end if end > lowest else text.rfind(b"\n") + 1 or len(text)


def _shifted(where: str, lines_before: int) -> str:
    """`where` of a piece, as the lines of the whole file; the header is line 1 of each piece."""

    def shift(match: re.Match[str]) -> str:
        numbers = [int(n) for n in match[1].split(", ")]
        return match[0].replace(match[1], ", ".join(str(n + lines_before if n > 1 else n) for n in numbers))

    return _LINES.sub(shift, where)
