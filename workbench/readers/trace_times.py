"""Times of trace events -> integer nanoseconds, without passing 19 digits through a float64."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EXACT_FLOAT_US = 2.0**43  # below, a float64 tells any two times of 0.001 us apart
_LARGEST_NS = 2**63 - 1
_THOUSANDTHS = pa.decimal128(38, 3)
_FINER = pa.decimal128(38, 12)


class Nanoseconds(NamedTuple):
    """int64 nanoseconds, which of them are usable, and whether every one is what the text of the file says."""

    ns: np.ndarray
    usable: np.ndarray
    exact: bool = True


def to_ns(values: list[Any]) -> Nanoseconds:
    """Microseconds as text, numbers or Decimals -> nanoseconds, rounded where there are more than three decimals."""
    if not values:
        return Nanoseconds(np.empty(0, np.int64), np.empty(0, bool))
    kinds = {type(v) for v in values}
    if kinds == {str}:
        return _from_texts(values)
    if kinds <= {int, float}:
        return _from_numbers(values)
    if kinds <= {int, float, str}:
        return _from_mixture(values)
    return _one_by_one(values)


def _from_mixture(values: list[Any]) -> Nanoseconds:
    is_text = np.fromiter((type(v) is str for v in values), bool, len(values))
    texts = _from_texts([v for v in values if type(v) is str])
    numbers = _from_numbers([v for v in values if type(v) is not str])
    merged = np.empty(len(values), np.int64)
    usable = np.empty(len(values), bool)
    merged[is_text], merged[~is_text] = texts.ns, numbers.ns
    usable[is_text], usable[~is_text] = texts.usable, numbers.usable
    return Nanoseconds(merged, usable, texts.exact and numbers.exact)


def _from_numbers(values: list[Any]) -> Nanoseconds:
    try:
        numbers = np.fromiter(values, np.float64, len(values))
    except OverflowError:
        return _one_by_one(values)
    whole = np.floor(numbers)
    fraction = numbers - whole
    fits = np.abs(numbers) < _LARGEST_NS / 1000
    ns = np.where(fits, whole, 0).astype(np.int64) * 1000 + np.rint(fraction * 1000).astype(np.int64)
    exact = not ((np.abs(numbers) >= EXACT_FLOAT_US) & (fraction != 0)).any()
    return Nanoseconds(ns, fits, exact)


def _from_texts(values: list[str]) -> Nanoseconds:
    texts = pc.utf8_trim_whitespace(pa.array(values, pa.string()))
    try:
        thousandths = texts.cast(_THOUSANDTHS)
    except pa.ArrowInvalid:  # more than three decimals, or not a number
        try:
            thousandths = pc.round(texts.cast(_FINER), ndigits=3).cast(_THOUSANDTHS)
        except pa.ArrowInvalid:
            return _one_by_one(values)
    words = np.frombuffer(thousandths.buffers()[1], "<i8").reshape(-1, 2)[: len(values)]
    fits = words[:, 1] == np.where(words[:, 0] < 0, -1, 0)
    return Nanoseconds(words[:, 0].copy(), fits)


def _one_by_one(values: list[Any]) -> Nanoseconds:
    cells = [_cell(v) for v in values]
    usable = np.fromiter((c is not None for c in cells), bool, len(cells))
    return Nanoseconds(np.fromiter((c or 0 for c in cells), np.int64, len(cells)), usable)


def _cell(value: Any) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        ns = int((Decimal(str(value).strip()) * 1000).to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return ns if abs(ns) <= _LARGEST_NS else None
