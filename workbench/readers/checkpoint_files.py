"""Is a checkpoint file whole? Checked by its structure, without MindSpore and without loading a parameter.

A .ckpt is a row of protobuf records (MindSpore, `train/checkpoint.proto`): field 1 of `Checkpoint`, each with a name,
the dimensions, the type and the bytes of one parameter, or of one slice of a large parameter. A .safetensors is a
length, a JSON header with the place of each tensor, and the tensors. What structure cannot show: a .ckpt cut exactly
between two parameters, and flipped bits in parameters (unless saved with `crc_check=True`); whoever knows the network
must compare names.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

CRC_MARK = b"crc_num"  # MindSpore, train/serialization.py: appended with 10 bytes, big endian, when crc_check=True
CRC_TRAILER_BYTES = len(CRC_MARK) + 10
MAX_HEADER_BYTES = 100_000_000  # limit of the safetensors format
RECORD_KEY = 0x0A  # field 1, length-delimited
MAX_VARINT_BYTES = 10
BLOCK_BYTES = 1 << 20
WINDOW_BYTES = 1 << 12  # holds the names and dimensions of a few small parameters

BYTES_BY_TYPE = {
    "Bool": 1, "Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Int32": 4, "UInt32": 4, "Int64": 8, "UInt64": 8,
    "Float16": 2, "BFloat16": 2, "Float32": 4, "Float64": 8, "Complex64": 8, "Complex128": 16,
}  # fmt: skip
BYTES_BY_SAFETENSORS_TYPE = {
    "BOOL": 1, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


class Damage(NamedTuple):
    """Why a checkpoint file cannot be whole: `cut_short` may still be a copy in progress, `garbled` never heals."""

    kind: Literal["cut_short", "garbled"]
    problem: str
    least_bytes: int | None = None  # that a whole file has, as far as its beginning tells


def find_damage(
    path: Path, *, tick: Callable[[], None] = lambda: None, checksum_bytes: int | None = None
) -> Damage | None:
    """What is wrong with the structure of a checkpoint file; None when it is whole.

    Args:
        path: the file.
        tick: called after each MiB of a checksum: large files take minutes.
        checksum_bytes: leave out the checksum of a larger file, so that only its structure is read.

    Raises:
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    if size == 0:
        return Damage("cut_short", "The file is empty.")
    with path.open("rb", buffering=0) as f:
        data = _Content(f.fileno(), size)
        try:
            if path.suffix == ".safetensors":
                _check_safetensors(data, size)
            else:
                _check_ckpt(data, size, tick if checksum_bytes is None or size <= checksum_bytes else None)
        except _DamageFound as found:
            return found.damage
    return None


class _Content:
    """Bytes of a file by position; not a memory map, because reading one of a file that was cut ends the process."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor, self._size = descriptor, size
        self._begin, self._window = 0, b""

    def __getitem__(self, position: int) -> int:
        return self.read(position, position + 1)[0]

    def read(self, begin: int, end: int) -> bytes:
        """Bytes from `begin` to `end`, or to the end of the file."""
        end = min(end, self._size)
        if begin < self._begin or end > self._begin + len(self._window):
            self._begin, self._window = begin, os.pread(self._descriptor, max(end - begin, WINDOW_BYTES), begin)
        part = self._window[begin - self._begin : end - self._begin]
        if len(part) < end - begin:
            raise _DamageFound("cut_short", "The file became shorter while it was read.")
        return part


class _DamageFound(Exception):
    def __init__(self, kind: Literal["cut_short", "garbled"], problem: str, least_bytes: int | None = None) -> None:
        super().__init__(problem)
        self.damage = Damage(kind, problem, least_bytes)


def _check_safetensors(data: _Content, size: int) -> None:
    header_bytes = int.from_bytes(data.read(0, 8), "little") if size >= 8 else 0
    if size >= 8 and not 2 <= header_bytes <= MAX_HEADER_BYTES:
        raise _DamageFound("garbled", f"The header claims {header_bytes:,} bytes: not a safetensors file.")
    if size < 8 + header_bytes or size < 8:
        raise _DamageFound("cut_short", f"The file ends after {size:,} bytes, inside its header.", 8 + header_bytes)
    end = _check_header(data.read(8, 8 + header_bytes))
    expected = 8 + header_bytes + end
    if size < expected:
        problem = f"The file has {size:,} of the {expected:,} bytes that its header names."
        raise _DamageFound("cut_short", problem, expected)
    if size > expected:
        raise _DamageFound("garbled", f"{size - expected:,} bytes follow the last tensor.")


def _check_header(text: bytes) -> int:
    """Check that tensors fill the data part without holes; return the data part's length."""
    try:
        header = msgspec.json.decode(text, type=dict[str, dict[str, object]])
        tensors = [msgspec.convert(v, _SafeTensor) for k, v in header.items() if k != "__metadata__"]
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise _DamageFound("garbled", f"The header is not that of a safetensors file: {error}.") from None
    if not tensors:
        raise _DamageFound("garbled", "The header names no tensor.")
    end = 0
    for tensor in sorted(tensors, key=lambda t: t.data_offsets):
        begin, next_begin = tensor.data_offsets
        item_bytes = BYTES_BY_SAFETENSORS_TYPE.get(tensor.dtype)
        needed = None if item_bytes is None else math.prod(tensor.shape) * item_bytes
        if begin != end or next_begin < begin or needed not in (None, next_begin - begin):
            raise _DamageFound("garbled", f"The place of the tensor at offset {begin:,} contradicts its shape.")
        end = next_begin
    return end


