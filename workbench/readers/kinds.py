"""What a file kind is: how it is recognised, which tables it fills, and how it is read.

Each reader module lists its kinds in `KINDS`; `workbench.readers.ALL_KINDS` joins them, most specific first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from workbench.tables import Note, Reading

HEAD_BYTES = 65536
Sink = Callable[[str, pa.Table], None]  # takes (table name, rows as Arrow columns of the declared table)


@dataclass(frozen=True, kw_only=True)
class FileContext:
    """What the place of a file tells about it."""

    rank_id: int = 0
    window: int = 0  # profile window of the rank, by time
    root: Path | None = None  # directory that the user opened; names in notes are relative to it
    scratch: Path | None = None  # directory for temporary files, the system's by default

    def name(self, path: Path) -> str:
        """`path` as shown in notes and in the column `source`."""
        shown = path.relative_to(self.root) if self.root and path.is_relative_to(self.root) else path
        return encodable(str(shown))


def encodable(name: str) -> str:
    """A file name that is not UTF-8 in a form that JSON and Arrow can hold."""
    return name.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """One kind of file.

    `sniff` decides by the first `HEAD_BYTES` bytes and may use the path; it never raises. `read` returns a Reading per
    table it fills; it raises `UnreadableFileError` only when nothing at all can be used.

    A kind of large files has `stream` too, which hands over its rows piece by piece and returns its notes, so that
    memory stays bounded. A kind of which there are thousands of small files may have `read_many`: the same rows as
    `read` of each file gives, or None if any of the files must be read alone. A table whose `rows_stand_alone` (what a
    line means does not depend on other lines) is read in pieces when it is large.
    """

    name: str  # "kernel_details"
    meaning: str  # one line for `workbench import` and the docs
    tables: tuple[str, ...]
    sniff: Callable[[Path, bytes], bool]
    read: Callable[[Path, FileContext], dict[str, Reading]]
    stream: Callable[[Path, FileContext, Sink], list[Note]] | None = None
    read_many: Callable[[Sequence[tuple[Path, FileContext]]], dict[str, Reading] | None] | None = None
    rows_stand_alone: bool = False


def in_folder(folder: str, pattern: str) -> Callable[[Path, bytes], bool]:
    """Sniffer of our own files. Place and name decide, so that an empty or damaged file is still named in a note."""
    matches = re.compile(pattern).fullmatch

    def sniff(path: Path, _head: bytes) -> bool:
        return path.parent.name == folder and matches(path.name) is not None

    return sniff
