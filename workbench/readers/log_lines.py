"""A log file of any size and encoding -> the lines worth reading, in one pass with bounded memory.

Lines are selected in whole chunks by one RE2 expression, so that noise costs almost nothing; only selected lines become
Python strings. Progress bars end in a carriage return: each state of a bar is a line of its own, with the number of the
physical line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workbench.errors import UnreadableFileError
from workbench.readers.log_notes import NoteBook
from workbench.readers.text import utf16_of

CHUNK_BYTES = 4 << 20
LONGEST_LINE_BYTES = 16 << 20
LONGEST_TEXT = 20_000
TIME_REACH = 300  # lines at the end of a chunk that are searched for a time

_TIMED = re.compile(rb".{0,80}?\d{4}-\d\d-\d\d[-T ]\d\d:\d\d:\d\d")
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HIGH_RUNS = re.compile(rb"[\x80-\xff]+")
_GB2312 = re.compile(rb"(?:[\xa1-\xf7][\xa1-\xfe])+")


class Line(NamedTuple):
    """One line, or one state of a progress bar. `complete` is False for a last line without its line end."""

    number: int
    text: str
    complete: bool


class LogLines:
    """Iterate over the lines of `path` that match the RE2 expression `wanted`; see `take_all` and `last_timed`."""

    def __init__(self, path: Path, wanted: str, notes: NoteBook) -> None:
        self.take_all = False  # while True, every line is delivered: blocks whose lines have no common mark
        self.last_timed: Line | None = None  # last line so far that carries a date and a time
        self._path, self._wanted, self._notes = path, wanted, notes
        self._number = 0

    def __iter__(self) -> Iterator[Line]:
        try:
            with self._path.open("rb") as f:
                for chunk, complete in _chunks(f, self._notes):
                    yield from self._lines(chunk, complete)
        except OSError as error:
            raise UnreadableFileError(
                f"{self._path} cannot be read: {error.strerror or error}.", fix="check that the file may be read"
            ) from error

    def _lines(self, chunk: bytes, complete: bool) -> Iterator[Line]:
        lines = pc.split_pattern(pa.array([self._clean(chunk)], pa.large_binary()), pattern=b"\n").values
        count = len(lines) - complete  # after the last line end stands an empty piece
        selected = np.flatnonzero(pc.match_substring_regex(lines, pattern=self._wanted).to_numpy(zero_copy_only=False))
        self._remember_time(lines)
        done = 0
        for index, raw in zip(selected.tolist(), lines.take(pa.array(selected)).to_pylist(), strict=True):
            while self.take_all and done < index:
                yield from self._deliver(lines[done].as_py(), done, True)
                done += 1
            if index < count:
                yield from self._deliver(raw, index, complete or index < count - 1)
            done = index + 1
        while self.take_all and done < count:
            yield from self._deliver(lines[done].as_py(), done, complete or done < count - 1)
            done += 1
        self._number += chunk.count(b"\n")

    def _deliver(self, raw: bytes, index: int, whole: bool) -> Iterator[Line]:
        number = self._number + index + 1
        for piece in raw.split(b"\r"):
            if piece:
                yield Line(number, self._decode(piece[:LONGEST_TEXT], number), whole)

    def _remember_time(self, lines: pa.Array) -> None:
        """Look for the last time from the end: a chunk has thousands of them."""
        for index in range(len(lines) - 1, max(-1, len(lines) - TIME_REACH), -1):
            raw = lines[index].as_py()[:LONGEST_TEXT].rstrip(b"\r").rpartition(b"\r")[2]
            if _TIMED.match(raw) and b" -> " not in raw:  # else an interval inside a report
                self.last_timed = Line(self._number + index + 1, raw.decode("utf-8", "replace"), True)
                return

    def _clean(self, chunk: bytes) -> bytes:
        if b"\0" in chunk:
            where = self._number + 1 + chunk.count(b"\n", 0, chunk.find(b"\0"))
            self._notes.add(
                "NUL bytes were left out", where, "the text around them", "copy the log again", chunk.count(0)
            )
            chunk = chunk.replace(b"\0", b"")
        return _ANSI.sub(b"", chunk) if b"\x1b[" in chunk else chunk

    def _decode(self, raw: bytes, number: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            pass
        # a damaged byte in UTF-8 text must not swallow the letter behind it, so GBK counts only where all fits
        is_gbk = all(_GB2312.fullmatch(run) for run in _HIGH_RUNS.findall(raw))
        if is_gbk:
            self._notes.add(
                "lines are not UTF-8; they were read as GBK", number, "nothing, if they are", "save as UTF-8"
            )
        else:
            self._notes.add("lines hold bytes that are no text", number, "these bytes", "copy the log again")
        return raw.decode("gb18030" if is_gbk else "utf-8", "replace")


def _chunks(f: BinaryIO, notes: NoteBook) -> Iterator[tuple[bytes, bool]]:
    """Pieces that end in a line end (or the carriage return of a progress bar), and whether they do."""
    decode = _transcoder(f)
    rest = b""
    while raw := f.read(CHUNK_BYTES):
        rest += decode(raw)
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut], True
            rest = rest[cut:]
        elif len(rest) > LONGEST_LINE_BYTES:
            cut = rest.rfind(b"\r") + 1 or len(rest)
            notes.add("a line is longer than 16 MiB and was cut", 0, "matches across the cut", "check the file")
            yield rest[:cut], False
            rest = rest[cut:]
    if rest:
        yield rest, False


def _transcoder(f: BinaryIO) -> Callable[[bytes], bytes]:
    """A function bytes -> UTF-8 bytes for the encoding that the head shows; `f` stands behind the byte-order mark."""
    head = f.read(4096)
    f.seek(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
    encoding = utf16_of(head)
    if encoding is None:
        return lambda raw: raw
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return lambda raw: decoder.decode(raw).lstrip("\ufeff").encode()
