"""Bytes of a protocol-buffer message -> its fields, without the message's definition or a protobuf package.

Source: the protocol buffers encoding guide (wire types 0, 1, 2, 5; no file read here uses the group types 3 and 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10

Field = tuple[int, int, int | bytes]  # field number, wire type, value: int for VARINT, else the bytes


class BadMessage(Exception):
    """The bytes are no protocol-buffer message."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in file order.

    Raises:
        BadMessage: where the message breaks off or is none; fields before that place were yielded.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise BadMessage("field number 0")
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, at = _varint(data, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise BadMessage(f"wire type {wire}")
        if at + length > len(data):
            raise BadMessage("the message breaks off")
        yield number, wire, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(MAX_VARINT_BYTES):
        if at + i >= len(data):
            raise BadMessage("the message breaks off")
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    raise BadMessage("a number of more than ten bytes")


def as_float(value: int | bytes) -> float | None:
    """A fixed 32-bit or 64-bit field as a number; None for other fields."""
    if isinstance(value, bytes) and len(value) in (4, 8):
        return float(struct.unpack("<f" if len(value) == 4 else "<d", value)[0])
    return None


def as_int64(value: int | bytes) -> int | None:
    """A varint field as a signed 64-bit number; None for other fields."""
    if not isinstance(value, int):
        return None
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
