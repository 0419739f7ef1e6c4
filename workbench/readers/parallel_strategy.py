"""parallel_strategy (MindSpore 1.6-2.4, a protocol buffer written as JSON) -> graph_ops, settings.

In this form 64-bit numbers are texts, and members with the value zero are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import read_json
from workbench.readers.filled import filled
from workbench.readers.json_values import integer, items, member, text
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import COPY_AGAIN
from workbench.tables import GRAPH_OPS, SETTINGS, Reading

MAX_DEPTH = 16


def sniff_strategy(path: Path, head: bytes) -> bool:
    """A JSON object with a parallel configuration and a graph."""
    keys = (b'"config"', b'"stageDevices"', b'"parallelType"')
    return head.lstrip()[:1] == b"{" and sum(k in head for k in keys) >= 2 and b'"graph"' in head


def read_strategy(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read operators with their attributes (`gen_strategy` is how each input is split), and the stage's devices.

    `attributes` is JSON: name -> value, lists for tuples. `stageDevices` lists the ranks of each stage.

    Raises:
        UnreadableFileError: neither configuration nor operators can be read.
    """
    value, notes = read_json(path, context, expect=dict)
    file, config = context.name(path), member(value, "config")
    rank = integer(member(config, "rankId")) if isinstance(config, Mapping) else None
    rank = context.rank_id if rank is None else rank
    operators = [_operator(node) for node in items(member(value, "graph", "node"))]
    facts = _config_facts(config)
    if not operators and not facts:
        raise UnreadableFileError(f"{file} holds neither configuration nor operators.", fix=COPY_AGAIN)
    frame = pd.DataFrame(operators, columns=["name", "op_type", "attributes"])
    settings = pd.DataFrame([(k, v, rank, file) for k, v in facts.items()], columns=SETTINGS.column_names)
    return {
        "graph_ops": Reading(GRAPH_OPS.check(frame.assign(rank_id=rank, window=context.window)), notes),
        "settings": Reading(SETTINGS.check(settings), []),
    }


def _operator(node: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    attributes = {
        str(a.get("name")): _value(a.get("value"), MAX_DEPTH) for a in items(node.get("attribute")) if a.get("name")
    }
    name = text(node.get("fullName")) or text(node.get("name"))
    return name, text(node.get("opType")), msgspec.json.encode(attributes).decode() if attributes else None


def _value(value: Any, depth: int) -> Any:
    """An attribute: its one `...Val` member, or the list of its values."""
    if not isinstance(value, Mapping) or depth == 0:
        return None
    if "values" in value:
        return [_value(v, depth - 1) for v in items(value["values"])]
    for key, inner in value.items():
        if key.endswith("Val"):
            number = integer(inner) if key == "intVal" else None
            return number if number is not None else inner
    return None


def _config_facts(config: Any) -> dict[str, str]:
    if not isinstance(config, Mapping):
        return {}
    facts = {f"parallel_strategy.{k}": str(v) for k, v in config.items() if isinstance(v, (str, int, float))}
    stages = [
        [integer(dim.get("size", 0)) for dim in items(stage.get("dim"))] for stage in items(config.get("stageDevices"))
    ]
    if stages:
        facts["parallel_strategy.stageDevices"] = msgspec.json.encode(stages).decode()
    return facts


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="parallel_strategy",
        meaning="parallel_strategy: how operators are split over devices",
        tables=("graph_ops", "settings"),
        sniff=or_named(sniff_strategy, r"parallel_strategy_\d+\.json"),
        read=filled(read_strategy),
    ),
)
