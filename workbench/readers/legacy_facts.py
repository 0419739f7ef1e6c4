"""Small files of MindInsight-era profiles (MindSpore 1.0-2.4) -> settings; FLOPs by scope or step -> series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import read_json
from workbench.readers.filled import filled
from workbench.readers.json_values import items, member, number, text
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import COPY_AGAIN, read_lines, share_of_lines
from workbench.tables import MEMORY_TIMELINE, SERIES, SETTINGS, Note, Reading

CLOCK_LINE = re.compile(r"(\w+_time)\(ns\): *(\d{1,19})")
US_CLOCK = "device_start_time"  # labelled ns, but counts us on Ascend
NS_PER_US = 1_000
US_PER_MS = 1e3
FLOPS_PER_MFLOPS = 1e6
FLOPS_PER_GFLOPS = 1e9
SHARE_PER_PERCENT = 0.01

TIMELINE_FACTS = ("num_of_streams", "num_of_ops", "op_exe_times", "max_scope_name_num")
FLOPS_FACTS = {
    "FLOPs": ("flops_per_step", FLOPS_PER_MFLOPS),
    "FLOPS": ("flops_per_s", FLOPS_PER_GFLOPS),
    "FLOPS_Utilization": ("flops_utilization_share", SHARE_PER_PERCENT),
}


def sniff_clocks(path: Path, head: bytes) -> bool:
    """Lines `name_time(ns): value`."""
    return share_of_lines(head, CLOCK_LINE) > 0.5


def read_clocks(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read start_time: the same instant on the host's monotonic clock and on the device's, in ns.

    Ascend's `device_start_time` counts us in spite of its label; GPU's `gpu_start_time` is the time of day in ns.
    """
    lines = read_lines(path, context, _clock, what="'name(ns): value'")
    facts = {f"clock.{name}_ns": value * (NS_PER_US if name == US_CLOCK else 1) for name, value in lines.records}
    return {"settings": _settings(facts, path, context, lines.notes)}


def _clock(line: str) -> tuple[str, int] | None:
    found = CLOCK_LINE.fullmatch(line)
    return (found[1], int(found[2])) if found else None


def sniff_timeline_summary(path: Path, head: bytes) -> bool:
    """A small JSON object with the totals of a timeline."""
    return head.lstrip()[:1] == b"{" and b'"total_time"' in head and b'"num_of_streams"' in head


