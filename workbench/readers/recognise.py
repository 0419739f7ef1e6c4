"""How a profiler file is recognised, and how its rows become a table: what all readers of this family share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd

from workbench.readers.csv_header import sniff_headers
from workbench.readers.kinds import FileContext
from workbench.tables import Note, Reading, Table

Sniffer = Callable[[Path, bytes], bool]


def csv_with(*alternatives: Collection[str], name: str, none_of: Collection[str] = ()) -> Sniffer:
    """Recognises a CSV file that has all headers of one of `alternatives`.

    A damaged header leaves the name: a file of that name is taken as well, so that its damage is reported.
    """
    pattern = re.compile(name)

    def sniff(path: Path, head: bytes) -> bool:
        by_content = any(sniff_headers(head, headers, none_of=none_of) for headers in alternatives)
        return by_content or pattern.fullmatch(path.name) is not None

    return sniff


def json_with(*patterns: bytes, name: str) -> Sniffer:
    """Recognises a JSON file in whose head all `patterns` (regular expressions) are found, or by its name as above."""
    wanted = [re.compile(p) for p in patterns]
    by_name = re.compile(name)

    def sniff(path: Path, head: bytes) -> bool:
        return all(p.search(head) for p in wanted) or by_name.fullmatch(path.name) is not None

    return sniff


def reading(table: Table, rows: pd.DataFrame, context: FileContext, notes: list[Note]) -> Reading:
    """Rows of one rank and profile window as a checked table; a `rank_id` that the rows have is kept."""
    place = {"rank_id": context.rank_id, "window": context.window}
    placed = rows.copy(deep=False)
    for name in place.keys() & set(table.column_names) - set(rows.columns):
        placed[name] = place[name]
    return Reading(table.check(placed), notes)


def note_without_rows(rows: pd.DataFrame, notes: list[Note], file: str, what: str) -> list[Note]:
    """`notes`, and one more where there are no rows and nothing says so."""
    if len(rows) or notes:
        return notes
    return [
        Note(
            file=file,
            where="whole file",
            problem=f"it holds no {what}.",
            lost="nothing that was recorded",
            fix="if there should be some, profile a window in which they happen",
        )
    ]
