"""Numbers and Python literals as logs print them -> values; None where the text is none."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
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
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(key), float(value)


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
