"""Rows of one log -> checked tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from workbench.readers.log_rows import NO_INT, Event, LogRows, to_json
from workbench.readers.log_steps import epochs, global_steps, repeated_steps, times_ns
from workbench.readers.log_values import LARGEST_EXACT
from workbench.tables import (
    EVALS,
    EVENTS,
    LOG_MESSAGES,
    PARAMETER_GROUPS,
    SERIES,
    SETTINGS,
    TRAINING_STEPS,
    Reading,
)

NUMBERS = (
    "loss", "learning_rate", "gradient_norm", "parameter_norm", "loss_scale", "step_us", "data_wait_us", "flops_per_s",
    "samples_per_s", "tokens_per_s", "sequence_length", "device_allocated_bytes", "device_reserved_bytes",
)  # fmt: skip
GAP_LEAST_US = 1e6
GAP_LEAST_STEPS = 0.5  # of the time that the steps between two lines take
TIMED = ["rank_id", "time_ns", "step", "step_us"]
SILENCE_LEAST_US = 10e6
SILENCE_LEAST_STEPS = 5.0


def to_tables(rows: LogRows, file: str, rank_id: int) -> dict[str, Reading]:
    """All tables that have rows; notes stand with the first of them.

    Events of kind `gap` are intervals in which a rank printed no step although its step time says it should have:
    between two step lines the time beyond what the steps take, and after the last step the time until the next line.
    """
    steps = global_steps(rows)
    ranks = _ranks(rows.steps.column("rank_id"), rank_id)
    training = _training_steps(rows, steps, ranks, file)
    tables = {
        TRAINING_STEPS: training,
        EVENTS: _events(rows, training, rank_id),
        EVALS: _evals(rows, steps),
        LOG_MESSAGES: _messages(rows, steps, file, rank_id),
        PARAMETER_GROUPS: _groups(rows, rank_id),
        SERIES: _series(rows, steps, file, rank_id),
        SETTINGS: pd.DataFrame(
            {"name": list(rows.settings), "value": list(rows.settings.values()), "rank_id": rank_id, "source": file}
        ),
    }
    notes = rows.notes.notes()
    readings = {}
    for table, df in tables.items():
        if len(df):
            readings[table.name] = Reading(df if df is training else table.check(df), notes)
            notes = []
    return readings


def _ranks(column: Iterable[float], rank_id: int) -> np.ndarray:
    ranks = np.array(column, dtype="float64")
    return np.where(ranks < 0, rank_id, ranks).astype("int64")


def _training_steps(rows: LogRows, steps: np.ndarray, ranks: np.ndarray, file: str) -> pd.DataFrame:
    if not len(steps):
        return TRAINING_STEPS.empty()
    times, no_time = times_ns(rows)
    data: dict[str, object] = {
        "rank_id": ranks,
        "step": steps.astype("int64"),
        "epoch": pd.array(epochs(rows), dtype="Int64"),
        "time_ns": pd.arrays.IntegerArray(np.where(no_time, 0, times), no_time),
        "loss_finite": _flags(rows, "loss_finite"),
        "overflow": _flags(rows, "overflow"),
        "compiled": _compiled(rows, steps, ranks),
        "source": file,
    }
    # without a copy: a long log has millions of steps
    data |= {n: np.frombuffer(rows.steps.column(n), dtype="float64") for n in NUMBERS if n in rows.steps.data}
    repeated = repeated_steps(ranks, steps)
    if repeated:
        rows.notes.add(
            f"{repeated} step lines repeat a step of the same rank", 0, "nothing, all are kept",
            "if several ranks write to one stream, give one log per rank; else the run was restarted",
        )  # fmt: skip
    return TRAINING_STEPS.check(pd.DataFrame(data, copy=False))


def _flags(rows: LogRows, name: str) -> pd.arrays.BooleanArray:
    values = np.array(rows.steps.column(name))
    return pd.arrays.BooleanArray(np.nan_to_num(values).astype(bool), np.isnan(values))


def _compiled(rows: LogRows, steps: np.ndarray, ranks: np.ndarray) -> pd.arrays.BooleanArray:
    """True for the first step (or sink of steps) and the first row after a compilation; else False or unknown."""
    compiled = steps <= float(rows.settings.get("sink_size") or 1)
    events = [e for e in rows.events if e.kind == "compile"]
    for event in events:
        following = _row_after(event, rows, ranks)
        if following is not None:
            compiled[following] = True
    return pd.arrays.BooleanArray(compiled, np.zeros(len(steps), bool) if events else ~compiled)


def _row_after(event: Event, rows: LogRows, ranks: np.ndarray) -> int | None:
    """The step row of the event's rank that follows it."""
    rank = event.rank_id
    for row in range(event.step_row + 1, len(ranks)):
        if rows.steps.get(row, "rank_id") == rank:
            return row
    return None


