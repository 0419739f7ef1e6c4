"""Many small step_trace_time.csv at once: of a thousand ranks, converting each file alone is most of the work."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import read_delimited
from workbench.readers.kinds import FileContext
from workbench.readers.text import read_bytes
from workbench.tables import STEP_TIME, Reading

NEEDS_CARE = (b'"', b"\0", b"\xef\xbb\xbf")


def read_many_step_trace_times(
    files: Sequence[tuple[Path, FileContext]], sends: Sequence[bool | None]
) -> dict[str, Reading] | None:
    """The same rows as reading each file alone, in the order of `files`.

    Args:
        files: paths with what their places tell.
        sends: per file, whether communication.json beside it shows sends or receives; None where there is none.

    Returns:
        None if any of the files needs care: another header, a torn end, a note of any kind, rows without steps.
    """
    joined = _joined(files)
    if joined is None:
        return None
    content, counts = joined
    with tempfile.NamedTemporaryFile(suffix=".csv", dir=files[0][1].scratch) as temporary:
        temporary.write(content)
        temporary.flush()
        read = read_delimited(Path(temporary.name), files[0][1], columns=STEP_TIME)
    table = read.table
    if read.notes or len(table) != counts.sum() or "step" not in table or table.step.isna().any():
        return None
    table = _without_unknown(table, counts, sends)
    if table is None:
        return None
    ranks = np.repeat([context.rank_id for _, context in files], counts)
    windows = np.repeat([context.window for _, context in files], counts)
    return {STEP_TIME.name: Reading(STEP_TIME.check(table.assign(rank_id=ranks, window=windows)), [])}


def _joined(files: Sequence[tuple[Path, FileContext]]) -> tuple[bytes, np.ndarray] | None:
    """One header and the lines of all files, and how many lines each has; None if any file needs care."""
    parts: list[bytes] = []
    counts: list[int] = []
    header = b""
    for path, context in files:
        try:
            data = bytes(read_bytes(path, context))
        except UnreadableFileError:
            return None
        first, _, body = data.partition(b"\n")
        header = header or first
        lines = body.count(b"\n")
        if first != header or not body.endswith(b"\n") or not lines or any(word in data for word in NEEDS_CARE):
            return None
        parts.append(body)
        counts.append(lines)
    return b"\n".join([header, b"".join(parts)]), np.array(counts)


def _without_unknown(table: pd.DataFrame, counts: np.ndarray, sends: Sequence[bool | None]) -> pd.DataFrame | None:
    """What the reader of one file makes of zeros: unknown stage, bubble and step; None where it would add a note."""
    filled = {}
    no_sends = np.repeat([s is False for s in sends], counts)
    for name in {"stage_us", "bubble_us"} & set(table.columns):
        values = table[name].to_numpy(dtype="float64")
        known = (values != 0) | (no_sends if name == "bubble_us" else False)
        filled[name] = np.where(known, values, np.nan)
    if "bubble_us" in filled:
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        all_unknown = np.logical_and.reduceat(np.isnan(filled["bubble_us"]), starts)
        if (all_unknown & np.array([s is True for s in sends])).any():
            return None
    elif any(sends):
        return None
    alone = np.repeat(counts == 1, counts) & (table.step == 0).to_numpy(dtype=bool)
    return table.assign(**filled, step=table.step.mask(alone))
