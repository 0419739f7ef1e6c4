"""What evaluations cost a training: the time that they take from it, and the steps that they slow down."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from scipy import stats

from workbench.analyses.step_records import steps_per_row
from workbench.analyses.step_time import timed_steps
from workbench.tables import EVALS, EVENTS

INSIDE_SHARE = 0.5  # of a step's time in a window, from which on the step counts as inside
NEIGHBOURS = 20  # steps before and behind a window, at least, that tell what a step takes without it
BLOCK_STEPS = 5  # neighbouring steps are not independent: the interval counts blocks
FEWEST_BLOCKS = 4
OWN, OTHER = "the training itself", "another process"
WINDOW_COLUMNS = ["who", "name", "start_ns", "end_ns"]
_COMPARED = ["name", "start_ns", "end_ns", "steps", "first_step", "inside_us", "outside_us", "ratio", "cost_us",
             "blocks"]  # fmt: skip
COST_COLUMNS = [
    "who",
    "windows",
    "steps",
    "first_step",
    "inside_us",
    "outside_us",
    "slowdown_share",
    "low",
    "high",
    "cost_us",
    "cost_share",
]


def evaluation_windows(evals: pd.DataFrame | None, events: pd.DataFrame | None) -> pd.DataFrame:
    """When evaluations ran.

    Args:
        evals: table `evals` (checkpoint evaluations by other processes), or None. Where the protocol does not tell the
            start, it is the end minus scoring and compiling seconds.
        events: table `events` (inline evaluations; those whose detail names `process_ids` ran beside the training), or
            None.

    Returns:
        One row per evaluation: who (`OWN` or `OTHER`), name, start_ns, end_ns; by start.
    """
    rows: list[dict[str, object]] = []
    if events is not None:
        known = EVENTS.check(events)
        known = known[(known["kind"] == "eval") & known["duration_us"].notna() & known["start_ns"].notna()]
        for row in known[known["rank_id"] == known["rank_id"].min()].itertuples():
            end = int(row.start_ns) + int(row.duration_us * 1e3)
            who = OTHER if '"process_ids"' in str(row.detail) else OWN
            rows.append({"who": who, "name": row.name, "start_ns": int(row.start_ns), "end_ns": end})
    if evals is not None:
        known = EVALS.check(evals)
        known = known[(known["kind"] != "inline") & known["time_ns"].notna() & known["evaluation_id"].notna()]
        rows += [_window(part) for _, part in known.groupby("evaluation_id")]
    return pd.DataFrame(rows, columns=WINDOW_COLUMNS).sort_values("start_ns", ignore_index=True)


def interference(training_steps: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Step time inside each window of another process against the steps around it, on the slowest rank of each step.

    A step is inside if `INSIDE_SHARE` of its time is. Compared are medians of step_us (callbacks left out) with as many
    steps before and behind the window, at least `NEIGHBOURS`, that lie in no window. Compiled and warm-up steps do not
    count.

    Returns:
        One row per window with steps on both sides: name, start_ns, end_ns, steps, first_step, inside_us, outside_us,
        ratio, cost_us (sum over the steps of what they took beyond outside_us), blocks (ratios of `BLOCK_STEPS`
        neighbouring steps each, a list).
    """
    timed = timed_steps(training_steps)
    steady = timed[(timed["excluded"] == "") & timed["time_ns"].notna()]
    steps = steady.loc[steady.groupby("step")["step_us"].idxmax()].sort_values("step", ignore_index=True)
    other = windows[windows["who"] == OTHER]
    overlap = _overlap_share(steps, other)
    free = (overlap.sum(axis=1) if overlap.size else np.zeros(len(steps))) == 0
    rows = []
    for k, window in enumerate(other.to_dict("records")):
        inside = np.flatnonzero(overlap[:, k] >= INSIDE_SHARE)
        if not len(inside):
            continue
        reach = max(NEIGHBOURS, len(inside))
        around = np.flatnonzero(free)
        around = np.concatenate([around[around < inside[0]][-reach:], around[around > inside[-1]][:reach]])
        if len(around) < BLOCK_STEPS:
            continue
        first = int(steps["step"].iloc[inside[0]])
        rows.append({**window, "first_step": first, **_compared(steps["step_us"].to_numpy(), inside, around)})
    return pd.DataFrame(rows, columns=_COMPARED)


