"""Numbers and Python literals as logs print them -> values; None where the text is none."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping

# it cannot begin inside a run of digits: a search would try each of them, and a damaged line may have thousands
NUMBER = r"(?<![\d.])[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
MOST_DIGITS = 18
LARGEST_EXACT = 2**53
_NUMBER = re.compile(rf"{NUMBER}\Z", re.IGNORECASE)
_BARE = re.compile(r"(?<![\w'\"])([-+]?)(?:nan|(inf(?:inity)?))\b(?!['\"\w])", re.IGNORECASE)
_WRAPPED = re.compile(r"\b(?:np\.|numpy\.)?(?:float|int|bool_?|tensor|array)(?:\d*_?)\(([^()]*?)(?:, dtype=[^()]*)?\)")
_OBJECT = re.compile(r"<([^<>\n]{1,200}?)(?: at 0x[0-9a-fA-F]+)?>")
_NAN_WORD = "\0nan"
METRIC_NAMES: Mapping[str, str] = {"ppl": "perplexity", "acc": "accuracy"}


def number(text: str) -> float | None:
    """The number that `text` is, blanks and square brackets around it aside; NaN and infinities are numbers."""
    text = text.strip(" []\t")
    return float(text) if _NUMBER.match(text) else None


def whole(text: str) -> int | None:
    """The integer that a run of digits is; None for one that no counter reaches, which is damage."""
    text = text.strip()
    return int(text) if text.isdigit() and len(text) <= MOST_DIGITS else None


def whole_number(value: float) -> int | None:
    """`value` as an integer; None where it is none or too large to be exact."""
    return int(value) if math.isfinite(value) and value == round(value) and abs(value) < LARGEST_EXACT else None


def to_float(value: object) -> float | None:
    """A Python number as float64; None for anything else, also for truth values and for integers beyond its range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def literal(text: str) -> object | None:
    """A Python literal, also with bare nan and inf and with numpy scalars; None if it is torn or no literal."""
    text = _WRAPPED.sub(r"\1", text)
    if "OrderedDict(" in text or " at 0x" in text:
        text = _OBJECT.sub(lambda m: repr(m[1]), text.replace("OrderedDict(", "("))
    text = _BARE.sub(lambda m: f"{m[1]}1e999" if m[2] else repr(_NAN_WORD), text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return _with_nan(value)


def _with_nan(value: object) -> object:
    if value == _NAN_WORD:
        return math.nan
    if isinstance(value, dict):
        return {k: _with_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_with_nan(v) for v in value]
    return value


def numeric_leaves(values: Mapping[object, object]) -> Iterator[tuple[str, float]]:
    """Innermost keys and numbers of nested dictionaries; other leaves are left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from numeric_leaves(value)
        elif (amount := to_float(value)) is not None:
            yield str(key), amount


def dotted(values: Mapping[object, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values as text, as table `settings` has them; lists stay one value."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{name}.")
        else:
            yield name, "" if value is None else str(value)


def metric_name(key: str) -> str:
    """Name of a metric in lower case, common abbreviations written out."""
    name = key.strip().lower().replace(" ", "_").replace("-", "_")
    return METRIC_NAMES.get(name, name)
