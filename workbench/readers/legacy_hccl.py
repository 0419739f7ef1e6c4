"""hccl_raw of MindInsight-era profiles (MindSpore 1.3-2.4) -> collectives, links.

Cells hold JSON. Sizes are kB of 1000 bytes (multiplied by 1000 they are whole tensors), times ms. The bandwidth that is
written for a whole step is a sum over operations: speeds are computed from size and time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.json_values import number
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.legacy_steps import AVERAGE_STEP, P2P, STREAM
from workbench.readers.named import or_named
from workbench.readers.op_names import op_types
from workbench.readers.plain_lines import COPY_AGAIN
from workbench.tables import COLLECTIVES, LINKS, Column, Note, Reading

US_PER_MS = 1e3
BYTES_PER_KBYTE = 1e3
LOCAL = "LOCAL"

COLUMNS = (
    Column("step", "string", "step, or '-' for the average", "step_num", required=True),
    Column("link_info", "string", "links of the step", "link_info"),
    Column("operations", "string", "operations with their links", "communication_operator_cost", required=True),
)


class _Link(NamedTuple):
    """One transport of one link."""

    src_rank: int
    dst_rank: int
    transport: str
    transit_us: float
    size_bytes: float


def sniff_hccl(path: Path, head: bytes) -> bool:
    """Header of hccl_raw."""
    return sniff_headers(head, ("step_num", "communication_cost", "wait_cost", "communication_operator_cost"))


def read_hccl(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read hccl_raw: each operation's transfer and wait, and its links.

    The elapsed time of an operation is not in this file (step_trace_raw has it): it is missing here, so that a table of
    both files does not count it twice. Numbers of ranks are those inside the group. The row of averages is left out.
    """
    raw = read_delimited(path, context, columns=COLUMNS)
    operations, links, bad = [], [], []
    for row, (step, link_info, cell) in enumerate(zip(*_cells(raw.table), strict=True)):
        if isinstance(step, str) and step.strip() == AVERAGE_STEP:
            continue
        place = {"step": _step(step)}
        per_operation = _json(cell)
        if per_operation is None:
            bad.append(row)
        for name, entry in (per_operation or {}).items():
            found = list(_links(entry[3])) if _is_entry(entry) else []
            operations.append(place | {"written": str(name)} | _operation(entry, found))
            links += [place | _link_row(link, "op", str(name)) for link in found]
        links += [place | _link_row(link, "total", None) for link in _links(_json(link_info))]
    return _readings(operations, links, raw.notes + _json_notes(bad, context.name(path)), context)


def _cells(table: pd.DataFrame) -> tuple[list[Any], list[Any], list[Any]]:
    table = table.reindex(columns=[c.name for c in COLUMNS])
    step, link_info, operations = (table[c.name].astype(object).tolist() for c in COLUMNS)
    return step, link_info, operations


def _step(cell: object) -> float:
    value = number(cell)
    return value if value == np.round(value) else np.nan


def _json(cell: object) -> Mapping[str, Any] | None:
    try:
        value = msgspec.json.decode(cell) if isinstance(cell, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_entry(entry: object) -> bool:
    """`[step, transfer ms, wait ms, links]`."""
    return isinstance(entry, list) and len(entry) == 4


def _links(value: object) -> Iterator[_Link]:
    """Links of `{"src-dst": {transport: [ms, kB, kB/s, ...]}}`."""
    for pair, transports in value.items() if isinstance(value, Mapping) else ():
        src, _, dst = str(pair).partition("-")
        if not (src.isdigit() and dst.isdigit() and len(src) < 9 and len(dst) < 9 and isinstance(transports, Mapping)):
            continue
        for transport, figures in transports.items():
            if isinstance(figures, list) and len(figures) >= 2:
                time_us, size_bytes = number(figures[0]) * US_PER_MS, number(figures[1]) * BYTES_PER_KBYTE
                yield _Link(int(src), int(dst), LOCAL if src == dst else str(transport), time_us, size_bytes)


def _operation(entry: object, links: list[_Link]) -> dict[str, object]:
    """Transfer, wait and size of an operation; copies inside the card do not count as moved."""
    transfer, wait = (
        (number(entry[1]), number(entry[2])) if isinstance(entry, list) and len(entry) == 4 else (np.nan,) * 2
    )
    moved = [link for link in links if link.transport != LOCAL]
    main = max(moved, key=lambda link: link.size_bytes, default=None)
    return {
        "transit_us": transfer * US_PER_MS,
        "wait_us": wait * US_PER_MS,
        "size_bytes": sum(link.size_bytes for link in moved) if moved else np.nan,
        "transport": main.transport if main else None,
        "bandwidth_bytes_per_s": _speed(main) if main else np.nan,
    }


def _speed(link: _Link) -> float:
    return link.size_bytes / link.transit_us * 1e6 if link.transit_us > 0 else np.nan


def _link_row(link: _Link, statistic: str, operation: str | None) -> dict[str, object]:
    return link._asdict() | {
        "bandwidth_bytes_per_s": _speed(link),
        "statistic": statistic,
        "written": operation,
        "is_global": False,
    }


def _readings(
    operations: list[dict[str, Any]], links: list[dict[str, Any]], notes: list[Note], context: FileContext
) -> dict[str, Reading]:
    place = {"rank_id": context.rank_id, "window": context.window}
    table = _named(pd.DataFrame(operations), "name").assign(elapsed_us=np.nan, **place)
    table["is_p2p"] = table["op_type"].isin(P2P)
    link_table = _named(pd.DataFrame(links), "op_name").assign(**place)
    link_table = link_table.reindex(columns=LINKS.column_names)
    return {
        "collectives": Reading(COLLECTIVES.check(table), notes),
        "links": Reading(LINKS.check(link_table), []),
    }


def _named(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """`written` as the operation's name without its stream, which differs between ranks, and its type."""
    written = frame["written"] if "written" in frame else pd.Series(dtype="string")
    names = written.astype("string").str.replace(STREAM, "", regex=True)
    return frame.assign(**{column: names}, op_type=op_types(names).str.lower())


def _json_notes(rows: list[int], file: str) -> list[Note]:
    if not rows:
        return []
    where = f"data row {rows[0] + 1}" + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")
    problem = "The cell communication_operator_cost is not JSON."
    return [Note(file=file, where=where, problem=problem, lost="the operations of these steps", fix=COPY_AGAIN)]


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="hccl_raw",
        meaning="hccl_raw: transfer, wait and links of each collective, per step",
        tables=("collectives", "links"),
        sniff=or_named(sniff_hccl, r"hccl_raw_\d+\.csv"),
        read=filled(read_hccl),
    ),
)
