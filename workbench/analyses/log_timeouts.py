"""Time-outs of collectives in the logs of all ranks -> which rank is silent, what it did last, how far apart they are.

In a collective every rank waits for the last one. The ranks that report a time-out are the victims; the one that does
not is the suspect. Source: error guides of CANN for EI0002 and EI0006.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd

from workbench.analyses.settings import setting
from workbench.tables import LOG_MESSAGES

REPORTS = ("timeout_collective", "timeout_link")
LIMITS_S = {"timeout_collective": 1800.0, "timeout_link": 120.0}  # of HCCL where nothing is set
LIMIT_SETTINGS = {
    "timeout_collective": ("HCCL_EXEC_TIMEOUT", "HCCL_EXEC_TIMEOUT_s"),
    "timeout_link": ("HCCL_CONNECT_TIMEOUT", "HCCL_CONNECT_TIMEOUT_s"),
}
WORLD_SIZE = ("ranks", "world_size", "rank_size", "worker_num", "num_ranks", "device_num", "cards")
# what a rank was doing, by the kinds of its last messages, the most telling first
ACTIVITIES = {
    "data": ("data_hang", "data_timeout", "slow_data", "shared_memory"),
    "out_of_memory": ("oom", "oom_warning", "link_memory", "device_in_use"),
    "crashed": ("exception", "nan_stop", "hardware_check"),
    "saving": ("checkpoint_start",),
    "compiling": ("compile_start", "compile_phase"),
    "evaluating": ("eval_result", "eval_time"),
    "error": ("error", "task_failed"),
}
_ENV = re.compile(r"^(\d+(?:\.\d+)?)")


def rank_reports(
    log_messages: pd.DataFrame, training_steps: pd.DataFrame | None = None, settings: pd.DataFrame | None = None
) -> pd.DataFrame:
    """What each rank of the job says about the time-out.

    Args:
        log_messages: table `log_messages`, of all ranks.
        training_steps: table `training_steps`, or None.
        settings: table `settings`, or None: tells how many ranks there are, where not all have a log.

    Returns:
        One row per rank of the job, or none where no rank reports a time-out: rank_id; has_log; reported; report_ns
        (first report); last_step; last_step_ns; last_ns and last_text (its last line that is no report); activity (a
        key of `ACTIVITIES`, missing where nothing tells) of its lines after its last step, with activity_ns and
        activity_text of the first of them; named_by (how many other ranks say that they wait for it).
    """
    messages = LOG_MESSAGES.check(log_messages).dropna(subset=["rank_id"])
    reports = messages[messages["kind"].isin(REPORTS)]
    if reports.empty:
        return pd.DataFrame(columns=["rank_id", "has_log", "reported"])
    seen = set(messages["rank_id"]) | (set() if training_steps is None else set(training_steps["rank_id"]))
    stated = setting(settings, *WORLD_SIZE)
    count = max(int(max(seen)) + 1 if len(seen) > 1 else 0, _count(stated))
    named = _named(reports)
    rows = []
    for rank in sorted({int(r) for r in seen} | set(range(count))):
        steps = None if training_steps is None else training_steps[training_steps["rank_id"] == rank]
        row = _of_rank(messages[messages["rank_id"] == rank], steps)
        rows.append({"rank_id": rank, "has_log": rank in seen, **row, "named_by": named.get(rank, 0)})
    return pd.DataFrame(rows).astype({"last_step": "Int64"})


def report_limit_s(log_messages: pd.DataFrame, settings: pd.DataFrame | None = None) -> float:
    """The time that a collective may take before it times out: of the messages, of the settings, or the default."""
    reports = log_messages[log_messages["kind"].isin(REPORTS)]
    for text in reports["fields"].dropna():
        if limit := json.loads(text).get("limit_s"):
            return float(limit)
    kind = str(reports["kind"].mode().iloc[0]) if len(reports) else REPORTS[0]
    value = setting(settings, *LIMIT_SETTINGS[kind])
    match = _ENV.match(value or "")
    return float(match[1]) if match else LIMITS_S[kind]


def _count(text: str | None) -> int:
    digits = (text or "").removesuffix(".0")
    return int(digits) if digits.isdigit() else 0


def _named(reports: pd.DataFrame) -> dict[int, int]:
    """Rank -> how many other ranks name it as the one that they wait for."""
    fields = reports["fields"].fillna("{}").map(json.loads)
    pairs = {
        (int(rank), int(f["remote_rank"]))
        for rank, f in zip(reports["rank_id"], fields, strict=True)
        if str(f.get("remote_rank", "")).isdigit()
    }
    others = [remote for rank, remote in pairs if rank != remote]
    return {remote: others.count(remote) for remote in set(others)}


def _of_rank(messages: pd.DataFrame, steps: pd.DataFrame | None) -> dict[str, Any]:
    is_report = messages["kind"].isin(REPORTS)
    reports, rest = messages[is_report], messages[~is_report & (messages["kind"] != "log_end")]
    last_step = int(steps["step"].max()) if steps is not None and len(steps) else None
    step_ns = steps["time_ns"].max() if steps is not None and len(steps) else pd.NA
    after = rest if pd.isna(step_ns) else rest[(rest["time_ns"] >= step_ns).fillna(False)]
    activity, line = _activity(after) if reports.empty else (None, None)
    ends = messages["time_ns"].dropna()
    latest = messages.loc[messages["time_ns"].idxmax(), "text"] if len(ends) else None
    return {
        "reported": bool(len(reports)),
        "report_ns": float(reports["time_ns"].min()) if reports["time_ns"].notna().any() else np.nan,
        "last_step": last_step,
        "last_step_ns": np.nan if pd.isna(step_ns) else float(step_ns),
        "last_ns": float(ends.max()) if len(ends) else np.nan,
        "last_text": latest,
        "activity": activity,
        "activity_ns": np.nan if line is None or pd.isna(line["time_ns"]) else float(line["time_ns"]),
        "activity_text": None if line is None else str(line["text"]),
    }


def _activity(after: pd.DataFrame) -> tuple[str | None, pd.Series | None]:
    for activity, kinds in ACTIVITIES.items():
        lines = after[after["kind"].isin(kinds)]
        if len(lines):
            return activity, lines.iloc[0]
    return None, None
