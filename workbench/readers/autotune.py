"""The JSON file of MindSpore's data AutoTune -> the workers and queue sizes that it chose.

Not a table of a run: the file belongs to one pipeline, and `workbench data tune` compares its choice with its own.
Source: mindspore/ccsrc/minddata/dataset/engine/perf/auto_tune.cc; key `summary`, one text per operator.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.minddata import operator_type

_SUMMARY = re.compile(
    r"(?P<type>\w+)\(ID:(?P<id>\d+)\)\s*\(num_parallel_workers:\s*(?P<workers>\w+),\s*prefetch_size:\s*(?P<size>\w+)\)"
)
FIX = "give the file that ds.config.set_enable_autotune(True, 'path/prefix') wrote at the end of the training"


def read_autotune(path: Path) -> pd.DataFrame:
    """What AutoTune chose for each operator, sources first.

    Returns:
        op_id, op_type, num_workers (missing: none to set), prefetch_size.

    Raises:
        UnreadableFileError: the file is not there, no JSON, or names no operator.
    """
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UnreadableFileError(f"{path} cannot be read as JSON: {error}.", fix=FIX) from error
    lines = value.get("summary", []) if isinstance(value, dict) else []
    found = [m for line in lines if isinstance(line, str) and (m := _SUMMARY.search(line))]
    if not found:
        raise UnreadableFileError(f"{path} names no operator in its summary.", fix=FIX)
    rows = sorted(found, key=lambda m: -int(m["id"]))  # ids count from the end that training reads
    types = [str(operator_type(m["type"])) for m in rows]
    return pd.DataFrame(
        {
            "op_id": [int(m["id"]) for m in rows],
            "op_type": types,
            "num_workers": pd.array([_whole(m["workers"]) for m in rows], dtype="Int64"),
            "prefetch_size": pd.array([_whole(m["size"]) for m in rows], dtype="Int64"),
        }
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None
