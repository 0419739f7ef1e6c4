"""Memory lines of training logs -> failed allocations with phase and sizes, and peaks per pipeline stage.

Table `log_messages` has the lines, one message each; their numbers stand in its column `fields`.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

import pandas as pd

from workbench.analyses.memory import STAGE_SETTINGS
from workbench.analyses.settings import setting, size_setting
from workbench.tables import LOG_MESSAGES

FAILURES = ("oom", "device_in_use", "link_memory")
REPORT_LINES = 60  # a failure is reported over several lines: message, statistic block, stack
SIZES = ("request_bytes", "free_bytes", "total_bytes", "budget_bytes", "allocated_bytes", "reserved_bytes",
         "process_bytes", "idle_bytes", "used_peak_bytes", "actual_peak_bytes", "graph_dynamic_bytes")  # fmt: skip
FAILURE = ["rank_id", "file", "line", "time_ns", "kind", "phase", "last_step", "device_id", "kernel", *SIZES]
PEAKS = ["set", "stage", "rank_id", "used_peak_bytes", "actual_peak_bytes", "budget_bytes", "device_bytes"]
# name in the line -> column; torch and torch_npu state the card's size as total capacity
COLUMNS = {
    "total_capacity_bytes": "total_bytes",
    "device_memory_bytes": "total_bytes",
    "already_allocated_bytes": "allocated_bytes",
    "in_used_mem_bytes": "allocated_bytes",
    "total_allocated_mem_bytes": "reserved_bytes",
    "total_idle_mem_bytes": "idle_bytes",
}
COMPILING = ("compile_start", "compile_phase", "compile_end", "pass_time")
PEAK_NAMES = {
    "used_peak_bytes": ("used_peak_bytes", "max_allocated_bytes"),
    "actual_peak_bytes": ("actual_peak_bytes", "max_reserved_bytes"),
    "budget_bytes": ("budget_bytes",),
    "device_bytes": ("device_memory_bytes",),
}
_STAGE_NAME = re.compile(r"(?:^|[^a-z])(?:stage|pp)[_-]?(\d+)(?!\d)", re.IGNORECASE)


def memory_failures(log_messages: pd.DataFrame, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """The first failed allocation of each rank and log: when it happened, and the sizes around it.

    Args:
        log_messages: table `log_messages`.
        settings: table `settings`, for the memory limit where no line states it.

    Returns:
        One row per (rank_id, file): line, time_ns, kind (oom, device_in_use: too little free at start, link_memory),
        phase (init, load, first_step: compilation and step 1, late: after a printed step; unknown), last_step (printed
        before it), device_id, kernel, request_bytes, free_bytes, total_bytes (of the card), budget_bytes (the limit of
        the pool), allocated_bytes (in use), reserved_bytes, process_bytes (all that this process holds), idle_bytes
        (free pieces of the pool), used_peak_bytes and actual_peak_bytes (without and with fragments),
        graph_dynamic_bytes (what a whole graph asked for). Missing
        where no line tells. Empty in, empty out.

    Raises:
        MissingColumnsError: a column is missing.
    """
    messages = LOG_MESSAGES.check(log_messages).sort_values(["file", "line"], kind="stable")
    limit = size_setting(settings, "max_device_memory", "max_size")
    failed = messages[messages["kind"].isin(FAILURES)]
    rows = []
    for (rank_id, file), group in failed.groupby(["rank_id", "file"], dropna=False, sort=True):
        same_rank = messages["rank_id"].isna() if pd.isna(rank_id) else messages["rank_id"] == rank_id
        rows.append(_failure(group, messages[(messages["file"] == file) & same_rank], limit))
    frame = pd.DataFrame(rows, columns=FAILURE)
    whole = {c: "Int64" for c in ("rank_id", "time_ns", "last_step", "device_id")}
    return frame.astype({**whole, "kernel": "string", **dict.fromkeys(SIZES, "float64")})


def stage_peaks_of_logs(log_messages: pd.DataFrame, settings: pd.DataFrame | None = None) -> pd.DataFrame:
    """Memory peaks per pipeline stage, of dry runs or of the ends of training logs.

    A log that holds several stages is a set of its own (a dry run); logs of one rank each in a folder are one.

    Args:
        log_messages: table `log_messages`: blocks of memory figures (MindSpore) and memory reports (Megatron).
        settings: table `settings`; gives the number of stages where the lines name ranks only.

    Returns:
        One row per (set, stage): rank_id (of its highest peak), used_peak_bytes (without fragments),
        actual_peak_bytes (with fragments), budget_bytes, device_bytes; highest over the ranks and reports of the stage.
        Sets with one stage are left out. Empty in, empty out.
    """
    messages = LOG_MESSAGES.check(log_messages)
    rows = [
        {
            "file": str(m.file),
            "rank_id": m.rank_id,
            **_peak_figures({**_stage_of_name(str(m.file)), **_facts(m.fields)}),
        }
        for m in messages[messages["kind"].isin(["memory_summary", "memory_report"])].itertuples()
    ]
    if not rows:
        return pd.DataFrame(columns=PEAKS)
    found = pd.DataFrame(rows).dropna(subset=["used_peak_bytes"])
    found = found.assign(stage=_stages(found, settings)).dropna(subset=["stage"]).astype({"stage": "int64"})
    several = found.groupby("file")["stage"].transform("nunique") > 1
    folder = found["file"].map(lambda name: str(PurePosixPath(name).parent))
    ordered = found.assign(set=found["file"].where(several, folder)).sort_values("actual_peak_bytes", ascending=False)
    peaks = ordered.groupby(["set", "stage"], as_index=False).first()
    return peaks[peaks.groupby("set")["stage"].transform("size") > 1].reset_index(drop=True)[PEAKS]


def _stage_of_name(file: str) -> dict[str, Any]:
    """The stage that a file's name tells, as in `dryrun/stage2.log`; what a line tells counts more."""
    named = _STAGE_NAME.search(PurePosixPath(file).name)
    return {"stage": int(named[1])} if named else {}


