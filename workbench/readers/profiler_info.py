"""profiler_info_<rank>.json (all versions) and profiler_metadata.json -> table `settings`, and the rank they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from workbench.readers.delimited import read_json
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import json_with, note_without_rows, reading
from workbench.tables import SETTINGS, Reading

LARGEST_RANK = 1 << 24  # 4294967295 means "no rank"


def read_profiler_json(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read all members as settings with dotted names; lists as JSON text. Null and empty members are left out."""
    value, notes = read_json(path, context, expect=dict)
    rank = profiled_rank(value)
    rows = [
        {
            "name": name,
            "value": text,
            "rank_id": context.rank_id if rank is None else rank,
            "source": context.name(path),
        }
        for name, text in flattened(value)
    ]
    frame = pd.DataFrame(rows, columns=["name", "value", "rank_id", "source"])
    notes = note_without_rows(frame, notes, context.name(path), "setting")
    return {"settings": reading(SETTINGS, frame, context, notes)}


def profiled_rank(info: object) -> int | None:
    """The rank that a profiler_info or profiler_metadata object names; None where it names none.

    It is `rank_id` (number or text; torch_npu and MindSpore up to 2.4), `ms_profiler_info.rank_id` (MindSpore 2.5+) or
    `distributed_args.rank` (metadata).
    """
    if not isinstance(info, Mapping):
        return None
    places = [(info, "rank_id"), (info.get("ms_profiler_info"), "rank_id"), (info.get("distributed_args"), "rank")]
    for part, name in places:
        text = str(part.get(name, "")).strip() if isinstance(part, Mapping) else ""
        if text.isascii() and text.isdigit() and int(text) < LARGEST_RANK:
            return int(text)
    return None


def flattened(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values as text."""
    for key, member in value.items():
        name = f"{prefix}{key}"
        if isinstance(member, Mapping):
            yield from flattened(member, f"{name}.")
        elif isinstance(member, list):
            yield name, msgspec.json.encode(member).decode()
        elif member is not None and member != "":
            yield name, str(member).lower() if isinstance(member, bool) else str(member)


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="profiler_info",
        meaning="settings, versions and rank of a profile",
        tables=("settings",),
        sniff=json_with(
            rb"^\s*\{",
            rb'"(profiler_parameters|ms_profiler_info|common_config|context_mode)"\s*:',
            name=r"profiler_info(_\d+)?\.json",
        ),
        read=read_profiler_json,
    ),
    FileKind(
        name="profiler_metadata",
        meaning="parallel groups, environment and the user's own keys of a profile",
        tables=("settings",),
        sniff=json_with(
            rb"^\s*\{", rb'"(parallel_group_info|distributed_args|ENV_VARIABLES)"\s*:', name=r"profiler_metadata\.json"
        ),
        read=read_profiler_json,
    ),
)
