"""The data pipeline as MindData and MindSpore's analyser describe it -> data_ops, data_queue_samples.

`pipeline_profiling` is what the pipeline writes, `minddata_pipeline_raw` is derived from it by MindSpore. Several files
describe the same operators: `workbench.readers.combine` joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import read_delimited, read_json, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.json_values import integer, items, listed, member, number, numbers, text
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import COPY_AGAIN
from workbench.tables import DATA_OPS, DATA_QUEUE_SAMPLES, Column, Note, Reading

US_PER_MS = 1e3
RAW_COLUMNS = (
    Column("op_id", "Int64", "operator", "op_id", required=True),
    Column("op_type", "string", "type", "op_type", required=True),
    Column("num_workers", "Int64", "workers", "num_workers"),
    Column("parent_id", "Int64", "parent", "parent_id"),
    Column("sizes", "string", "list of queue samples", "output_queue_size"),
    Column("queue_mean", "float64", "mean fill", "output_queue_average_size"),
    Column("queue_capacity", "float64", "slots", "output_queue_length"),
    Column("interval_ms", "float64", "time between samples", "sample_interval"),
)


def sniff_pipeline(path: Path, head: bytes) -> bool:
    """A JSON object with operators and their queues."""
    keys = (b'"op_info"', b'"op_type"')
    return head.lstrip()[:1] == b"{" and all(k in head for k in keys) and b'"cpu_processor_num"' not in head


def read_pipeline(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `pipeline_profiling`: operators, their children, and samples of the queue behind each.

    Raises:
        UnreadableFileError: no operator can be read.
    """
    value, notes = read_json(path, context, expect=dict)
    interval_us = number(member(value, "sampling_interval")) * US_PER_MS
    infos = [op for op in items(member(value, "op_info")) if integer(op.get("op_id")) is not None]
    if not infos:
        raise UnreadableFileError(f"{context.name(path)} names no operator.", fix=COPY_AGAIN)
    parents = {integer(child): integer(op["op_id"]) for op in infos for child in listed(op.get("children"))}
    ops, samples = [], []
    for op in infos:
        op_id = integer(op["op_id"])
        sizes = numbers(member(op, "metrics", "output_queue", "size"))
        capacity = number(member(op, "metrics", "output_queue", "length"))
        ops.append(
            {
                "op_id": op_id,
                "op_type": operator_type(text(op.get("op_type"))),
                "num_workers": integer(op.get("num_workers")),
                "parent_id": parents.get(op_id),
                **queue_figures(sizes, capacity, interval_us),
            }
        )
        samples.append(_queue_samples(op_id, sizes))
    return _readings(pd.DataFrame(ops), samples, context, notes)


def sniff_raw(path: Path, head: bytes) -> bool:
    """The header of minddata_pipeline_raw."""
    return sniff_headers(head, ("op_id", "op_type", "output_queue_size", "output_queue_length"))


def read_raw(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `minddata_pipeline_raw`: one row per operator, the queue samples as a list in a cell.

    The fill is computed from the samples; the written mean is used where there are none.
    """
    raw = read_delimited(path, context, columns=RAW_COLUMNS)
    ops, samples = [], []
    for row in raw.table.reindex(columns=[c.name for c in RAW_COLUMNS]).itertuples(index=False):
        if pd.isna(row.op_id):
            continue
        sizes = _listed(row.sizes)
        figures = queue_figures(sizes, _float(row.queue_capacity), _float(row.interval_ms) * US_PER_MS)
        if not len(sizes) and not pd.isna(row.queue_mean):
            figures |= {
                "queue_mean": row.queue_mean,
                "queue_fill_share": row.queue_mean / figures["queue_capacity"] if figures["queue_capacity"] else np.nan,
            }
        ops.append(
            {
                "op_id": row.op_id,
                "op_type": operator_type(None if pd.isna(row.op_type) else row.op_type),
                "num_workers": row.num_workers,
                "parent_id": row.parent_id,
                **figures,
            }
        )
        samples.append(_queue_samples(row.op_id, sizes))
    return _readings(pd.DataFrame(ops), samples, context, raw.notes)


def queue_figures(sizes: np.ndarray, capacity: float, interval_us: float) -> dict[str, float | int | None]:
    """Mean fill, fill share and share of empty samples of one queue; missing for an operator without a queue."""
    known = sizes[np.isfinite(sizes)]
    has_queue = np.isfinite(capacity) and capacity > 0
    mean = float(known.mean()) if len(known) else np.nan
    return {
        "queue_capacity": capacity if has_queue else np.nan,
        "queue_mean": mean,
        "queue_fill_share": mean / capacity if has_queue else np.nan,
        "queue_empty_share": float((known == 0).mean()) if len(known) else np.nan,
        "samples": len(known) or None,
        "sample_interval_us": interval_us,
    }


def _readings(
    ops: pd.DataFrame, samples: Sequence[pd.DataFrame], context: FileContext, notes: list[Note]
) -> dict[str, Reading]:
    frames = [s for s in samples if len(s)]
    queue = pd.concat(frames).assign(rank_id=context.rank_id) if frames else DATA_QUEUE_SAMPLES.empty()
    ops = ops.assign(rank_id=context.rank_id) if len(ops) else DATA_OPS.empty()
    return {
        "data_ops": Reading(DATA_OPS.check(ops), notes),
        "data_queue_samples": Reading(DATA_QUEUE_SAMPLES.check(queue), []),
    }


def _queue_samples(op_id: int | None, sizes: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"op_id": op_id, "sample": np.arange(len(sizes)), "queue_size": sizes})


def operator_type(name: str | None) -> str | None:
    """The operator without a trailing 'Op', which early files and hand-made ones lack."""
    return name.removesuffix("Op") if name else None


def _listed(cell: object) -> np.ndarray:
    """The samples in a cell like "[10, 20]"."""
    if not isinstance(cell, str):
        return np.empty(0)
    return np.array([number(part) for part in cell.strip().strip("[]").split(",") if part.strip()], dtype="float64")


def _float(value: object) -> float:
    return float("nan") if pd.isna(value) else float(value)  # type: ignore[arg-type]


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="minddata_pipeline_raw",
        meaning="minddata_pipeline_raw: queue samples per data operator",
        tables=("data_ops", "data_queue_samples"),
        sniff=or_named(sniff_raw, r"minddata_pipeline_raw_\d+\.csv"),
        read=filled(read_raw),
    ),
    FileKind(
        name="minddata_pipeline",
        meaning="pipeline_profiling: queue samples per data operator",
        tables=("data_ops", "data_queue_samples"),
        sniff=or_named(sniff_pipeline, r"pipeline_profiling_\d+\.json"),
        read=filled(read_pipeline),
    ),
)
