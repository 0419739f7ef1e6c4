"""Bytes of a text file of unknown origin, made into clean UTF-8 lines."""

from __future__ import annotations

import codecs
import mmap
from pathlib import Path

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.tables import Note

MMAP_FROM_BYTES = 256 << 20  # below it a copy is safer: a mapped file that another process cuts kills the reader
REPLACEMENT = "\ufffd".encode()
UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Buffer = bytes | mmap.mmap


def read_bytes(path: Path, context: FileContext) -> Buffer:
    """All bytes of `path`; large files are mapped, not copied.

    Raises:
        UnreadableFileError: the file is empty, cannot be opened, or is a directory.
    """
    try:
        with path.open("rb") as f:
            size = path.stat().st_size
            data: Buffer = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if size > MMAP_FROM_BYTES else f.read()
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise UnreadableFileError(
            f"{context.name(path)} cannot be opened: {reason}.", fix="check that the file exists and may be read"
        ) from e
    if not len(data):
        raise UnreadableFileError(
            f"{context.name(path)} is empty (0 bytes).",
            fix="copy it again from the training host, or repeat the profiling: its writer was interrupted",
        )
    return data


def normalise_bytes(data: Buffer, file: str) -> tuple[Buffer, list[Note]]:
    """Undo byte-order marks, UTF-16, NUL bytes and lone carriage returns; what was changed is in the notes.

    Invalid UTF-8 is left as it is: `decode_to_utf8` treats it, and costs a pass over the whole file.
    """
    notes: list[Note] = []
    head = bytes(data[:4096])
    if head.startswith(codecs.BOM_UTF8):
        data = bytes(data[3:])
    elif encoding := utf16_of(head):
        data = bytes(data).decode(encoding, "replace").lstrip("\ufeff").encode()
    nul = data.find(b"\0")
    if nul >= 0:
        text = bytes(data)
        notes.append(
            Note(
                file=file,
                where=f"byte {nul}",
                problem=f"{text.count(0)} NUL bytes: the file was damaged, or its disk was full.",
                lost="the cells around them",
                fix="copy the file again from the training host",
            )
        )
        data = text.replace(b"\0", REPLACEMENT)
    if data.find(b"\n") < 0 and data.find(b"\r") >= 0:
        data = bytes(data).replace(b"\r", b"\n")
    return data, notes


def utf16_of(head: bytes) -> str | None:
    """The UTF-16 variant of a text that begins with `head`, also without a byte-order mark."""
    if head.startswith(UTF16_BOMS):
        return "utf-16"
    for encoding, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
        high = head[offset::2]
        if len(high) >= 8 and high.count(0) > 0.8 * len(high) and head[1 - offset :: 2].count(0) < 0.1 * len(high):
            return encoding
    return None


def decode_to_utf8(data: Buffer, file: str) -> tuple[bytes, list[Note]]:
    """`data` as valid UTF-8. GBK text is converted, other invalid bytes become U+FFFD; each case has a note."""
    raw = bytes(data)
    try:
        raw.decode()
        return raw, []
    except UnicodeDecodeError as e:
        first = e.start
    try:
        text, problem, lost = (
            raw.decode("gb18030"),
            "the text is not UTF-8; it was read as GBK.",
            "nothing, if it is GBK",
        )
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        problem = f"{text.count(chr(0xFFFD))} places are neither UTF-8 nor GBK text."
        lost = "the characters there"
    note = Note(file=file, where=f"byte {first}", problem=problem, lost=lost, fix="save the file as UTF-8")
    return text.encode(), [note]
