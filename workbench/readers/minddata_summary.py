"""MindSpore's own summary of a data pipeline (minddata_pipeline_summary, CSV or JSON) -> data_ops, host_ops, settings.

Both files hold the same parallel lists, index = operator; the CSV has no header but one row per key. -1 means "none".
Source: mindspore/profiler/analysis/viewer/ms_minddata_viewer.py of MindSpore 2.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.careful_rows import parse_line
from workbench.readers.delimited import read_json
from workbench.readers.filled import filled
from workbench.readers.json_values import listed, numbers
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.minddata import operator_type
from workbench.readers.named import or_named
from workbench.readers.plain_lines import COPY_AGAIN, read_lines
from workbench.tables import DATA_OPS, HOST_OPS, SETTINGS, Note, Reading

US_PER_MS = 1e3
SHARE_PER_PERCENT = 0.01
TIMES = {"per_pipeline_time": "pipeline", "per_push_queue_time": "push", "per_batch_time": "batch"}
SENTENCES = ("cpu_analysis_details", "queue_analysis_details", "bottleneck_warning", "bottleneck_suggestion")
KEYS = (b"op_ids", b"op_names", b"pipeline_ops")


def sniff_summary_json(path: Path, head: bytes) -> bool:
    """A JSON object with the keys of a summary."""
    return head.lstrip()[:1] == b"{" and all(b'"' + key + b'"' in head for key in KEYS)


def sniff_summary_csv(path: Path, head: bytes) -> bool:
    """Rows that begin with the keys of a summary."""
    return head.lstrip(b"\xef\xbb\xbf").startswith(b"op_ids,") and all(b"\n" + key in head for key in KEYS[1:])


def read_summary_json(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read minddata_pipeline_summary.json."""
    value, notes = read_json(path, context, expect=dict)
    return _readings(value, context.name(path), context, notes)


def read_summary_csv(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read minddata_pipeline_summary.csv."""
    lines = read_lines(path, context, _row, what="a key and its values")
    return _readings({cells[0]: cells[1:] for cells in lines.records}, context.name(path), context, lines.notes)


def _row(line: str) -> list[str] | None:
    cells = parse_line(line, ",")
    return cells if len(cells) > 1 else None


def _readings(columns: Mapping[str, Any], file: str, context: FileContext, notes: list[Note]) -> dict[str, Reading]:
    ids = numbers(columns.get("op_ids"))
    if not np.isfinite(ids).any():
        raise UnreadableFileError(f"{file} lists no operator.", fix=COPY_AGAIN)
    ops = _ops(columns, ids)
    return {
        "data_ops": Reading(DATA_OPS.check(ops[ops["op_id"].notna()].assign(rank_id=context.rank_id)), notes),
        "host_ops": Reading(HOST_OPS.check(_times(columns, context)), []),
        "settings": Reading(SETTINGS.check(_sentences(columns, context, file)), []),
    }


def _ops(columns: Mapping[str, Any], ids: np.ndarray) -> pd.DataFrame:
    def column(name: str, scale: float = 1.0) -> np.ndarray:
        values = numbers(columns.get(name))[: len(ids)]
        values = np.concatenate([values, np.full(len(ids) - len(values), np.nan)])
        return np.where(values == -1, np.nan, values * scale)

    def whole(values: np.ndarray) -> pd.Series:
        return pd.Series(np.where(values == np.round(values), values, np.nan)).astype("Int64")

    names = [operator_type(n) if isinstance(n, str) else None for n in listed(columns.get("op_names"))]
    names = (names + [None] * len(ids))[: len(ids)]
    return pd.DataFrame(
        {
            "op_id": whole(ids),
            "op_type": names,
            "num_workers": whole(column("num_workers")),
            "parent_id": whole(column("parent_id")),
            "queue_capacity": column("queue_length"),
            "queue_mean": column("queue_average_size"),
            "queue_fill_share": column("queue_utilization_pct", SHARE_PER_PERCENT),
            "queue_empty_share": column("queue_empty_freq_pct", SHARE_PER_PERCENT),
            "cpu_share": column("avg_cpu_pct", SHARE_PER_PERCENT),
        }
    )


def _times(columns: Mapping[str, Any], context: FileContext) -> pd.DataFrame:
    """Mean times per batch, the first batch left out by MindSpore."""
    rows = []
    for key, name in TIMES.items():
        values = numbers(columns.get(key))
        if len(values) and np.isfinite(values[0]) and values[0] != -1:
            rows.append({"level": "dataset", "name": f"{name} time per batch", "avg_us": values[0] * US_PER_MS})
    frame = pd.DataFrame(rows, columns=["level", "name", "avg_us"])
    return frame.assign(rank_id=context.rank_id, window=context.window)


def _sentences(columns: Mapping[str, Any], context: FileContext, file: str) -> pd.DataFrame:
    """What MindSpore's analyser says, word for word."""
    rows = [
        (f"minddata.{key}", str(sentence), context.rank_id, file)
        for key in SENTENCES
        for sentence in listed(columns.get(key))
        if sentence
    ]
    return pd.DataFrame(rows, columns=["name", "value", "rank_id", "source"])


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="minddata_summary_csv",
        meaning="minddata_pipeline_summary.csv: MindSpore's own verdict on the data pipeline",
        tables=("data_ops", "host_ops", "settings"),
        sniff=or_named(sniff_summary_csv, r"minddata_pipeline_summary_\d+\.csv"),
        read=filled(read_summary_csv),
    ),
    FileKind(
        name="minddata_summary_json",
        meaning="minddata_pipeline_summary.json: the same as JSON",
        tables=("data_ops", "host_ops", "settings"),
        sniff=or_named(sniff_summary_json, r"minddata_pipeline_summary_\d+\.json"),
        read=filled(read_summary_json),
    ),
)