def _events(rows: LogRows, training: pd.DataFrame, rank_id: int) -> pd.DataFrame:
    steps, ranks = training["step"].to_numpy(), training["rank_id"].to_numpy()
    found: list[dict[str, object]] = [
        {
            "rank_id": rank_id if e.rank_id < 0 else e.rank_id,
            "kind": e.kind,
            "start_ns": None if e.start_ns == NO_INT else e.start_ns,
            "duration_us": e.duration_us,
            "step": _event_step(e, rows, steps, ranks),
            "name": e.name,
            "detail": to_json(e.detail),
        }
        for e in rows.events
    ]
    events = EVENTS.check(_exact(found)) if found else EVENTS.empty()
    parts = [df for df in (events, _gaps(training), _silences(rows, training, rank_id)) if len(df)]
    return pd.concat(parts, ignore_index=True) if parts else events


def _event_step(event: Event, rows: LogRows, steps: np.ndarray, ranks: np.ndarray) -> int | None:
    if event.step is not None:
        return event.step
    if event.kind == "compile":
        row = _row_after(event, rows, ranks)
        if row is not None:
            return int(steps[row])
        return int(steps[event.step_row]) + 1 if event.step_row >= 0 else 1
    return int(steps[event.step_row]) if event.step_row >= 0 else None


def _gaps(training: pd.DataFrame) -> pd.DataFrame:
    """Time between two consecutive step lines of a rank beyond what their steps take."""
    timed = training.loc[training["time_ns"].notna(), TIMED]
    parts = []
    for rank, df in timed.groupby("rank_id"):
        time, step = df["time_ns"].to_numpy("int64"), df["step"].to_numpy()
        elapsed_us, between = np.diff(time) / 1e3, np.diff(step)
        step_us = df["step_us"].to_numpy()[1:]
        usual = np.nanmedian(elapsed_us[between > 0] / between[between > 0]) if (between > 0).any() else np.nan
        expected = between * np.where(np.isfinite(step_us), step_us, usual)
        excess = elapsed_us - expected
        # a step that is itself slow, such as the first, shows in its step time; it is no gap
        is_gap = (between > 0) & (excess > GAP_LEAST_US) & (excess > GAP_LEAST_STEPS * expected)
        where = np.flatnonzero(is_gap)
        if len(where):
            parts.append(
                _gap_rows(int(str(rank)), time[where], excess[where], step[where], elapsed_us[where], between[where])
            )
    return pd.concat(parts, ignore_index=True) if parts else EVENTS.empty()


def _gap_rows(
    rank: int, start: np.ndarray, excess_us: np.ndarray, step: np.ndarray, elapsed_us: np.ndarray, steps: np.ndarray
) -> pd.DataFrame:
    detail = [
        to_json({"elapsed_us": float(e), "steps": int(n), "expected_us": float(e - x)})
        for e, n, x in zip(elapsed_us, steps, excess_us, strict=True)
    ]
    return EVENTS.check(
        pd.DataFrame(
            {
                "rank_id": rank,
                "kind": "gap",
                "start_ns": start,
                "duration_us": excess_us,
                "step": step,
                "name": "between step lines",
                "detail": detail,
            }
        )
    )


def _silences(rows: LogRows, training: pd.DataFrame, rank_id: int) -> pd.DataFrame:
    """Per rank, the time from its last step line to the next line that has a time, where that is long."""
    timed = training.loc[training["time_ns"].notna(), TIMED]
    parts = []
    for rank, df in timed.groupby("rank_id"):
        last, step = int(df["time_ns"].iloc[-1]), int(df["step"].iloc[-1])
        later = [
            m.time_ns for m in rows.messages if m.time_ns > last and (rank_id if m.rank_id < 0 else m.rank_id) == rank
        ]
        if not later:
            continue
        usual = df["step_us"].median()
        silent_us = (min(later) - last) / 1e3
        if silent_us > SILENCE_LEAST_US and not silent_us <= SILENCE_LEAST_STEPS * usual:
            detail = to_json({"elapsed_us": silent_us, "usual_step_us": float(usual)})
            one = {"rank_id": rank, "kind": "gap", "start_ns": last, "duration_us": silent_us, "step": step}
            parts.append(EVENTS.check(pd.DataFrame([{**one, "name": "after the last step", "detail": detail}])))
    return pd.concat(parts, ignore_index=True) if parts else EVENTS.empty()


