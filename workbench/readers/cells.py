"""Cells of text files -> numbers and exact times. A cell that is no number becomes missing and is counted."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

MISSING_WORDS = ("", "N/A", "n/a", "NA", "NaN", "nan", "NAN", "-nan", "null", "NULL", "None", "none", "-", "--")
MISSING_TEXT = ("", "N/A")
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|Infinity)$"
DECIMAL_COMMA = r"^([+-]?\d+),(\d+)$"
LARGEST_EXACT_INTEGER = 2**53

UNIT = re.compile(r"\(([^()]*)\)\s*$")
US_PER = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
BYTES_PER = {"byte": 1.0, "b": 1.0, "kb": 1024.0, "mb": 1024.0**2, "gb": 1024.0**3}
BYTES_PER_S_PER = {"kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9}


class Numbers(NamedTuple):
    """Converted cells: `values` (missing where there is none); `bad` cells are neither number nor missing."""

    values: np.ndarray | pd.Series
    bad: np.ndarray


def header_unit(header: str) -> str:
    """The unit in parentheses at the end of a header, lower case; '' without one."""
    found = UNIT.search(header)
    return found.group(1).strip().lower() if found else ""


def unit_factor(header: str, name: str) -> float:
    """What to multiply a cell under `header` with, so that it has the unit in which column `name` ends.

    A header without a known unit counts as already in the column's unit.
    """
    unit = header_unit(header)
    if name.endswith("_bytes_per_s"):
        return BYTES_PER_S_PER.get(unit, 1.0)
    if name.endswith("_us"):
        return US_PER.get(unit, 1.0)
    if name.endswith("_bytes"):
        return BYTES_PER.get(unit, 1.0)
    if name.endswith("share"):
        return 0.01 if unit == "%" else 1.0
    return 1.0


def trimmed(cells: pa.ChunkedArray, missing: tuple[str, ...]) -> pa.ChunkedArray:
    """Cells without the blanks and tabs around them; words of `missing` become null."""
    texts = pc.utf8_trim_whitespace(cells.cast(pa.string()))
    return pc.if_else(pc.is_in(texts, value_set=pa.array(missing)), pa.scalar(None, pa.string()), texts)


def to_numbers(cells: pa.ChunkedArray, *, decimal_comma: bool = False) -> Numbers:
    """Cells as float64."""
    texts = trimmed(cells, MISSING_WORDS)
    if decimal_comma:
        texts = pc.replace_substring_regex(texts, DECIMAL_COMMA, r"\1.\2")
    try:
        return Numbers(_floats(texts), np.zeros(len(texts), bool))
    except pa.ArrowInvalid:
        good = pc.fill_null(pc.match_substring_regex(texts, NUMBER), True)
        values = _floats(pc.if_else(good, texts, pa.scalar(None, pa.string())))
        return Numbers(values, ~_bools(good))


def to_integers(cells: pa.ChunkedArray) -> Numbers:
    """Cells as Int64; a fraction, or a number too large to be exact, is a bad cell."""
    values, bad = to_numbers(cells)
    given = ~np.isnan(values)
    exact = given & (np.abs(values) < LARGEST_EXACT_INTEGER) & (values == np.round(values))
    whole = pd.array(np.where(exact, values, 0).astype("int64"), dtype="Int64")
    whole[~exact] = pd.NA
    return Numbers(pd.Series(whole), bad | (given & ~exact))


def to_ns(cells: pa.ChunkedArray, unit: str) -> Numbers:
    """Times of day as Int64 nanoseconds, not through float64, which keeps only a quarter microsecond of 19 digits.

    A time in exponent notation has lost its digits in a spreadsheet: it is a bad cell.
    """
    texts = trimmed(cells, MISSING_WORDS)
    scale = NS_PER.get(unit, 1)
    try:
        exact = pc.cast(pc.multiply(pc.cast(texts, pa.decimal128(25, 6)), pa.scalar(scale, pa.int32())), pa.int64())
        mangled = _bools(pc.fill_null(pc.match_substring(texts, "e", ignore_case=True), False))
        if not mangled.any():
            return Numbers(pd.Series(_int64(exact)), mangled)
    except pa.ArrowInvalid:
        pass  # more decimals than expected, or a bad cell: find out which, cell by cell
    whole = [_exact_ns(text, scale) for text in texts.to_pylist()]
    values = pd.Series(pd.array([None if v is False else v for v in whole], dtype="Int64"))
    return Numbers(values, np.array([v is False for v in whole], bool))


def us_text_to_ns(cells: pd.Series) -> pd.Series:
    """Microseconds as text -> Int64 nanoseconds, exact; cells that are no plain decimal number are missing."""
    texts = pa.chunked_array([pa.array(cells.astype(object).where(cells.notna(), None), type=pa.string())])
    return pd.Series(to_ns(texts, "us").values).set_axis(cells.index)


def to_text(cells: pa.ChunkedArray) -> pd.Series:
    """Cells as pandas strings, trimmed; empty and N/A are missing."""
    return pd.Series(trimmed(cells, MISSING_TEXT).to_pandas(), dtype="string")


def _exact_ns(text: str | None, scale: int) -> int | bool | None:
    """Nanoseconds, None where the cell is missing, False where it is no plain number that fits."""
    if text is None:
        return None
    if "e" in text.lower():
        return False
    try:
        value = round(Decimal(text) * scale)
    except (InvalidOperation, ValueError, OverflowError):
        return False
    return value if -(2**63) <= value < 2**63 else False


def _floats(texts: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.cast(texts, pa.float64()).to_numpy(), dtype="float64")


def _bools(mask: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(mask.to_numpy(), dtype=bool)


def _int64(values: pa.ChunkedArray) -> pd.arrays.IntegerArray:
    missing = _bools(pc.is_null(values))
    return pd.arrays.IntegerArray(np.asarray(pc.fill_null(values, 0).to_numpy(), dtype="int64"), missing)
