"""Bytes of a Chrome trace -> lists of events, chunk by chunk: memory does not depend on the size of the file.

A chunk is cut where one event ends and the next begins. Whether a cut is right is decided by decoding: the text between
two cuts is valid JSON only if both lie between events of the list. Where nothing decodes, the file is damaged, and the
events of the chunk are tried one by one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any, BinaryIO

import msgspec

CHUNK_BYTES = 2 << 20  # small enough to stay in the processor's cache: measured faster than 4, 8 or 16 MB
LARGEST_EVENT_BYTES = 8 << 20
GZIP_MAGIC = b"\x1f\x8b"

Scalar = str | int | float | None


class Event(msgspec.Struct, gc=False):
    """The fields that a row needs; `ts` and `dur` are text in some writers and numbers in others."""

    ph: Scalar = None
    name: Scalar = None
    cat: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Scalar = None
    dur: Scalar = None


class ExactEvent(msgspec.Struct, gc=False):
    """The same for traces whose numeric times have more digits than a float64 keeps."""

    ph: Scalar = None
    name: Scalar = None
    cat: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Decimal | None = None
    dur: Scalar = None


class NamingEvent(msgspec.Struct, gc=False):
    """A metadata event: names a process or a thread."""

    ph: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    args: msgspec.Raw = msgspec.Raw()


@dataclass(kw_only=True)
class Chunk:
    """Events between two cuts of a file."""

    text: bytes  # the events, with commas between them
    events: list[Event]
    damaged: int = 0  # events that could not be decoded
    first_damaged: int | None = None  # byte at which the first of them begins


@dataclass(kw_only=True)
class Tail:
    """What surrounds the list of events, and how it ended."""

    header: bytes = b""  # what stands before the list
    footer: bytes = b""  # what stands after it
    bytes_read: int = 0
    closed: bool = True  # False: the file breaks off inside the list
    stream_error: str = ""  # why decompressing or reading stopped
    found: bool = False  # the list of events was found


_DECODERS: dict[type, msgspec.json.Decoder] = {
    Event: msgspec.json.Decoder(list[Event]),
    ExactEvent: msgspec.json.Decoder(list[ExactEvent]),
    NamingEvent: msgspec.json.Decoder(list[NamingEvent]),
}
_LIST_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_WORD = re.compile(r"(?<=[:,\[])(\s*)(-?(?:NaN|nan|Infinity|inf))(?=\s*[,}\]])")  # some writers' numbers
_FILLING = " \t\r\n,\x00"
_SCANNER = json.JSONDecoder(strict=False)


def decode(text: bytes, kind: type = Event) -> list[Any] | None:
    """Events of `text` (with commas between them), or None if it is not a sequence of such events."""
    try:
        return _DECODERS[kind].decode(b"[" + text + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError):
        return None


def blocks(stream: BinaryIO, tail: Tail, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Content of `stream`, decompressed where it is gzip; an error of the stream ends it and goes to `tail`."""
    try:
        first = stream.read(size)
        if first.startswith(GZIP_MAGIC):
            yield from _decompressed(first, stream, size)
            return
        while first:
            yield first
            first = stream.read(size)
    except (OSError, zlib.error, EOFError) as error:
        tail.stream_error = str(error) or type(error).__name__


def _decompressed(first: bytes, stream: BinaryIO, size: int) -> Iterator[bytes]:
    machine: Any = None  # None between the members of a file, of which there may be several
    waiting = first
    while waiting or (waiting := stream.read(size >> 3)):
        if machine is None:
            waiting = waiting.lstrip(b"\x00")
            machine = zlib.decompressobj(zlib.MAX_WBITS | 16) if waiting else None
            continue
        yield machine.decompress(waiting, size)
        waiting = machine.unused_data if machine.eof else machine.unconsumed_tail
        machine = None if machine.eof else machine
    if machine is not None:
        yield machine.flush()
        if not machine.eof:
            raise EOFError("the compressed file is truncated")


