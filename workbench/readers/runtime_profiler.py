"""RuntimeProfilerSummary (MS_ENABLE_RUNTIME_PROFILER=1, MindSpore 2.3-2.10) -> training_steps, host_ops.

Named .csv, but text: a block per step with lines `Module:`, `Event:`, `EventInner:` and `Stage:`, times in ns.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import read_lines
from workbench.tables import HOST_OPS, TRAINING_STEPS, Reading

STEP_LINE = re.compile(r"\[Step:(\d{1,15}),? step_time:(\d{1,18})ns, module_total_time:(\d{1,18})ns\]")
TIME_LINE = re.compile(
    r"(Module|Event|EventInner|Stage):(.+?), total_time:(\d{1,18})ns, average_time:[\d.]{1,25}ns, "
    r"total_count:(\d{1,15})(?:, percent:[\d.]+%)?"
)
TITLE_LINE = re.compile(r"=+\[(Module|Stage)\]=+")
NS_PER_US = 1e3
COMPILED_SHARE = 0.5  # of the step in Python, in the first step: the graph is compiled there


class _Row(NamedTuple):
    """One line: what it is, its name, and its times in ns; `calls` is missing for a step."""

    what: str
    name: str
    total_ns: int
    calls: int | None


def sniff_summary(path: Path, head: bytes) -> bool:
    """A first line that opens a step, followed by module times."""
    first = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return bool(STEP_LINE.fullmatch(first)) and (b"[Module]" in head or b"total_count:" in head)


def read_summary(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the summary: `step_us` per step; modules, their events and the stages per step as host_ops.

    `level` is module, event, inner event or stage; times of inner events are part of their event's, and stages are
    another view of the same time: add up within one level only. Only `Model.train` marks steps.
    """
    lines = read_lines(path, context, _row, what="a step, module, event or stage")
    steps: list[dict[str, object]] = []
    ops: list[dict[str, object]] = []
    step, module = pd.NA, ""
    for row in lines.records:
        if row.what == "Step":
            step, module = int(row.name), ""
            steps.append({"step": step, "step_us": row.total_ns / NS_PER_US})
        elif row.calls is not None:
            module = row.name if row.what == "Module" else module
            nested = row.what in ("Event", "EventInner")
            ops.append(
                {
                    "step": step,
                    "level": LEVELS[row.what],
                    "name": f"{module}.{row.name}" if nested else row.name,
                    "count": float(row.calls),
                    "total_us": row.total_ns / NS_PER_US,
                    "avg_us": row.total_ns / NS_PER_US / row.calls if row.calls else float("nan"),
                }
            )
    file, rank = context.name(path), context.rank_id
    step_table = pd.DataFrame(steps, columns=["step", "step_us"]).drop_duplicates("step", keep="last")
    step_table["compiled"] = _compiled(step_table, ops)
    host = pd.DataFrame(ops, columns=["step", "level", "name", "count", "total_us", "avg_us"])
    return {
        "training_steps": Reading(TRAINING_STEPS.check(step_table.assign(rank_id=rank, source=file)), lines.notes),
        "host_ops": Reading(HOST_OPS.check(host.assign(rank_id=rank, window=context.window)), []),
    }


def _compiled(steps: pd.DataFrame, ops: list[dict[str, object]]) -> pd.Series:
    """True for a first step that was spent in Python, where graphs are compiled; unknown for the others."""
    in_python = {op["step"]: op["total_us"] for op in ops if (op["level"], op["name"]) == ("stage", "Python")}
    share = steps["step"].map(in_python).astype("float64") / steps["step_us"]
    compiled = (share > COMPILED_SHARE) & (steps["step"] == steps["step"].min())
    return compiled.astype("boolean").where(compiled)


LEVELS = {"Module": "module", "Event": "event", "EventInner": "inner event", "Stage": "stage"}


def _row(line: str) -> _Row | None:
    """A line; titles give a row that stands for nothing, for they are no damage."""
    if found := STEP_LINE.fullmatch(line):
        return _Row("Step", found[1], int(found[2]), None)
    if TITLE_LINE.fullmatch(line):
        return _Row("Title", "", 0, None)
    if found := TIME_LINE.fullmatch(line):
        return _Row(found[1], found[2], int(found[3]), int(found[4]))
    return None


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="runtime_profiler",
        meaning="RuntimeProfilerSummary: host time per step and module",
        tables=("training_steps", "host_ops"),
        sniff=or_named(sniff_summary, r"RuntimeProfilerSummary\d*\.csv"),
        read=filled(read_summary),
    ),
)
