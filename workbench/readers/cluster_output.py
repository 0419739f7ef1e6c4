"""JSON files that msprof-analyze writes for a whole cluster -> tables `collectives`, `links`, `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from workbench.readers.collective_rows import TOTAL, link_row, operation_row, step_number, walk
from workbench.readers.communication import collectives, links
from workbench.readers.delimited import read_json
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import json_with, note_without_rows, reading
from workbench.tables import SETTINGS, Reading

GROUP_FIRST = rb'^\s*\{\s*"(p2p|collective|\(\d[^"]*\))"\s*:\s*\{\s*"step'


def read_cluster_communication(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the operations of all ranks; rows as those of communication.json, each with its own rank."""
    value, notes = read_json(path, context, expect=dict)
    odd: list[str] = []
    rows = []
    for (_, step, name, rank), info in walk(value, 4, odd):
        if name == TOTAL:
            continue
        if not rank.isdecimal():
            odd.append(f"{name}/{rank}")
            continue
        rows.append({"rank_id": int(rank), "step": step_number(step), **operation_row(name, info, odd)})
    return {"collectives": collectives(rows, context, notes, odd, context.name(path))}


def read_cluster_communication_matrix(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the links of all ranks, global ranks; a row belongs to its sender."""
    value, notes = read_json(path, context, expect=dict)
    odd: list[str] = []
    rows = []
    for (_, step, name, link), info in walk(value, 4, odd):
        row = link_row(name, link, info, odd)
        if name != TOTAL and row["src_rank"] is not None:
            rows.append({"rank_id": row["src_rank"], "step": step_number(step), **row, "is_global": True})
    return {"links": links(rows, context, notes, odd, context.name(path))}


def read_communication_group(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the groups as settings `communication_group.<kind>.<number>`, value: the ranks (or the object) as JSON."""
    value, notes = read_json(path, context, expect=dict)
    rows: list[dict[str, Any]] = [
        {
            "name": f"communication_group.{kind}.{i}",
            "value": msgspec.json.encode(group).decode(),
            "source": context.name(path),
        }
        for kind, groups in value.items()
        for i, group in enumerate(groups if isinstance(groups, list) else [groups])
    ]
    frame = pd.DataFrame(rows, columns=["name", "value", "source"])
    notes = note_without_rows(frame, notes, context.name(path), "communication group")
    return {"settings": reading(SETTINGS, frame.assign(rank_id=pd.NA), context, notes)}


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="cluster_communication",
        meaning="communication operations of all ranks (msprof-analyze)",
        tables=("collectives",),
        sniff=json_with(GROUP_FIRST, rb'"Communication (Time|Bandwidth) Info"', name=r"cluster_communication\.json"),
        read=read_cluster_communication,
    ),
    FileKind(
        name="cluster_communication_matrix",
        meaning="data moved over each link, all ranks (msprof-analyze)",
        tables=("links",),
        sniff=json_with(GROUP_FIRST, rb'"\d+-\d+"\s*:\s*\{\s*"Trans', name=r"cluster_communication_matrix\.json"),
        read=read_cluster_communication_matrix,
    ),
    FileKind(
        name="communication_group",
        meaning="which ranks communicate with which (msprof-analyze)",
        tables=("settings",),
        sniff=json_with(rb'^\s*\{\s*"(collective|p2p)"\s*:\s*\[', name=r"communication_group(_old)?\.json"),
        read=read_communication_group,
    ),
)
