"""Rows of a run for what is on show: a table is read when a part first needs it, and by DuckDB where it is large."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from workbench.analyses.selection import select
from workbench.findings.rule_tables import run_tables
from workbench.run import Run
from workbench.store import to_arrow, to_pandas
from workbench.tables import TABLES

ROWS_MOST = 400_000  # of a table at a time: what pandas groups within about a second
STEPPED = ("training_steps", "step_time")  # tables that tell which steps a run has; without them it is the kernels


class Rows:
    """The tables of one run, kept once read.

    Args:
        run: an opened run.
        rows_most: tables with more rows than this are read for the chosen steps only, whole steps at a time.

    `notes` says, for each table of the last call that was cut, what was left out.
    """

    def __init__(self, run: Run, *, rows_most: int = ROWS_MOST) -> None:
        self.run, self._most = run, rows_most
        self.notes: dict[str, str] = {}
        self._whole: dict[str, pd.DataFrame] = {}
        self._parts: dict[tuple[str, tuple[int, int]], tuple[pd.DataFrame, str]] = {}
        self._made: dict[str, tuple[tuple[int, int], pd.DataFrame]] = {}
        self._steps = self._all_steps()

    def steps(self) -> tuple[int, int]:
        """First and last step of the run as it was when it was opened; (0, 0) if nothing tells any."""
        return self._steps

    def _all_steps(self) -> tuple[int, int]:
        found = [self._range(name) for name in STEPPED if self.run.has(name)]
        known = [r for r in found if r is not None] or [
            r for name in ("kernels",) if self.run.has(name) and (r := self._range(name)) is not None
        ]
        return (min(r[0] for r in known), max(r[1] for r in known)) if known else (0, 0)

    def once(self, key: str, steps: tuple[int, int], make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """What `make` returns for these steps, made once; the latest steps of each key are kept."""
        if self._made.get(key, (None,))[0] != steps:
            self._made[key] = (steps, make())
        return self._made[key][1]

    def subsets(self) -> list[str]:
        """Names of the subsets of evaluations and data, sorted."""
        names = [n for n in ("evals", "eval_samples", "sample_ids", "data_samples") if self.run.has(n)]
        found = [self.run.sql(f"SELECT DISTINCT subset FROM {n} WHERE subset IS NOT NULL")["subset"] for n in names]
        return sorted({str(s) for column in found for s in column})

    def tables(self, names: Sequence[str], steps: tuple[int, int]) -> dict[str, pd.DataFrame]:
        """Those of the named tables that the run has, with the rows of these steps and those without a step."""
        self.notes = {}
        found = {name: self._table(name, steps) for name in names if self.run.has(name)}
        return {name: rows for name, rows in found.items() if rows is not None}

    def _table(self, name: str, steps: tuple[int, int]) -> pd.DataFrame | None:
        if self.is_large(name):
            if (name, steps) not in self._parts:
                self._parts = {k: v for k, v in self._parts.items() if k[0] != name}  # one part of each at a time
                self._parts[name, steps] = self._part(name, steps)
            rows, note = self._parts[name, steps]
            if note:
                self.notes[name] = note
            return rows
        if name not in self._whole:
            self._whole[name] = run_tables(self.run, [name]).get(name, TABLES[name].empty())
        rows = self._whole[name]
        return None if rows.empty else select({name: rows}, steps=steps)[name]

    def is_without_rows(self, name: str) -> bool:
        """Whether a table that was read gave no row with any filter, as a trace without marks of steps does."""
        return name in self._whole and self._whole[name].empty

    def is_large(self, name: str) -> bool:
        """Whether only some steps of the table are read at a time."""
        if (
            name in self._whole
            or not self.run.has(name)
            or "step" not in TABLES[name].column_names
            or name == "trace_events"
        ):  # of traces, only marks are taken
            return False
        return int(self.run.sql(f"SELECT count(*) AS n FROM {name}")["n"].iloc[0]) > self._most

    def has_numbered(self, name: str) -> bool:
        """Whether the run has rows of the table that name their step."""
        return self.run.has(name) and self._range(name) is not None

    def _range(self, name: str) -> tuple[int, int] | None:
        found = self.run.sql(f"SELECT min(step) AS first, max(step) AS last FROM {name}").iloc[0]
        return (int(found["first"]), int(found["last"])) if pd.notna(found["first"]) else None

    def _part(self, name: str, steps: tuple[int, int]) -> tuple[pd.DataFrame, str]:
        """As many of the chosen steps as fit, from the first one, and what is left out."""
        chosen = f"(step IS NULL OR step BETWEEN {steps[0]} AND {steps[1]})"
        counts = self.run.sql(f"SELECT step, count(*) AS n FROM {name} WHERE {chosen} GROUP BY step ORDER BY step")
        fits = counts["n"].cumsum() <= self._most
        known = counts["step"].dropna()
        fitting = known[fits[known.index]]
        last = int(fitting.max()) if len(fitting) else int(known.min()) if len(known) else steps[1]
        rows = self.run.sql(f"SELECT * FROM {name} WHERE {chosen} AND coalesce(step, {last}) <= {last}")
        cut = "" if fits.all() else f"Of table {name}, which is large, steps {steps[0]} to {last} are shown."
        return to_pandas([to_arrow(rows, TABLES[name])], TABLES[name]), cut