def _facts(text: object) -> dict[str, Any]:
    return json.loads(text) if isinstance(text, str) else {}


def _failure(failed: pd.DataFrame, log: pd.DataFrame, limit: float | None) -> dict[str, Any]:
    """One failure: its first line, with the sizes of the report around it and of what the log said before."""
    first = failed.iloc[0]
    line = int(first["line"])
    report = log[(log["line"] >= line) & (log["line"] <= line + REPORT_LINES)]
    before = log[log["line"] < line]
    figures: dict[str, Any] = {"budget_bytes": limit}
    pools = before[before["kind"].isin(["memory_pool", "memory_summary"])].iloc[-2:]
    for part in (pools, report.iloc[::-1]):  # what stands next to the failure counts most
        for text in part["fields"]:
            figures |= {COLUMNS.get(k, k): v for k, v in _facts(text).items()}
    last_step = first["step"] if not pd.isna(first["step"]) else None
    row = {c: figures.get(c) for c in ("device_id", "kernel", *SIZES)}
    place = {c: first[c] for c in ("rank_id", "file", "line", "time_ns", "kind")}
    return place | row | {"last_step": last_step, "phase": _phase(first, before, figures)}


def _phase(first: pd.Series, before: pd.DataFrame, figures: dict[str, Any]) -> str:
    if first["kind"] == "device_in_use":
        return "init"
    if not pd.isna(first["step"]):
        return "late"
    said = before[before["kind"].isin(["stage", *COMPILING])]
    text = "" if said.empty else str(said["text"].iloc[-1]).lower()
    if len(said) and (said["kind"].iloc[-1] in COMPILING or "compiling" in text):
        return "first_step"
    if "load" in text or "resum" in text:
        return "load"
    if text:
        return "init"
    return "first_step" if figures.get("kernel") else "unknown"


def _peak_figures(facts: dict[str, Any]) -> dict[str, float]:
    figures = {
        column: next((float(facts[name]) for name in names if name in facts), float("nan"))
        for column, names in PEAK_NAMES.items()
    }
    return {"stage": float(facts.get("stage", "nan")), **figures}


def _stages(found: pd.DataFrame, settings: pd.DataFrame | None) -> pd.Series:
    """Stage of each row: as stated, else by rank, with MindSpore's order: stage s has consecutive ranks."""
    stages = int(float(setting(settings, *STAGE_SETTINGS) or 0))
    world = int(float(setting(settings, "world_size", "device_num", "worker_num") or 0))
    ranks = found["rank_id"].astype("Int64")
    world = world or (int(ranks.max()) + 1 if ranks.notna().any() else 0)
    if stages < 2 or world % stages:
        by_rank = pd.Series(pd.NA, found.index, dtype="Int64")
        if 1 < stages == ranks.nunique():  # a dry run of one rank per stage
            by_rank = ranks.rank(method="dense").astype("Int64") - 1
    else:
        by_rank = ranks // (world // stages)
    return found["stage"].astype("float64").fillna(by_rank.astype("float64"))
