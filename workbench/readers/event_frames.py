"""Bytes of an event file (MindSpore summary, TensorBoard) -> its records, each checked by its check sum.

A record is `length (8 bytes) | check sum of the length | payload | check sum of the payload`, little endian.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workbench.readers.crc32c import masked_crc32c, masked_crc32c_each, masked_crc32c_rows

HEADER_BYTES, FOOTER_BYTES = 12, 4
SEARCH_BYTES = 1 << 20
UNCHECKED_FROM_BYTES = 4 << 20  # an image or a graph: its check sum in Python would take longer than reading the rest


@dataclass
class Frames:
    """Intact payloads with the byte at which each record begins, and what was left out."""

    payloads: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    bad_payloads: list[int] = field(default_factory=list)  # bytes at which records with a wrong check sum begin
    lost: list[tuple[int, int]] = field(default_factory=list)  # byte ranges that hold no record
    torn_at: int | None = None  # byte at which a last, incomplete record begins


def is_event_file(head: bytes) -> bool:
    """Whether `head` begins with a record header whose check sum is right."""
    return _length(head, 0) is not None


def read_frames(data: bytes) -> Frames:
    """All intact records of `data`; damage costs the records that it touches."""
    frames, found = Frames(), []
    at = search_from = 0
    while at < len(data):
        length = _length(data, at)
        end = at + HEADER_BYTES + (length or 0) + FOOTER_BYTES
        if length is None or end > len(data):
            # the length of the record before may be right although bytes are missing in it: search from its payload on
            at = search_from = _skip_damage(data, at, max(search_from, at - SEARCH_BYTES), frames)
            continue
        found.append((at, length))
        search_from = at + HEADER_BYTES
        at = end
    _keep_intact(data, found, frames)
    return frames


def _length(data: bytes, at: int) -> int | None:
    """Payload length of the record at `at`; None where no record begins there."""
    header = data[at : at + HEADER_BYTES]
    if len(header) < HEADER_BYTES or masked_crc32c(header[:8]) != int.from_bytes(header[8:], "little"):
        return None
    return int.from_bytes(header[:8], "little")


def _skip_damage(data: bytes, at: int, search_from: int, frames: Frames) -> int:
    """The next byte after `search_from`, other than `at`, at which a record begins; the bytes up to there are lost."""
    for start in range(search_from, len(data), SEARCH_BYTES):
        window = data[start : start + SEARCH_BYTES + HEADER_BYTES - 1]
        places = start + _header_places(window)
        places = places[places != at]
        if len(places):
            frames.lost.append((min(at, int(places[0])), int(places[0])))
            return int(places[0])
    frames.torn_at = at
    return len(data)


def _header_places(data: bytes) -> np.ndarray:
    """Bytes of `data` at which a header with the right check sum begins."""
    if len(data) < HEADER_BYTES:
        return np.empty(0, dtype=int)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, dtype="uint8"), HEADER_BYTES)
    stated = np.ascontiguousarray(windows[:, 8:]).view("<u4")[:, 0]
    return np.flatnonzero(masked_crc32c_rows(windows[:, :8]) == stated)


def _keep_intact(data: bytes, found: list[tuple[int, int]], frames: Frames) -> None:
    payloads = [data[at + HEADER_BYTES : at + HEADER_BYTES + length] for at, length in found]
    checked = [i for i, payload in enumerate(payloads) if len(payload) < UNCHECKED_FROM_BYTES]
    sums = masked_crc32c_each([payloads[i] for i in checked])
    bad = set()
    for i, computed in zip(checked, sums, strict=True):
        at, length = found[i]
        start = at + HEADER_BYTES + length
        if int.from_bytes(data[start : start + FOOTER_BYTES], "little") != int(computed):
            bad.add(i)
    for i, (at, _) in enumerate(found):
        if i in bad:
            frames.bad_payloads.append(at)
        else:
            frames.offsets.append(at)
            frames.payloads.append(payloads[i])