def read_timeline_summary(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read (ascend_, gpu_)timeline_summary; `total_time` is ms."""
    value, notes = read_json(path, context, expect=dict)
    facts: dict[str, object] = {"timeline.total_us": number(value.get("total_time")) * US_PER_MS}
    facts |= {f"timeline.{name}": number(value[name]) for name in TIMELINE_FACTS if name in value}
    return {"settings": _settings(facts, path, context, notes)}


def sniff_trace_points(path: Path, head: bytes) -> bool:
    """A small JSON object with the first forward and last backward operator."""
    return head.lstrip()[:1] == b"{" and len(head) < 16384 and b'"fp_start"' in head and b'"graph_mem"' not in head


def read_trace_points(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read step_trace_point_info: first operator of the forward and last of the backward pass, per model in 2.x."""
    value, notes = read_json(path, context, expect=dict)
    facts: dict[str, object] = {}
    for name, entry in value.items():
        if isinstance(entry, dict):
            facts |= {f"step_trace.{name}.{key}": str(v) for key, v in entry.items() if v not in (None, "")}
        elif entry not in (None, ""):
            facts[f"step_trace.{name}"] = str(entry)
    return {"settings": _settings(facts, path, context, notes)}


def sniff_flops_summary(path: Path, head: bytes) -> bool:
    """A small JSON object with FLOPs and FLOPS."""
    return head.lstrip()[:1] == b"{" and b'"FLOPs"' in head and b'"FLOPS"' in head


def read_flops_summary(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read flops_summary: operations of a step (10^6), speed (10^9/s) and use of the device's peak (per cent)."""
    value, notes = read_json(path, context, expect=dict)
    facts = {
        f"flops_summary.{name}": number(value.get(key)) * scale
        for key, (name, scale) in FLOPS_FACTS.items()
        if key in value
    }
    return {"settings": _settings(facts, path, context, notes)}


def sniff_flops_scope(path: Path, head: bytes) -> bool:
    """A JSON object of scopes and the operations that flow into them."""
    return head.lstrip()[:1] == b"{" and all(k in head for k in (b'"data"', b'"nodes"')) and b'"id"' not in head[:4096]


def read_flops_scope(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read flops_scope: one row of the series per link, with parent, scope and operations (the file has 10^6)."""
    value, notes = read_json(path, context, expect=dict)
    cells: list[tuple[int, str, float, str | None]] = []
    for row, link in enumerate(items(member(value, "data", "links"))):
        cells += [(row, "parent", np.nan, text(link.get("source"))), (row, "scope", np.nan, text(link.get("target")))]
        cells.append((row, "flops", number(link.get("value")) * FLOPS_PER_MFLOPS, None))
    if not cells:
        raise UnreadableFileError(f"{context.name(path)} holds no scope.", fix=COPY_AGAIN)
    return {"series": Reading(_series(cells, path, context), notes)}


def sniff_flops_steps(path: Path, head: bytes) -> bool:
    """The header of flops_utilization_step, which is a text file in spite of its name."""
    return head.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"steps, FLOPS_Utilization")


def read_flops_steps(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read flops_utilization_step.json: `step,use of the device's peak` a line, per cent in the file."""
    lines = read_lines(path, context, _step_share, what="'<step>,<per cent>'")
    cells: list[tuple[int, str, float, str | None]] = []
    for row, (step, share) in enumerate(record for record in lines.records if record[0] >= 0):
        cells += [(row, "step", float(step), None), (row, "flops_utilization_share", share, None)]
    return {"series": Reading(_series(cells, path, context), lines.notes)}


def _step_share(line: str) -> tuple[int, float] | None:
    """Step and share; -1 for the header, which is no damage."""
    if line.startswith("steps"):
        return -1, np.nan
    step, _, percent = line.partition(",")
    share = number(percent) * SHARE_PER_PERCENT
    return (int(step), share) if step.isdigit() and len(step) < 16 and not np.isnan(share) else None


def sniff_memory_usage(path: Path, head: bytes) -> bool:
    """The protocol-buffer file memory_usage; its bytes tell nothing, so the name decides."""
    return path.name.startswith("memory_usage") and path.suffix == ".pb"


def read_memory_usage(path: Path, context: FileContext) -> dict[str, Reading]:
    """Say that memory_usage.pb is not read: no real file of it was found to check a reader against."""
    note = Note(
        file=context.name(path),
        where="whole file",
        problem="memory_usage.pb of MindSpore 1.2-2.3 is recognised, but not read.",
        lost="memory per operator of the graph",
        fix="open it with the MindInsight of that version, or profile again with profile_memory=True",
    )
    return {"memory_timeline": Reading(MEMORY_TIMELINE.empty(), [note])}


def _settings(facts: Mapping[str, object], path: Path, context: FileContext, notes: list[Note]) -> Reading:
    """Facts as settings; a number that could not be read is left out with a note."""
    file = context.name(path)
    known = {name: value for name, value in facts.items() if not (isinstance(value, float) and np.isnan(value))}
    notes = notes + [
        Note(file=file, where=f"member {name}", problem="It is no number.", lost="this value", fix=COPY_AGAIN)
        for name in facts.keys() - known.keys()
    ]
    if not known:
        raise UnreadableFileError(f"{file} states nothing that can be read.", fix=COPY_AGAIN)
    rows = [(name, _plain(value), context.rank_id, file) for name, value in known.items()]
    return Reading(SETTINGS.check(pd.DataFrame(rows, columns=SETTINGS.column_names)), notes)


def _plain(value: object) -> str:
    """A number without the last digits, which are noise of the conversion between units."""
    if not isinstance(value, float):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2**63 else f"{value:.12g}"


def _series(cells: Iterable[tuple[int, str, float, str | None]], path: Path, context: FileContext) -> pd.DataFrame:
    frame = pd.DataFrame(list(cells), columns=["row", "column", "value", "text"])
    return SERIES.check(frame.assign(file=context.name(path)))


def _kind(name: str, meaning: str, table: str, sniff: Any, read: Any) -> FileKind:
    return FileKind(name=name, meaning=meaning, tables=(table,), sniff=sniff, read=filled(read))


KINDS: tuple[FileKind, ...] = (
    _kind(
        "start_time",
        "start_time: one instant on host and device clock",
        "settings",
        or_named(sniff_clocks, r"start_time_\d+\.txt"),
        read_clocks,
    ),
    _kind(
        "timeline_summary",
        "timeline_summary: totals",
        "settings",
        or_named(sniff_timeline_summary, r"((ascend|gpu|cpu)_)?timeline_summary_\d+\.json"),
        read_timeline_summary,
    ),
    _kind(
        "flops_summary",
        "flops_summary: operations and speed",
        "settings",
        or_named(sniff_flops_summary, r"flops_summary_\d+\.json"),
        read_flops_summary,
    ),
    _kind(
        "flops_scope",
        "flops_scope: operations by scope",
        "series",
        or_named(sniff_flops_scope, r"flops_scope_\d+\.json"),
        read_flops_scope,
    ),
    _kind(
        "flops_steps",
        "flops_utilization_step: per step",
        "series",
        or_named(sniff_flops_steps, r"flops_utilization_step_\d+\.json"),
        read_flops_steps,
    ),
    _kind(
        "trace_points",
        "step_trace_point_info: operators",
        "settings",
        or_named(sniff_trace_points, r"step_trace_point_info(_\d+)?\.json"),
        read_trace_points,
    ),
    _kind("memory_usage_pb", "memory_usage.pb, not read", "memory_timeline", sniff_memory_usage, read_memory_usage),
)
