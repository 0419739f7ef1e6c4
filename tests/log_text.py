"""Made-up log text -> tables, for the tests of the log readers."""

import json
from pathlib import Path

import pandas as pd

from workbench.readers.kinds import FileContext
from workbench.readers.logs import read_log, sniff_log
from workbench.tables import Reading


def read_text(folder: Path, text: str | bytes, name: str = "worker_0.log") -> dict[str, Reading]:
    """Write `text` as a log, make sure that it is recognised, and read it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(data)
    assert sniff_log(path, data[:65536]), "the text is not recognised as a log"
    return read_log(path, FileContext(root=folder))


def steps(readings: dict[str, Reading]) -> pd.DataFrame:
    """Table training_steps."""
    return readings["training_steps"].table


def messages(readings: dict[str, Reading], kind: str) -> list[dict[str, object]]:
    """Fields of the messages of a kind, in line order."""
    table = readings["log_messages"].table
    return [json.loads(f) if isinstance(f, str) else {} for f in table.loc[table.kind == kind, "fields"]]


def cells(readings: dict[str, Reading]) -> dict[tuple[int, str], float]:
    """Table series as {(row, column): value}."""
    return {(r.row, r.column): r.value for r in readings["series"].table.itertuples()}


def all_notes(readings: dict[str, Reading]) -> list[str]:
    """Notes of all tables as text."""
    return [str(n) for r in readings.values() for n in r.notes]


def write_logs(folder: Path, files: dict[str, str]) -> Path:
    """Write files of these names and texts; returns `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
