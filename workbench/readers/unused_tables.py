"""Profiler files that are recognised so that they are not called unknown, but from which no table is filled."""

from __future__ import annotations

from pathlib import Path

from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import csv_with
from workbench.readers.text import read_bytes
from workbench.tables import Reading


def read_nothing(path: Path, context: FileContext) -> dict[str, Reading]:
    """Open the file, so that one that is empty or may not be read is reported, and fill no table."""
    read_bytes(path, context)
    return {}


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="l2_cache",
        meaning="hit rates of the L2 cache per task (no analysis uses them)",
        tables=(),
        sniff=csv_with(("Stream Id", "Task Id", "Hit Rate", "Victim Rate"), name=r"l2_cache(_\d+)*\.csv"),
        read=read_nothing,
    ),
    FileKind(
        name="operator_details",
        meaning="shapes and call stacks of framework operators (no analysis uses them; they hold host paths)",
        tables=(),
        sniff=csv_with(
            ("Name", "Input Shapes", "Call Stack"),
            ("Name", "Input Shapes"),
            name=r"operator_details\.csv",
            none_of=("Type", "Duration(us)", "Task Duration(us)"),
        ),
        read=read_nothing,
    ),
)
