"""Traces of ByteDance's StragglerAnalysis (Parquet, one row per operation) -> table `operations`.

Columns: dp_rank, stage, rank, step, optype, start_ts and duration (s, per step), seq_id, mb_id, mc (model chunk).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import MissingColumnsError, UnreadableFileError
from workbench.readers.kinds import FileContext, FileKind
from workbench.tables import OPERATIONS, Note, Reading

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mb_id", "mc")
SYNCHRONISED = {  # op type -> who starts together: the same stage's ranks, all ranks, first and last stage of a replica
    "params-all-gather": "stage",
    "grads-reduce-scatter": "stage",
    "separate-grads-all-reduce": "stage",
    "optimizer-clip-main-grad": "job",  # it contains the all-reduce of the gradients' norm
    "embedding-grads-all-reduce": "replica",
}
COLLECTIVE = (*SYNCHRONISED, "layernorm-grads-all-reduce")  # the last one waits for ranks that the trace leaves out
POINT_TO_POINT = {  # op type -> role, direction, stages between this rank and the sender
    "forward-send": ("send", "forward", 0),
    "forward-recv": ("receive", "forward", -1),
    "backward-send": ("send", "backward", 0),
    "backward-recv": ("receive", "backward", 1),
}
SECOND_NS, SECOND_US = 1e9, 1e6


def read_straggler_trace(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read a trace of all ranks. Rows with an unreadable time are left out, with a note.

    Raises:
        UnreadableFileError: it is not a complete Parquet file.
        MissingColumnsError: it lacks one of `COLUMNS`.
    """
    try:
        frame = pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFileError(
            f"{context.name(path)} is not a complete Parquet file: {str(error).splitlines()[0]}",
            fix="copy the trace again",
        ) from None
    missing = [c for c in COLUMNS if c not in frame]
    if missing:
        raise MissingColumnsError(
            f"{context.name(path)} lacks {missing}; it has {list(frame)}.",
            fix="give a trace as StragglerAnalysis writes it",
        )
    known = frame[["start_ts", "duration", "rank", "step"]].notna().all(axis=1) & (frame["duration"] >= 0)
    notes = _left_out(int((~known).sum()), context.name(path))
    return {"operations": Reading(OPERATIONS.check(_operations(frame[known])), notes)}


def _operations(frame: pd.DataFrame) -> pd.DataFrame:
    op_type = frame["optype"].astype("string")
    role = op_type.map({name: role for name, (role, _, _) in POINT_TO_POINT.items()})
    role = role.where(~op_type.isin(COLLECTIVE), "collective").fillna("compute")
    own_lane = op_type.isin([*POINT_TO_POINT, "params-all-gather"])
    return pd.DataFrame(
        {
            "rank_id": frame["rank"],
            "step": frame["step"],
            "op_type": op_type,
            "role": role,
            "lane": op_type.where(own_lane, "compute"),
            "start_ns": (frame["start_ts"].astype("float64") * SECOND_NS).round(),
            "duration_us": frame["duration"].astype("float64") * SECOND_US,
            "dp_rank": frame["dp_rank"],
            "stage": frame["stage"],
            "micro_batch": frame["mb_id"].where(frame["mb_id"] >= 0),
            "sequence": frame["seq_id"],
            "group_id": _groups(frame, op_type),
        }
    ).reset_index(drop=True)


def _groups(frame: pd.DataFrame, op_type: pd.Series) -> pd.Series:
    """Label of those that start together in a step: the last one that is ready starts all."""
    dp, stage, number = (frame[c].astype("string") for c in ("dp_rank", "stage", "seq_id"))
    scope = op_type.map(SYNCHRONISED)
    label = op_type + " " + number
    group = label.where(scope == "job").fillna((label + " stage " + stage).where(scope == "stage"))
    group = group.fillna((label + " replica " + dp).where(scope == "replica"))
    for name, (_, direction, offset) in POINT_TO_POINT.items():
        sender = (frame["stage"].astype("int64") + offset).astype("string")
        pair = direction + " " + number + " from stage " + sender + " replica " + dp
        group = group.fillna(pair.where(op_type == name))
    return group


def _left_out(count: int, file: str) -> list[Note]:
    if not count:
        return []
    return [
        Note(
            file=file,
            where="columns start_ts, duration, rank, step",
            problem=f"{count} row(s) without a time, rank or step.",
            lost="these operations",
            fix="none, if the trace was cut; else write it again",
        )
    ]


def _sniff(path: Path, head: bytes) -> bool:
    """By the columns, which Parquet names at its end; a file cut off there is known by its name."""
    if not head.startswith(b"PAR1"):
        return False
    try:
        names = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return path.name.startswith("trace-")
    return set(COLUMNS[:7]) <= names


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="straggler_trace",
        meaning="operations of all ranks and steps of a StragglerAnalysis trace",
        tables=("operations",),
        sniff=_sniff,
        read=read_straggler_trace,
    ),
)
