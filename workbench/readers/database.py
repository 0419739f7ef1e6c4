"""Databases of profilers (`ascend_*_profiler_*.db`, msprof_*.db, analysis.db, cluster_analysis.db) -> tables.

What the text export of the same capture holds as well is told apart by `precedence`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from workbench.errors import UnreadableFileError
from workbench.readers.database_analysis import communication_operations, links, step_times
from workbench.readers.database_tasks import api_calls, clocks, kernels, lifetimes, memory_curves, settings
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.sqlite_file import MAGIC, SqliteFile, open_sqlite
from workbench.tables import Note, Reading

NAME = re.compile(r"(ascend_\w+_profiler(_\d+)?|analysis|communication_analyzer|cluster_analysis|msprof_\w*)\.db")
KNOWN_TABLES = (b"STRING_IDS", b"CommAnalyzer", b"StepTraceTime", b"CANN_API", b"ClusterCommunication")
NO_RANK = 4294967295

ANALYSES = ("analysis.db", "communication_analyzer.db")  # hold the collectives with more detail
FILLERS: dict[str, Callable[[SqliteFile, FileContext], Reading | None]] = {
    "step_time": step_times,
    "kernels": kernels,
    "collectives": communication_operations,
    "links": links,
    "memory_timeline": memory_curves,
    "tensor_lifetimes": lifetimes,
    "host_ops": api_calls,
    "telemetry": clocks,
    "settings": settings,
}


def read_database(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read every table for which the database has rows. The file is opened read-only and never changed."""
    with open_sqlite(path, context) as db:
        found: dict[str, Reading] = {}
        for table, fill in FILLERS.items():
            if table == "collectives" and path.name not in ANALYSES and _has_analysis_beside(path):
                continue
            reading = fill(db, context)
            if reading is not None and len(reading.table):
                found[table] = reading
        if not found and db.notes:
            raise UnreadableFileError(f"{db.file}: {db.notes[0].where}: {db.notes[0].problem}", fix=db.notes[0].fix)
        if not found:
            raise UnreadableFileError(
                f"{context.name(path)} has no rows of a profile; its tables are {sorted(db.tables)[:20]}.",
                fix="check that the file is what its name says, or export the profile again",
            )
        return _with_notes(found, db.notes)


def database_rank(path: Path) -> int | None:
    """The one rank that the database of a profile names, None where it names none or several."""
    try:
        with open_sqlite(path, FileContext()) as db:
            ranks = db.integers(db.frame("RANK_DEVICE_MAP", rank="rankId")["rank"], "rankId").dropna()
    except UnreadableFileError:
        return None
    named = {int(r) for r in ranks if 0 <= r < NO_RANK}
    return named.pop() if len(named) == 1 else None


def _has_analysis_beside(path: Path) -> bool:
    return any(path.with_name(name).is_file() for name in ANALYSES)


def _with_notes(found: dict[str, Reading], notes: list[Note]) -> dict[str, Reading]:
    """Notes on the database as a whole stand with the first table."""
    first = next(iter(found), None)
    return {name: Reading(r.table, [*r.notes, *(notes if name == first else [])]) for name, r in found.items()}


def _sniff(path: Path, head: bytes) -> bool:
    known = NAME.fullmatch(path.name) is not None or any(t in head for t in KNOWN_TABLES)
    return known and (head.startswith(MAGIC) or path.suffix == ".db")


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="profiler_database",
        meaning="a profile as SQLite database (db export, msprof, analysis, cluster)",
        tables=tuple(FILLERS),
        sniff=_sniff,
        read=read_database,
    ),
)
