"""Recorded runs in a folder -> table of runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.files import RunFiles
from workbench.readers.run_directory import read_run_info

NUMBERS = ("start_ns", "steps_total", "world_size")
COLUMNS = ["run_id", "path", "start_ns", "steps_total", "world_size", "tags"]


def list_runs(folder: Path) -> pd.DataFrame:
    """Recorded runs directly in `folder`, or `folder` itself, newest first.

    Returns:
        One row per directory with a readable run.json: run_id, path, start_ns, steps_total, world_size, tags. Empty
        where there is none.
    """
    places = [folder, *(sorted(folder.iterdir()) if folder.is_dir() else [])]
    rows = [row for place in places if (row := _row(place)) is not None]
    numbers = {c: pd.array([row[c] for row in rows], dtype="Int64") for c in NUMBERS}  # by way of floats it would round
    runs = pd.DataFrame(rows, columns=COLUMNS).assign(**numbers)
    return runs.sort_values("start_ns", ascending=False, ignore_index=True)


def previous_run(root: Path) -> Path | None:
    """The recorded run beside `root` that started last before it; None where there is none."""
    beside = list_runs(root.resolve().parent)
    own = beside[beside["path"] == str(root.resolve())]
    if own.empty or pd.isna(start := own["start_ns"].iloc[0]):
        return None
    earlier = beside[(beside["start_ns"] < start).fillna(False)]
    return Path(earlier["path"].iloc[0]) if len(earlier) else None


def _row(place: Path) -> dict[str, object] | None:
    files = RunFiles(place)
    try:
        info = read_run_info(files.run_json) if files.run_json.is_file() else None
    except (UnreadableFileError, OSError):
        return None  # opening that run says what is wrong with it
    if info is None:
        return None
    return {
        "run_id": str(info.get("run_id") or place.name),
        "path": str(place),
        **{k: _number(info.get(k)) for k in NUMBERS},
        "tags": ", ".join(map(str, tags)) if isinstance(tags := info.get("tags"), list) else "",
    }


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**63 else None