def read_chunks(stream: BinaryIO, tail: Tail, size: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Chunks of a trace in file order, for a bare list and for `{"traceEvents": [...]}`.

    Args:
        stream: the open file.
        tail: filled in while reading: what stands around the list, and how it ended.
        size: bytes per chunk.
    """
    source = blocks(stream, tail, size)
    buffer, offset = _skip_header(source, tail)
    if not tail.found:
        return
    for block in source:
        buffer += block
        chunk, used = _cut(buffer, offset)
        if chunk is not None:
            yield chunk
            buffer, offset = buffer[used:], offset + used
    tail.bytes_read = offset + len(buffer)
    yield _last(buffer, offset, tail)


def _skip_header(source: Iterator[bytes], tail: Tail) -> tuple[bytes, int]:
    buffer = b""
    for block in source:
        buffer += block
        start = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"["):
            begin = buffer.index(b"[") + 1
        elif match := _LIST_KEY.search(buffer):
            begin = match.end()
        elif len(buffer) > LARGEST_EVENT_BYTES:
            break
        else:
            continue
        tail.found, tail.header = True, buffer[:begin]
        return buffer[begin:], begin
    tail.bytes_read = len(buffer)
    return b"", 0


def _boundaries(buffer: bytes) -> Iterator[tuple[int, int]]:
    """(end of an event, start of the next), from the end of the buffer."""
    at = len(buffer)
    while (at := buffer.rfind(b"{", 0, at)) > 0:
        before = buffer[max(0, at - 256) : at].rstrip()
        if before.endswith(b",") and (event := before[:-1].rstrip()).endswith(b"}"):
            yield at - min(at, 256) + len(event), at


def _cut(buffer: bytes, offset: int) -> tuple[Chunk | None, int]:
    cuts = list(islice(_boundaries(buffer), 4))
    for end, begin in cuts:
        events = decode(buffer[:end])
        if events is not None:
            return Chunk(text=buffer[:end], events=events), begin
    if not cuts and len(buffer) <= LARGEST_EVENT_BYTES:
        return None, 0
    chunk, used = salvage(buffer, offset, is_last=len(buffer) > LARGEST_EVENT_BYTES)
    return (chunk, used) if used else (None, 0)


def _last(buffer: bytes, offset: int, tail: Tail) -> Chunk:
    at = len(buffer)
    for _ in range(64):
        at = buffer.rfind(b"]", 0, at)
        if at < 0 or b'"ph"' in buffer[at:]:
            break
        events = decode(buffer[:at])
        if events is not None:
            tail.footer = buffer[at:]
            return Chunk(text=buffer[:at], events=events)
    closing = re.search(rb"\}\s*\]\s*(?:\}|,\s*\"[^{}]*\})?\s*\Z", buffer)
    tail.closed = closing is not None
    tail.footer = closing[0] if closing else b""
    return salvage(buffer[: closing.start() + 1] if closing else buffer, offset, is_last=True)[0]


def salvage(data: bytes, offset: int, *, is_last: bool) -> tuple[Chunk, int]:
    """Events of a damaged chunk, found one by one, and how much of the chunk was used.

    Unless the chunk is the last one, what follows its last intact event may only be incomplete, and is not used.
    """
    text = data.decode("utf-8", "replace")
    repaired = _BARE_WORD.sub(lambda match: match[1] + "0".ljust(len(match[2])), text)
    chunk = Chunk(text=b"", events=[])
    pieces: list[bytes] = []
    used = at = 0
    while (start := text.find("{", at)) >= 0:
        end, piece, events = _event_at(text, repaired, start)
        at = end
        if not events:
            continue
        _count_damage(chunk, text, used, start, offset)
        pieces.append(piece)
        chunk.events += events
        used = end
    chunk.text = b",".join(pieces)
    if is_last:
        _count_damage(chunk, text, used, len(text), offset)
        return chunk, len(data)
    rest = text[used:]
    return chunk, len(data) - len(rest.lstrip(_FILLING).encode()) if chunk.events else 0


def _count_damage(chunk: Chunk, text: str, start: int, end: int, offset: int) -> None:
    between = text[start:end].lstrip(_FILLING)
    if not between:
        return
    if chunk.first_damaged is None:
        chunk.first_damaged = offset + len(text[: end - len(between)].encode())
    chunk.damaged += max(1, between.count('"ph"'))


def _event_at(text: str, repaired: str, start: int) -> tuple[int, bytes, list[Event]]:
    """End, text and decoded form of the event that begins at `start`; without events if none does."""
    for candidate in (text, repaired):
        try:
            _, end = _SCANNER.raw_decode(candidate, start)
        except (ValueError, RecursionError):
            continue
        piece = candidate[start:end].encode()
        events = decode(piece)
        if events is not None:
            return end, piece, events if events[0].ph else []
    return start + 1, b"", []
