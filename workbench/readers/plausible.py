"""Cells that no training can have written -> missing or infinite, with a note; rules may square what is left."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.tables import Note, Table

LARGEST_FLOAT32 = float(np.finfo("float32").max)  # losses, norms and rates are computed in float32, or coarser
LONGEST_US = 3.2e15  # a hundred years
MAY_BE_NEGATIVE = frozenset({"training_steps"})  # a clock set back in training: the diagnosis counts these steps


def plausible(frame: pd.DataFrame, declared: Table, file: str) -> tuple[pd.DataFrame, list[Note]]:
    """The rows without impossible cells: such a duration is missing, any other number too large is infinite.

    Args:
        frame: a checked table; not changed.
        declared: its declaration.
        file: where it comes from, for the notes.
    """
    mended: dict[str, np.ndarray | pd.Series] = {}
    notes = []
    for name in (c.name for c in declared.columns if c.dtype == "float64"):
        values = frame[name].to_numpy()
        is_duration = name.endswith("_us")
        odd = _impossible_us(values, declared.name) if is_duration else _beyond_float32(values)
        if not odd.any():
            continue
        mended[name] = np.where(odd, np.nan if is_duration else np.copysign(np.inf, values), values)
        if f"{name}_finite" in frame:
            mended[f"{name}_finite"] = frame[f"{name}_finite"] & ~odd
        notes.append(_note(file, name, values[odd], is_duration))
    return (frame.assign(**mended) if mended else frame), notes


def _impossible_us(values: np.ndarray, table: str) -> np.ndarray:
    least = -LONGEST_US if table in MAY_BE_NEGATIVE else 0.0
    odd: np.ndarray = (values < least) | (values > LONGEST_US)
    return odd


def _beyond_float32(values: np.ndarray) -> np.ndarray:
    odd: np.ndarray = np.isfinite(values) & (np.abs(values) > LARGEST_FLOAT32)
    return odd


def _note(file: str, column: str, odd: np.ndarray, is_duration: bool) -> Note:
    what = "below zero, or over a hundred years" if is_duration else "beyond the largest float32"
    return Note(
        file=file,
        where=f"column {column}",
        problem=f"{len(odd)} cells are {what}, such as {odd[0]:g}",
        lost="these cells" if is_duration else "nothing: they count as infinite",
        fix="check the unit and the writer of this column",
    )
