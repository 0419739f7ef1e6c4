"""Bytes of a text file of unknown origin, made into clean UTF-8 lines."""

from __future__ import annotations

import codecs
import mmap
from pathlib import Path

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.tables import Note

MMAP_FROM_BYTES = 256 << 20  # below it a copy is safer: a mapped file that another process cuts kills the reader
ENCODING_HEAD_BYTES = 4096
REPLACEMENT = "\ufffd".encode()
UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UTF32_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)  # the first begins with a mark of UTF-16
MOSTLY_LATIN, SOME_LATIN = 0.8, 0.2  # share of characters below U+0100
FEW_ZEROS = 0.1  # of the zeros of the one half that the other half may have

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
    """Undo byte-order marks, UTF-16, UTF-32, NUL bytes and lone carriage returns; what was changed is in the notes.

    Invalid UTF-8 is left as it is: `decode_to_utf8` treats it, and costs a pass over the whole file.
    """
    notes: list[Note] = []
    head = bytes(data[:ENCODING_HEAD_BYTES])
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
    """The UTF-16 (or, by its byte-order mark, UTF-32) variant of a text that begins with `head`.

    Without a mark: one half of the bytes is often zero and the other hardly ever, and the text has a line end. Chinese
    with some digits and quotes is such a text, too.
    """
    if head.startswith(UTF32_BOMS):
        return "utf-32"
    if head.startswith(UTF16_BOMS):
        return "utf-16"
    for encoding, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
        high, low = head[offset::2], head[1 - offset :: 2]
        zeros = high.count(0)
        if len(high) < 8 or low.count(0) > FEW_ZEROS * zeros:
            continue
        if zeros > MOSTLY_LATIN * len(high) or (zeros > SOME_LATIN * len(high) and _has_lines(head, encoding)):
            return encoding
    return None


def _has_lines(head: bytes, encoding: str) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return "\n" in text


def text_of_head(head: bytes) -> str:
    """The first bytes of a file as text: UTF-8, else GBK, whose last character may be cut; else with replacements."""
    for encoding in ("utf-8", "gb18030"):
        try:
            return codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
    return head.decode("utf-8", "replace")


def in_utf8(content: bytes) -> bytes:
    """`content` without a byte-order mark, and in UTF-8 where it is UTF-16. Other bytes stay as they are."""
    encoding = utf16_of(content[:ENCODING_HEAD_BYTES])
    if encoding is not None:
        return content.decode(encoding, "replace").removeprefix("\ufeff").encode()
    return content.removeprefix(codecs.BOM_UTF8)


def in_other_encoding(line: bytes) -> bytes:
    """A line that is not UTF-8, as if it were GBK, else with replacements, in UTF-8; empty where it is UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return text_of_head(line).encode()
    return b""


def begins_as_utf8(data: Buffer) -> bool:
    """Whether the first bytes are UTF-8, but for a character that is cut behind them."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(bytes(data[:ENCODING_HEAD_BYTES]))
    except UnicodeDecodeError:
        return False
    return True


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