def evaluation_cost(training_steps: pd.DataFrame, windows: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """What evaluations cost, by who ran them.

    Returns:
        One row per who: windows; for `OTHER` steps, first_step, inside_us, outside_us, slowdown_share (geometric mean
        over blocks of steps minus 1) with low and high (t interval over blocks; missing with fewer than
        `FEWEST_BLOCKS`), cost_us and cost_share (of the training time without it); for `OWN` cost_us and cost_share
        alone, of the evaluations that began up to the last of these steps; cost_share is missing where the steps take
        no longer than they do. Empty without windows.
    """
    timed = timed_steps(training_steps)
    took_us = timed["step_us"] * steps_per_row(timed) + timed["callbacks_us"]
    training_us = float(took_us.groupby(timed["step"]).max().sum())  # of all steps, not of the printed ones alone
    rows = []
    own = windows[(windows["who"] == OWN) & _until_last_step(windows, timed)]
    own_us = float((own["end_ns"] - own["start_ns"]).sum()) / 1e3
    if len(own):
        rest_us = training_us - own_us
        share = own_us / rest_us if rest_us > 0 else float("nan")
        rows.append({"who": OWN, "windows": len(own), "cost_us": own_us, "cost_share": share})
    found = interference(training_steps, windows)
    if len(found):
        cost_us = float(found["cost_us"].sum())
        logs = np.log([r for blocks in found["blocks"] for r in blocks])
        low, high = _interval(logs, confidence)
        rows.append({
            "who": OTHER, "windows": len(found), "steps": int(found["steps"].sum()),
            "first_step": int(found["first_step"].min()),
            "inside_us": float(np.average(found["inside_us"], weights=found["steps"])),
            "outside_us": float(np.average(found["outside_us"], weights=found["steps"])),
            "slowdown_share": float(np.exp(logs.mean()) - 1), "low": low, "high": high, "cost_us": cost_us,
            "cost_share": cost_us / max(training_us - own_us - cost_us, 1.0),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=COST_COLUMNS)


def _until_last_step(windows: pd.DataFrame, steps: pd.DataFrame) -> pd.Series:
    """Whether each window began before the last step was over: later ones are not in the time of these steps."""
    if steps["time_ns"].isna().all():
        return pd.Series(True, index=windows.index)
    return windows["start_ns"] <= int(steps["time_ns"].max())


def _window(part: pd.DataFrame) -> dict[str, object]:
    end = int(part["time_ns"].max())
    try:
        protocol = json.loads(part["protocol"].dropna().iloc[0]) if part["protocol"].notna().any() else {}
    except ValueError:
        protocol = {}
    started = protocol.get("started_ns") if isinstance(protocol, dict) else None
    compiling = protocol.get("compile_seconds", 0.0) if isinstance(protocol, dict) else 0.0
    seconds = float(part.groupby("subset")["seconds"].first().sum()) + float(compiling or 0.0)
    start = int(started) if isinstance(started, int) else end - int(seconds * 1e9)
    name = part["checkpoint"].dropna()
    return {"who": OTHER, "name": name.iloc[0] if len(name) else "", "start_ns": start, "end_ns": end}


def _overlap_share(steps: pd.DataFrame, windows: pd.DataFrame) -> np.ndarray:
    """(steps, windows): share of the step's own time that lies in the window."""
    base = int(steps["time_ns"].iloc[0]) if len(steps) else 0
    end = (steps["time_ns"].astype("int64").to_numpy() - base) / 1e3
    begin = end - steps["step_us"].to_numpy()
    first = (windows["start_ns"].to_numpy(dtype="int64") - base) / 1e3
    last = (windows["end_ns"].to_numpy(dtype="int64") - base) / 1e3
    shared = np.minimum(end[:, None], last[None]) - np.maximum(begin[:, None], first[None])
    return np.clip(shared, 0.0, None) / np.maximum(end - begin, 1e-9)[:, None]


def _compared(step_us: np.ndarray, inside: np.ndarray, around: np.ndarray) -> dict[str, object]:
    outside_us = float(np.median(step_us[around]))
    parts = np.array_split(step_us[inside], max(len(inside) // BLOCK_STEPS, 1))
    return {
        "steps": len(inside),
        "inside_us": float(np.median(step_us[inside])),
        "outside_us": outside_us,
        "ratio": float(np.median(step_us[inside])) / outside_us,
        "cost_us": float(step_us[inside].sum() - outside_us * len(inside)),
        "blocks": [float(np.median(p)) / outside_us for p in parts],
    }


def _interval(logs: np.ndarray, confidence: float) -> tuple[float, float]:
    if len(logs) < FEWEST_BLOCKS:
        return float("nan"), float("nan")
    half = float(stats.t.ppf(0.5 + confidence / 2, len(logs) - 1)) * float(logs.std(ddof=1)) / np.sqrt(len(logs))
    return float(np.exp(logs.mean() - half) - 1), float(np.exp(logs.mean() + half) - 1)
