"""Bytes -> masked CRC-32C, the check sum of event files; no compiled package for it is among the dependencies.

Source: Castagnoli polynomial 0x1EDC6F41, reflected (RFC 3720, appendix B.4); masking as in TFRecord files. MindSpore's
files carry the same check sums (tried on files of MindSpore 2.10).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

REFLECTED_POLYNOMIAL = 0x82F63B78
MASK_DELTA = 0xA282EAD8
NUMPY_FROM_RECORDS = 16  # fewer equally long records are faster in plain Python


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ REFLECTED_POLYNOMIAL if value & 1 else value >> 1
        table.append(value)
    return table


_TABLE = _table()
_TABLE_ARRAY = np.array(_TABLE, dtype="uint32")


def masked_crc32c(data: bytes) -> int:
    """Masked check sum of `data`."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def masked_crc32c_each(records: Sequence[bytes]) -> np.ndarray:
    """Masked check sum of each record, uint32. Records of one length are computed together."""
    sums = np.zeros(len(records), dtype="uint32")
    by_length: dict[int, list[int]] = {}
    for i, record in enumerate(records):
        by_length.setdefault(len(record), []).append(i)
    for length, members in by_length.items():
        if len(members) < NUMPY_FROM_RECORDS:
            sums[members] = [masked_crc32c(records[i]) for i in members]
        else:
            rows = np.frombuffer(b"".join(records[i] for i in members), dtype="uint8").reshape(-1, length)
            sums[members] = masked_crc32c_rows(rows)
    return sums


def masked_crc32c_rows(rows: np.ndarray) -> np.ndarray:
    """Masked check sum of each row of a uint8 matrix."""
    crc = np.full(len(rows), 0xFFFFFFFF, dtype="uint32")
    for column in np.ascontiguousarray(rows.T):
        crc = _TABLE_ARRAY[(crc ^ column) & 0xFF] ^ (crc >> 8)
    wide = (crc ^ np.uint32(0xFFFFFFFF)).astype("uint64")
    return ((((wide >> 15) | (wide << 17)) + MASK_DELTA) & 0xFFFFFFFF).astype("uint32")