class _SafeTensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _check_ckpt(data: _Content, size: int, tick: Callable[[], None] | None) -> None:
    sizes = _ParameterSizes()
    position, number = 0, 0
    while position < size:
        if data[position] != RECORD_KEY:
            _check_trailer(data, position, size, number, tick)
            break
        number += 1
        begin, end = _delimited(data, position + 1, size, f"parameter record {number}")
        sizes.add(_read_record(data, begin, end, number))
        position = end
    sizes.check_last()


def _check_trailer(data: _Content, position: int, size: int, records: int, tick: Callable[[], None] | None) -> None:
    found = data.read(position, position + len(CRC_MARK))
    if records and CRC_MARK.startswith(found) and size - position < CRC_TRAILER_BYTES:
        raise _DamageFound("cut_short", "The file ends inside its checksum.")
    if records and found == CRC_MARK and size - position == CRC_TRAILER_BYTES:
        stored = int.from_bytes(data.read(position + len(CRC_MARK), size), "big")
        if tick is not None and stored != _crc32(data, position, tick):
            raise _DamageFound("garbled", "The content does not match the checksum that was saved with it.")
        return
    if records == 0:
        raise _DamageFound("garbled", "It does not begin with a parameter: not a MindSpore checkpoint, or encrypted.")
    if not any(data.read(position, position + WINDOW_BYTES)):
        raise _DamageFound("cut_short", f"From byte {position:,} on the file holds zeros instead of a parameter.")
    raise _DamageFound("garbled", f"No parameter begins at byte {position:,}, after {records} parameter records.")


def _crc32(data: _Content, until: int, tick: Callable[[], None]) -> int:
    computed = 0
    for begin in range(0, until, BLOCK_BYTES):
        computed = zlib.crc32(data.read(begin, min(begin + BLOCK_BYTES, until)), computed)
        tick()
    return computed


class _Record(NamedTuple):
    name: bytes
    needed_bytes: int | None  # None where type or dimensions do not tell
    content_bytes: int


class _ParameterSizes:
    """Adds up the slices of each parameter and compares the sum with its dimensions."""

    def __init__(self) -> None:
        self._last: _Record | None = None

    def add(self, record: _Record) -> None:
        last = self._last
        if last is not None and last.name == record.name:
            record = record._replace(content_bytes=last.content_bytes + record.content_bytes)
        else:
            self.check_last()
        self._last = record

    def check_last(self) -> None:
        last = self._last
        if last is None or last.needed_bytes in (None, last.content_bytes):
            return
        name = last.name.decode(errors="replace")
        kind: Literal["cut_short", "garbled"] = "cut_short" if last.content_bytes < last.needed_bytes else "garbled"
        raise _DamageFound(kind, f"Parameter {name} has {last.content_bytes:,} of {last.needed_bytes:,} bytes.")


def _read_record(data: _Content, begin: int, end: int, number: int) -> _Record:
    name, tensor = b"", None
    for field, at, until in _fields(data, begin, end, number):
        if field == 1:
            name = data.read(at, until)
        elif field == 2:
            tensor = (at, until)
    if tensor is None:  # a map parameter: its inner fields have no fixed size
        return _Record(name, None, 0)
    dims: list[int] = []
    kind, content_bytes = "", 0
    for field, at, until in _fields(data, *tensor, number):
        if field == 1:
            dims += _integers(data, at, until)
        elif field == 2:
            kind = data.read(at, until).decode(errors="replace")
        elif field == 3:
            content_bytes += until - at
    item_bytes = BYTES_BY_TYPE.get(kind)
    known = item_bytes is not None and math.prod(dims) > 0  # some scalars are written with dimension 0
    return _Record(name, math.prod(dims) * item_bytes if known and item_bytes else None, content_bytes)


def _fields(data: _Content, begin: int, end: int, number: int) -> Iterator[tuple[int, int, int]]:
    """Field number, first byte and end of each field's value in data[begin:end]."""
    position = begin
    while position < end:
        key, at = _varint(data, position, end)
        wire = key & 7
        if wire == 2:
            at, until = _delimited(data, at, end, f"a field of parameter record {number}", kind="garbled")
        elif wire == 0:
            until = _varint(data, at, end)[1]
        else:
            raise _DamageFound("garbled", f"Parameter record {number} holds a field of an unknown kind.")
        yield key >> 3, at, until
        position = until


def _integers(data: _Content, at: int, until: int) -> list[int]:
    values = []
    while at < until:
        value, at = _varint(data, at, until)
        values.append(value)
    return values


def _delimited(
    data: _Content, position: int, limit: int, what: str, *, kind: Literal["cut_short", "garbled"] = "cut_short"
) -> tuple[int, int]:
    length, begin = _varint(data, position, limit)
    if begin + length > limit:
        least = begin + length if kind == "cut_short" else None
        raise _DamageFound(kind, f"The file has {limit - begin:,} of the {length:,} bytes of {what}.", least)
    return begin, begin + length


def _varint(data: _Content, position: int, limit: int) -> tuple[int, int]:
    value = 0
    for i in range(MAX_VARINT_BYTES):
        if position + i >= limit:
            raise _DamageFound("cut_short", f"The file ends after {limit:,} bytes, inside a parameter record.")
        byte = data[position + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, position + i + 1
    raise _DamageFound("garbled", f"Byte {position:,} does not begin a length.")
