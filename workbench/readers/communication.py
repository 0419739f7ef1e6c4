"""communication.json and communication_matrix.json -> tables `collectives` and `links`; one file per rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from workbench.readers.collective_rows import (
    TOTAL,
    link_row,
    odd_note,
    operation_row,
    step_number,
    transit_note,
    walk,
    without_lone_zero,
)
from workbench.readers.delimited import read_json
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import json_with, note_without_rows, reading
from workbench.tables import COLLECTIVES, LINKS, Note, Reading

STEP_FIRST = rb'^\s*\{\s*"step\d*"'


def read_communication(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one row per communication operation.

    The sums under `Total Op Info` are left out. Sends are told by name, because MindSpore files some of them under
    `collective`. Bytes are those of all transports without SDMA, which repeats HCCS, PCIE and SIO; a Transit Time of 0
    beside moved bytes is missing. Times in us, sizes in bytes (MB of this file: 10^6).
    """
    value, notes = read_json(path, context, expect=dict)
    odd: list[str] = []
    rows = [
        {"step": step_number(step), **operation_row(name, info, odd)}
        for (step, _, name), info in walk(value, 3, odd)
        if name != TOTAL
    ]
    return {"collectives": collectives(rows, context, notes, odd, context.name(path))}


def read_communication_matrix(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one row per link, operation type and statistic; 2023 files have one per link and operation, global ranks.

    `reduce` also means reducescatter. `LOCAL` rows are copies inside a card.
    """
    value, notes = read_json(path, context, expect=dict)
    odd: list[str] = []
    rows = [
        {"step": step_number(step), **link_row(name, link, info, odd)}
        for (step, _, name, link), info in walk(value, 4, odd)
        if name != TOTAL
    ]
    return {"links": links(rows, context, notes, odd, context.name(path))}


def collectives(
    rows: list[dict[str, Any]], context: FileContext, notes: list[Note], odd: list[str], file: str
) -> Reading:
    """Rows of operations as table `collectives`, with notes on transit times and odd members."""
    frame = without_lone_zero(pd.DataFrame(rows, columns=_names(rows, COLLECTIVES.column_names)))
    exact = pd.array(
        [row["start_ns"] for row in rows], dtype="Int64"
    )  # beside a missing one pandas makes floats of them
    frame = frame.assign(start_ns=exact)
    notes = [*notes, *odd_note(odd, file), *transit_note(frame, file)]
    return reading(COLLECTIVES, frame, context, note_without_rows(frame, notes, file, "communication operation"))


def links(rows: list[dict[str, Any]], context: FileContext, notes: list[Note], odd: list[str], file: str) -> Reading:
    """Rows of links as table `links`, with notes on odd members."""
    frame = without_lone_zero(pd.DataFrame(rows, columns=_names(rows, LINKS.column_names)))
    notes = [*notes, *odd_note(odd, file)]
    return reading(LINKS, frame, context, note_without_rows(frame, notes, file, "link"))


def _names(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    """The columns of `rows`; without rows all but those that the place of the file fills."""
    return list(rows[0]) if rows else [n for n in names if n not in ("rank_id", "window")]


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="communication",
        meaning="communication operations of a rank",
        tables=("collectives",),
        sniff=json_with(STEP_FIRST, rb'"Communication (Time|Bandwidth) Info"', name=r"communication\.json"),
        read=read_communication,
    ),
    FileKind(
        name="communication_matrix",
        meaning="data moved over each link of a rank",
        tables=("links",),
        sniff=json_with(STEP_FIRST, rb'"\d+-\d+"\s*:\s*\{\s*"Trans', name=r"communication_matrix\.json"),
        read=read_communication_matrix,
    ),
)
