"""Rows of a log -> global steps: epochs joined, counters restored where the lines carry none."""

from __future__ import annotations

import numpy as np

from workbench.readers.log_rows import NO_INT, LogRows
from workbench.readers.log_values import LARGEST_EXACT

FloatArray = np.ndarray


def global_steps(rows: LogRows) -> FloatArray:
    """Global step, from 1, of each row of `rows.steps`, as float64; sets `rows.settings['log.steps_from']`.

    `epoch: e step: s` counts s inside the epoch, so the step is (e - 1) * S + s. S stands in the line (MindFormers), or
    is the largest s of the log, or epoch time / step time of the TimeMonitor where that is larger beyond its rounding.
    """
    steps = _column(rows, "step")
    size = len(steps)
    if not size:
        return steps
    epoch, inside, per_epoch = (_column(rows, c) for c in ("epoch", "step_in_epoch", "steps_per_epoch"))
    index = _column(rows, "epoch_index")
    own = np.isnan(per_epoch)
    derived = _steps_per_epoch(rows, inside[own & ~np.isnan(inside)])
    per_epoch = np.where(own, derived, per_epoch)
    epoch = epoch + _first_epoch_is_zero(epoch, _column(rows, "epochs_done"))
    with np.errstate(invalid="ignore"):  # inf * 0, from a damaged counter
        steps = np.where(np.isnan(steps), (epoch - 1) * per_epoch + inside, steps)
        steps = np.where(np.isnan(steps), index * derived, steps)
    return _fill_unknown(rows, _fill_counted(rows, steps))


def epochs(rows: LogRows) -> FloatArray:
    """Epoch of each row, from 1; NaN where the log does not say it."""
    epoch = _column(rows, "epoch")
    epoch = epoch + _first_epoch_is_zero(epoch, _column(rows, "epochs_done"))
    epoch = np.where(np.isnan(epoch), _column(rows, "epoch_index"), epoch)
    epoch = np.where(np.isnan(epoch), np.floor(_column(rows, "epoch_fraction")) + 1, epoch)
    return np.where(np.abs(epoch) < LARGEST_EXACT, epoch, np.nan)


def _column(rows: LogRows, name: str) -> FloatArray:
    return np.array(rows.steps.column(name), dtype="float64")


def _first_epoch_is_zero(epoch: FloatArray, epochs_done: FloatArray) -> int:
    """1 where epochs are counted from 0: an epoch 0 is printed, or each number equals the epochs done before it."""
    known = epoch[~np.isnan(epoch)]
    if len(known) and known.min() == 0:
        return 1
    both = ~np.isnan(epoch) & ~np.isnan(epochs_done)
    return int(both.any() and bool((epoch[both] == epochs_done[both]).all()))


def _steps_per_epoch(rows: LogRows, inside: FloatArray) -> float:
    largest = inside.max() if len(inside) else np.nan
    known = [pair for pair in rows.steps_per_epoch if np.isfinite(pair).all()]
    if not known:
        return float(largest)
    ratio, error = np.median(known, axis=0)
    if ratio <= largest + error + 0.01:
        return float(largest)
    return float(np.round(ratio))


def _fill_counted(rows: LogRows, steps: FloatArray) -> FloatArray:
    """Steps of Hugging Face lines, which carry no number."""
    count = _column(rows, "hf_count")
    counted = np.isnan(steps) & ~np.isnan(count)
    if not counted.any():
        return steps
    bar = _column(rows, "bar_step")
    if not np.isnan(bar[counted]).any() and (np.diff(bar[counted]) > 0).all():
        rows.settings["log.steps_from"] = "progress bar"
        return np.where(counted, bar, steps)
    every = _logging_steps(rows, _column(rows, "epoch_fraction")[counted], count[counted])
    rows.settings["log.steps_from"] = "logging interval" if every else "line count"
    if not every:
        rows.notes.add(
            "the lines carry no step number; the step is the number of the line among its kind",
            0,
            "the true step: it is this number times the logging interval",
            "give the whole log, or a log with its progress bar",
        )
    return np.where(counted, count * (every or 1), steps)


def _fill_unknown(rows: LogRows, steps: FloatArray) -> FloatArray:
    unknown = ~np.isfinite(steps) | (np.abs(steps) >= LARGEST_EXACT)
    if unknown.any():
        rows.notes.add(
            "step lines do not tell their step", 0, "the step; the number of the line stands for it", "look at them"
        )
    return np.where(unknown, np.arange(1, len(steps) + 1), steps)


def _logging_steps(rows: LogRows, fraction: FloatArray, count: FloatArray) -> float | None:
    if stated := rows.settings.get("logging_steps"):
        return float(stated)
    end = rows.train_end
    total = float(rows.settings.get("total_optimization_steps") or 0)
    total = total or end.get("train_runtime", 0) * end.get("train_steps_per_second", 0)
    last_epoch = float(rows.settings.get("num_epochs") or end.get("epoch", 0))
    if not (0 < total < LARGEST_EXACT and 0 < last_epoch < LARGEST_EXACT and fraction[-1] > 0):
        return None
    return max(1.0, float(np.round(total * fraction[-1] / last_epoch / count[-1])))


def repeated_steps(rank_ids: np.ndarray, steps: FloatArray) -> int:
    """How many rows have the rank and step of an earlier row."""
    keys = np.unique(np.stack([rank_ids.astype("float64"), steps]), axis=1)
    return len(steps) - keys.shape[1]


def times_ns(rows: LogRows) -> tuple[np.ndarray, np.ndarray]:
    """Time of each step row, and whether it is missing."""
    times = np.array(rows.step_times_ns, dtype="int64")
    return times, times == NO_INT