def _exact(records: list[dict[str, object]]) -> pd.DataFrame:
    """Records as a frame whose times keep all 19 digits, which float64 would round."""
    df = pd.DataFrame(records)
    exact = {
        c: pd.array([r[c] for r in records], dtype="Int64") for c in df if str(c) in ("start_ns", "time_ns", "step")
    }
    return df.assign(**exact)


def _evals(rows: LogRows, steps: np.ndarray) -> pd.DataFrame:
    return _exact(
        [
            {
                "kind": "imported",
                "step": s.step if s.step is not None else int(steps[s.step_row]) if s.step_row >= 0 else None,
                "subset": s.subset,
                "metric": s.metric,
                "value": s.value,
                "seconds": s.seconds,
                "time_ns": None if s.time_ns == NO_INT else s.time_ns,
            }
            for s in rows.scores
        ]
    )


def _messages(rows: LogRows, steps: np.ndarray, file: str, rank_id: int) -> pd.DataFrame:
    messages = sorted(rows.messages, key=lambda m: m.number)
    times = np.array([m.time_ns for m in messages], dtype="int64")
    step_rows = np.array([m.step_row for m in messages], dtype="int64")
    known = step_rows >= 0
    values = np.where(known, steps[np.maximum(step_rows, 0)] if len(steps) else 0, 0).astype("int64")
    return pd.DataFrame(
        {
            "rank_id": [rank_id if m.rank_id < 0 else m.rank_id for m in messages],
            "file": file,
            "line": [m.number for m in messages],
            "time_ns": pd.arrays.IntegerArray(np.where(times == NO_INT, 0, times), times == NO_INT),
            "level": [m.level for m in messages],
            "module": [m.module for m in messages],
            "kind": [m.kind for m in messages],
            "step": pd.arrays.IntegerArray(values, ~known),
            "text": [m.text for m in messages],
            "fields": [to_json(m.fields) for m in messages],
        }
    )


def _groups(rows: LogRows, rank_id: int) -> pd.DataFrame:
    if not rows.groups.length:
        return PARAMETER_GROUPS.empty()
    names = np.array(list(rows.group_names))
    data = {c: np.array(rows.groups.column(c)) for c in ("step", "group", "gradient_norm", "parameter_norm")}
    df = pd.DataFrame({**data, "rank_id": _ranks(rows.groups.column("rank_id"), rank_id)})
    df = df[np.abs(df["step"]) < LARGEST_EXACT]
    df["group"] = names[df["group"].astype(int)]
    merged = df.groupby(["rank_id", "step", "group"], as_index=False, sort=False).last()
    return merged.assign(step=merged["step"].astype("int64"))


def _series(rows: LogRows, steps: np.ndarray, file: str, rank_id: int) -> pd.DataFrame:
    """Numbers without a column of their own: one series row per rank and step, with a cell `step`."""
    if not rows.extras.length:
        return SERIES.empty()
    get = {c: np.array(rows.extras.column(c)) for c in ("rank_id", "step_row", "step", "name", "value")}
    row = get["step_row"].astype("int64")
    at_row = np.where(row >= 0, steps[np.maximum(row, 0)], np.nan) if len(steps) else np.full(len(row), np.nan)
    step = np.where(np.isnan(get["step"]), at_row, get["step"])
    ranks = _ranks(get["rank_id"], rank_id)
    where = pd.DataFrame({"rank": ranks, "step": step})
    number = where.groupby(["rank", "step"], sort=False, dropna=False).ngroup().to_numpy()
    cells = pd.DataFrame(
        {"row": number, "column": np.array(list(rows.extra_names))[get["name"].astype(int)], "value": get["value"]}
    )
    first = where.assign(row=number).drop_duplicates("row")
    heads = [first.assign(column="step", value=first["step"])[["row", "column", "value"]]]
    if len(first["rank"].unique()) > 1:
        heads.append(first.assign(column="rank", value=first["rank"])[["row", "column", "value"]])
    long = pd.concat([*heads, cells], ignore_index=True).sort_values("row", kind="stable")
    return long[~((long["column"] == "step") & long["value"].isna())].assign(file=file)
