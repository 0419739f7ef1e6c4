"""Samples -> the fields of a MindRecord file, and each sample in these fields or the reason why it does not fit.

MindRecord has no missing values, reads an empty array back as random memory, and drops a row of the wrong type with
nothing but a log line; a number that is not finite ends the process. So every sample is checked before it is written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from workbench.errors import UnknownParameterError

Kind = Literal["int64", "int32", "float64", "float32", "string", "int64 array", "int32 array", "float64 array"]
KINDS: dict[str, dict[str, object]] = {
    "int64": {"type": "int64"},
    "int32": {"type": "int32"},
    "float64": {"type": "float64"},
    "float32": {"type": "float32"},
    "string": {"type": "string"},
    "int64 array": {"type": "int64", "shape": [-1]},
    "int32 array": {"type": "int32", "shape": [-1]},
    "float64 array": {"type": "float64", "shape": [-1]},
}
_WHOLE, _DECIMAL = re.compile(r"[+-]?(0|[1-9]\d{0,18})"), re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a MindRecord file: its name there, the key in the samples, its kind."""

    name: str
    source: str
    kind: str
    required: bool = True


class Unfit(Exception):
    """Why a sample does not fit the fields."""


def infer_fields(samples: Iterable[Mapping[str, Any]], *, numbers_as_text: bool = False) -> tuple[Field, ...]:
    """The fields that hold all these samples.

    Whole and decimal numbers together are float64, other mixtures become text (JSON). A number or list that some
    samples lack becomes text as well, so that "missing" stays visible; a text that some lack is empty there.

    Args:
        samples: some of the samples, as dictionaries.
        numbers_as_text: the source knows text only (CSV): cells that are numbers throughout become numbers.

    Raises:
        UnknownParameterError: no sample, or no field.
    """
    kinds: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    total = 0
    for sample in samples:
        total += 1
        for key, value in sample.items():
            kind = _kind(value, numbers_as_text)
            if kind != "missing":
                kinds.setdefault(key, set()).add(kind)
                counts[key] = counts.get(key, 0) + 1
            else:
                kinds.setdefault(key, set())
    if not kinds:
        raise UnknownParameterError(
            "No field could be inferred: there is no usable sample with a field.", fix="look into the first lines"
        )
    names = _field_names(kinds)
    return tuple(
        Field(
            name=names[key],
            source=key,
            kind=_joined(found, complete=counts.get(key) == total),
            required=counts.get(key) == total,
        )
        for key, found in kinds.items()
    )


def fields_from_words(words: Sequence[str]) -> tuple[Field, ...]:
    """Fields given as `name:kind` (or `name`, then text); kinds of arrays may be written with a hyphen.

    Raises:
        UnknownParameterError: unknown kind.
    """
    pairs = [(name, kind.replace("-", " ")) for name, _, kind in (word.partition(":") for word in words)]
    if unknown := sorted({kind for _, kind in pairs if kind and kind not in KINDS}):
        raise UnknownParameterError(f"There is no kind of field {unknown}.", fix=f"use one of {', '.join(KINDS)}")
    names = _field_names([name for name, _ in pairs])
    return tuple(Field(name=names[n], source=n, kind=kind or "string") for n, kind in pairs)


def mindrecord_schema(fields: Sequence[Field]) -> dict[str, dict[str, object]]:
    """The schema that `FileWriter.add_schema` takes."""
    return {field.name: dict(KINDS[field.kind]) for field in fields}


def fit(sample: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """The sample as a row of the file.

    Raises:
        Unfit: a required field is missing, or a value is not of the field's kind.
    """
    return {field.name: _value(sample.get(field.source), field) for field in fields}


def _field_names(keys: Iterable[str]) -> dict[str, str]:
    """Names that MindRecord takes: letters, digits and underscores, each once."""
    names: dict[str, str] = {}
    for key in keys:
        base = re.sub(r"[^0-9A-Za-z_]+", "_", key).strip("_") or "field"
        name, number = base, 2
        while name in names.values():
            name, number = f"{base}_{number}", number + 1
        names[key] = name
    return names


def _kind(value: object, numbers_as_text: bool) -> str:
    if value is None or (numbers_as_text and value == ""):
        return "missing"
    if isinstance(value, str):
        return _kind_of_cell(value) if numbers_as_text else "string"
    if isinstance(value, bool | int | np.integer):
        return "int64" if abs(int(value)) < 1 << 63 else "string"
    if isinstance(value, float | np.floating):
        return "float64"
    if isinstance(value, list | tuple | np.ndarray):
        return _kind_of_list(value)
    return "json"


def _kind_of_list(values: Any) -> str:
    if isinstance(values, np.ndarray) and values.dtype == np.int32:
        return "int32 array"
    kinds = {_kind(v, False) for v in values}
    if kinds <= {"int64"}:
        return "int64 array" if kinds else "empty array"
    return "float64 array" if kinds <= {"int64", "float64"} else "json"


def _kind_of_cell(text: str) -> str:
    if _WHOLE.fullmatch(text):
        return _kind(int(text), False)
    return "float64" if _DECIMAL.fullmatch(text) and not re.match(r"[+-]?0\d", text) else "string"


def _joined(kinds: set[str], *, complete: bool) -> str:
    kinds = kinds - {"empty array"} if len(kinds) > 1 else kinds
    if kinds == {"int64", "float64"}:
        kinds = {"float64"}
    if kinds == {"int64 array", "float64 array"}:
        kinds = {"float64 array"}
    kind = next(iter(kinds)) if len(kinds) == 1 else "string"
    return kind if complete and kind in KINDS else "string"


def _value(value: Any, field: Field) -> object:
    if value is None or (isinstance(value, str) and not value and field.kind != "string"):
        if field.required:
            raise Unfit(f"field {field.source!r} is missing")
        return ""
    if field.kind == "string":
        return _text(value, field)
    if field.kind.endswith("array"):
        return _array(value, field)
    return _number(value, field)


def _text(value: object, field: Field) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unfit(f"field {field.source!r} holds half of a character (a lone surrogate)") from None
    return text


def _number(value: Any, field: Field) -> object:
    whole = field.kind.startswith("int")
    try:
        number = (int(value) if isinstance(value, str | int) else _whole(value)) if whole else float(value)
        limits = np.iinfo(field.kind) if whole else None
    except (TypeError, ValueError, OverflowError):
        raise Unfit(f"field {field.source!r} is {_shown(value)}, not {field.kind}") from None
    if limits is not None and not limits.min <= number <= limits.max:
        raise Unfit(f"field {field.source!r} is {_shown(value)}, too large for {field.kind}")
    if limits is None and not math.isfinite(number):
        raise Unfit(f"field {field.source!r} is not a finite number")
    return number


def _whole(value: Any) -> int:
    if int(value) != value:
        raise ValueError(value)
    return int(value)


def _array(value: Any, field: Field) -> np.ndarray:
    dtype = field.kind.removesuffix(" array")
    if not isinstance(value, list | tuple | np.ndarray):
        raise Unfit(f"field {field.source!r} is {_shown(value)}, not a list of numbers")
    if len(value) == 0:
        raise Unfit(f"field {field.source!r} is an empty list, which MindRecord cannot hold")
    try:
        array = np.asarray(value)
        fits = array.ndim == 1 and np.can_cast(array.dtype, "float64" if dtype.startswith("float") else "int64")
        cast = array.astype(dtype) if fits else array
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits or (cast != array).any():
        raise Unfit(f"field {field.source!r} is {_shown(value)}, not a list of {dtype}")
    return cast


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
