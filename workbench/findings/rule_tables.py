"""Tables of a run as the rules take them: up to a step, one row per step, one run of several."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workbench.analyses.log_runs import logging_interval, merged_steps, run_of_source
from workbench.analyses.trace_steps import MARKS_SQL, TASKS_SQL
from workbench.analyses.training import until_step
from workbench.errors import UnknownParameterError
from workbench.findings.rule import Tables
from workbench.readers.checkpoint_health import read_checkpoint_files
from workbench.readers.checkpoints import find_checkpoints
from workbench.run import Run
from workbench.tables import CHECKPOINT_FILES

STEPPED = ("training_steps", "events", "log_messages")


def run_tables(
    run: Run, names: Sequence[str], *, step: int | None = None, checkpoint: str | None = None
) -> dict[str, pd.DataFrame]:
    """Those of the named tables that the run has, with rows up to `step` (and up to the checkpoint's evaluation).

    Raises:
        UnknownParameterError: the run has no step up to `step`, or no such checkpoint.
    """
    tables = {name: _rows(run, name) for name in names if run.has(name)}
    if CHECKPOINT_FILES.name in names:  # what lies there now: no part of the cache
        tables[CHECKPOINT_FILES.name] = read_checkpoint_files(run.root, run.unknown_files)
    limit = _checkpoint_step(run, tables, checkpoint) if step is None and checkpoint else step
    if step is not None:
        _must_have_begun(run, step)
    cut = {n: until_step(t, limit) if "step" in t else t for n, t in tables.items()}
    return {name: frame for name, frame in cut.items() if len(frame)}


def _rows(run: Run, name: str) -> pd.DataFrame:
    """A table; of a trace, which may hold millions of events, only what steps are made of."""
    if name == "trace_events":
        return run.sql(MARKS_SQL if run.has("kernels") else TASKS_SQL)
    return run.table(name)


def of_all_runs(tables: Tables, sources: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables for rules that compare runs.

    Args:
        tables: as `run_tables` returns.
        sources: `run.sources`.

    Returns:
        The tables; `training_steps` with the column `run` (0 for the earliest job in the directory), and with true
        steps where its log counts lines only; and `sources`.
    """
    steps = tables.get("training_steps")
    if steps is None:
        return {**tables, "sources": sources}
    runs = run_of_source(steps)
    stepped = _with_true_steps(tables, steps, runs)
    numbered = stepped["training_steps"]
    return {
        **stepped,
        "training_steps": numbered.assign(run=numbered["source"].map(runs).fillna(0).astype("int64")),
        "sources": sources,
    }


def of_last_run(tables: Tables) -> dict[str, pd.DataFrame]:
    """The tables for all other rules: the latest job in the directory, one row per rank and step.

    Args:
        tables: as `of_all_runs` returns.
    """
    steps = tables.get("training_steps")
    if steps is None:
        return dict(tables)
    last = int(steps["run"].max())
    own = steps[steps["run"] == last]
    cut = dict(tables)
    if last > 0:
        others = set(steps.loc[steps["run"] != last, "source"].dropna())
        cut |= {n: _within(t, own, others) for n, t in tables.items() if n in ("events", "log_messages", "settings")}
    cut["training_steps"] = merged_steps(own.drop(columns="run").reset_index(drop=True))
    return {name: table for name, table in cut.items() if len(table)}


def _within(table: pd.DataFrame, own: pd.DataFrame, others: set[str]) -> pd.DataFrame:
    """Rows of the last run: not from files of the others; events, which name no file, by their time."""
    for column in ("file", "source"):
        if column in table:
            return table[~table[column].isin(others).fillna(False)]
    first, last = own["time_ns"].min(), own["time_ns"].max()
    if pd.isna(first) or "start_ns" not in table:
        return table
    margin_ns = max(int(last - first), 3_600 * 10**9)  # what was before the first step, and after the last
    return table[table["start_ns"].between(first - margin_ns, last + margin_ns).fillna(True)]


def _with_true_steps(tables: Tables, steps: pd.DataFrame, runs: pd.Series) -> dict[str, pd.DataFrame]:
    """Steps of a log that counts its lines, times its logging interval where other files tell it."""
    settings = tables.get("settings")
    counted = set()
    if settings is not None:
        is_counted = (settings["name"] == "log.steps_from") & (settings["value"] == "line count")
        counted = set(settings.loc[is_counted, "source"].dropna())
    if len(runs) != 1 or not counted & set(runs.index):
        return dict(tables)
    interval = logging_interval(steps, tables.get("evals"))
    if interval == 1:
        return dict(tables)
    scaled = {n: t.assign(step=t["step"] * interval) if n in STEPPED else t for n, t in tables.items()}
    own = scaled["evals"]["subset"] == "eval"
    scaled["evals"] = scaled["evals"].assign(step=scaled["evals"]["step"].mask(own, scaled["evals"]["step"] * interval))
    return scaled


def _must_have_begun(run: Run, step: int) -> None:
    steps = run.coverage()["steps"]
    if not steps:
        raise UnknownParameterError(f"Run {run.run_id} has no training steps.", fix="leave the step out")
    if step < steps[0]:
        raise UnknownParameterError(
            f"Run {run.run_id} has no step up to {step}.", fix=f"use a step from {steps[0]} to {steps[1]}"
        )


def _checkpoint_step(run: Run, tables: Tables, checkpoint: str) -> int | None:
    """Training step of a checkpoint; None where it is known, but not its step."""
    known: set[str] = set()
    for name in ("eval_samples", "evals"):
        table = _table(run, tables, name)
        if table is not None:
            steps = table.loc[table["checkpoint"] == checkpoint, "step"]
            if steps.notna().any():
                return int(steps.dropna().iloc[0])
            known |= set(table["checkpoint"].dropna())
    events = _table(run, tables, "events")
    if events is not None:
        saved = events[(events["kind"] == "checkpoint") & events["name"].notna()]
        stems = saved["name"].str.rsplit(".", n=1).str[0]
        steps = saved.loc[stems == checkpoint, "step"].dropna()
        if len(steps):
            return int(steps.iloc[-1])  # saved again after a restart: the last time
        known |= set(stems)
    files = {c.name: c.step for c in find_checkpoints(run.root)}
    if checkpoint not in known | set(files):
        names = ", ".join(sorted(known | set(files))[-10:])
        raise UnknownParameterError(
            f"Run {run.run_id} has no checkpoint {checkpoint!r}.",
            fix=f"use one of {names}" if names else "leave the checkpoint out: the run has none",
        )
    return files.get(checkpoint)


def _table(run: Run, tables: Tables, name: str) -> pd.DataFrame | None:
    """A table that tells checkpoints, also where it is not among those asked for."""
    return tables[name] if name in tables else run.table(name) if run.has(name) else None
