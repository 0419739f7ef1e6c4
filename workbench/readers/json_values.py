"""Members of a JSON value of unknown shape -> numbers, texts and lists; absent or of another type is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def member(value: Any, *names: str) -> Any:
    """The member that the names lead to; None where a step is no object or has no such member."""
    for name in names:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def number(value: Any) -> float:
    """A number, also one written as text; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def integer(value: Any) -> int | None:
    """A whole number that fits into 64 bits, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    as_number = number(value)
    return int(as_number) if as_number == round_or_nan(as_number) and abs(as_number) < 2**53 else None


def round_or_nan(value: float) -> float:
    """`value` rounded; NaN where it is not finite."""
    return float(round(value)) if math.isfinite(value) else math.nan


def listed(value: Any) -> list[Any]:
    """A list; empty for anything else."""
    return value if isinstance(value, list) else []


def numbers(value: Any) -> np.ndarray:
    """A list as float64, NaN for each entry that is no number; empty for anything that is no list."""
    return np.array([number(v) for v in listed(value)], dtype="float64")


def text(value: Any) -> str | None:
    """A text, or None."""
    return value if isinstance(value, str) else None


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list; other entries are left out."""
    return [v for v in listed(value) if isinstance(v, Mapping)]
