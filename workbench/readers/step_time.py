"""step_trace_time.csv and cluster_step_trace_time.csv -> table `step_time`.

Stage and Bubble are kept only where they mean something (MindSpore's writers, read in their source): up to 2.4 they are
derived from wrong rows, and with newer CANN versions they are 0 because the communication track is not found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import Delimited, read_delimited
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import csv_with, reading
from workbench.readers.step_time_many import read_many_step_trace_times
from workbench.readers.text import read_bytes
from workbench.tables import STEP_TIME, Column, Note, Reading

PIPELINE_US = ["stage_us", "bubble_us", "communication_not_overlapped_exclude_receive_us"]
POINT_TO_POINT = re.compile(rb"hcom_\w*(send|receive|recv)", re.IGNORECASE)
CLUSTER_COLUMNS = (
    *STEP_TIME.columns,
    Column("type", "string", "rank or stage", "Type", required=True),
    Column("index", "string", "rank, or ranks of the stage", "Index", required=True),
)
PARTS = ("Computing", "Free", "Communication(Not Overlapped)")


def read_step_trace_time(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one rank's step_trace_time.csv, one row per step, us.

    Stage and Bubble of 0 are missing (unknown), Bubble unless communication.json beside it shows no send or receive; in
    a row without step, as MindSpore 2.2.14 - 2.4 writes it, they and Exclude Receive are missing. The single row
    with step 0 that stands for "no steps" gets a missing step.
    """
    read = read_delimited(path, context, columns=STEP_TIME)
    rows, notes = _pipeline_parts(read, path, context)
    if len(rows) == 1 and "step" in rows and (rows.step == 0).fillna(False).all():
        rows = rows.assign(step=pd.array([pd.NA], dtype="Int64"))
    return {"step_time": reading(STEP_TIME, rows, context, notes)}


def read_many(files: Sequence[tuple[Path, FileContext]]) -> dict[str, Reading] | None:
    """Read many ranks' step_trace_time.csv at once; None if any of them must be read alone."""
    return read_many_step_trace_times(files, [_sends_beside(path, context) for path, context in files])


def read_cluster_step_trace_time(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the ranks' rows of msprof-analyze's cluster_step_trace_time.csv.

    Stage rows are left out: they hold the maximum of each column, so that their parts do not add up.
    """
    read = read_delimited(path, context, columns=CLUSTER_COLUMNS)
    notes = list(read.notes)
    rows = read.table.reindex(columns=list(dict.fromkeys([*read.table.columns, "type", "index"])))
    rows = rows[rows.type.ne("stage").fillna(True)]
    rank = pd.to_numeric(rows["index"], errors="coerce")
    if rank.isna().any():
        notes.append(_no_rank_note(context.name(path), int(rank.isna().sum())))
    rows = rows.assign(rank_id=rank)[rank.notna()].drop(columns=["type", "index"])
    rows = rows.assign(stage_us=_nonzero(rows, "stage_us"), bubble_us=_nonzero(rows, "bubble_us"))
    return {"step_time": reading(STEP_TIME, rows, context, notes)}


def _pipeline_parts(read: Delimited, path: Path, context: FileContext) -> tuple[pd.DataFrame, list[Note]]:
    rows, notes = read.table, list(read.notes)
    if "step" in rows and len(rows) and rows.step.isna().all() and not any("column Step" in n.where for n in notes):
        notes.append(_junk_note(context.name(path)))
        return rows.drop(columns=[c for c in PIPELINE_US if c in rows]), notes
    stage, bubble = _nonzero(rows, "stage_us"), _nonzero(rows, "bubble_us")
    sends = _sends_beside(path, context)
    if sends is False and "bubble_us" in rows:
        bubble = rows.bubble_us
    elif sends and len(rows) and bubble.isna().all():
        notes.append(_zero_bubble_note(context.name(path)))
    return rows.assign(stage_us=stage, bubble_us=bubble), notes


def _nonzero(rows: pd.DataFrame, name: str) -> pd.Series:
    """Column `name` with 0 as missing."""
    if name not in rows:
        return pd.Series(float("nan"), index=rows.index)
    values = rows[name].to_numpy(dtype="float64")
    return pd.Series(np.where(values == 0, np.nan, values), index=rows.index)


def _sends_beside(path: Path, context: FileContext) -> bool | None:
    """Whether communication.json in the same folder shows a send or receive; None where there is no such file."""
    try:
        return POINT_TO_POINT.search(read_bytes(path.with_name("communication.json"), context)) is not None
    except UnreadableFileError:
        return None


def _junk_note(file: str) -> Note:
    return Note(
        file=file,
        where="columns Stage, Bubble",
        problem="rows without a step come from MindSpore 2.2.14 to 2.4, which computed these columns from wrong rows.",
        lost="stage_us, bubble_us and communication_not_overlapped_exclude_receive_us",
        fix="read the pipeline waits from trace_view.json, or profile with MindSpore 2.5 or newer",
    )


def _zero_bubble_note(file: str) -> Note:
    return Note(
        file=file,
        where="column Bubble",
        problem="Bubble is 0 although communication.json beside it shows sends or receives.",
        lost="bubble_us",
        fix="take the waits between stages from the collectives' start times or from trace_view.json",
    )


def _no_rank_note(file: str, count: int) -> Note:
    return Note(
        file=file,
        where="column Index",
        problem=f"{count} rows name no rank.",
        lost="these rows",
        fix="run msprof-analyze cluster again, or open the rank folders themselves",
    )


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="cluster_step_trace_time",
        meaning="where the device time of each step went, all ranks (msprof-analyze)",
        tables=("step_time",),
        sniff=csv_with(("Type", "Index", *PARTS[:2]), name=r"cluster_step_trace_time\.csv"),
        read=read_cluster_step_trace_time,
    ),
    FileKind(
        name="step_trace_time",
        meaning="where the device time of each step went",
        tables=("step_time",),
        sniff=csv_with(PARTS, name=r"step_trace_time\.csv"),
        read=read_step_trace_time,
        read_many=read_many,
    ),
)
