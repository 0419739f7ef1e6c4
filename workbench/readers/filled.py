"""A reader of several tables -> the tables that it fills, each with all notes on the file.

A run may read a file for one of its tables only, so each table must tell by itself what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.readers.kinds import FileContext
from workbench.tables import Note, Reading

Read = Callable[[Path, FileContext], dict[str, Reading]]


def filled(read: Read) -> Read:
    """`read` without the empty tables about which it says nothing; where all are empty, the first one says so.

    Notes of one table are given to the others as well, each once.
    """

    def read_filled(path: Path, context: FileContext) -> dict[str, Reading]:
        readings = read(path, context)
        kept = {name: r for name, r in readings.items() if len(r.table) or r.notes}
        if kept:
            notes = list(dict.fromkeys(note for r in kept.values() for note in r.notes))
            return {name: Reading(r.table, notes) for name, r in kept.items()}
        name, (table, _) = next(iter(readings.items()))
        return {name: Reading(table, [_nothing_note(context.name(path))])}

    return read_filled


def _nothing_note(file: str) -> Note:
    return Note(
        file=file,
        where="whole file",
        problem="It holds no record.",
        lost="nothing that was recorded",
        fix="profile a longer window, if there should be some",
    )
