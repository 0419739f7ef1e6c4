"""Parts of the telemetry notebook: each takes the tables of a run, and says what is missing where it shows nothing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench.analyses.telemetry import physical_reasons, step_times
from workbench.analyses.telemetry_course import METRICS, telemetry_course
from workbench.charts.telemetry import telemetry_chart
from workbench.findings.diagnosis import Diagnosis, run_tables
from workbench.findings.telemetry import EXPLAINED, telemetry_evidence
from workbench.run import Run
from workbench.widgets.sections import Tables, Text, needs

NAMES = ("telemetry", "training_steps", "kernels")
S_PER_NS = 1e-9


def tables_of(run: Run) -> dict[str, pd.DataFrame]:
    """The tables that the parts use."""
    return run_tables(run, NAMES)


def slow_rank(diagnosis: Diagnosis) -> int:
    """The rank that a finding on a slow rank names; 0 where there is none."""
    named = [f.culprit.rank for f in diagnosis.causes if f.cause in EXPLAINED]
    return next((r for r in named if r is not None), 0)


@needs("telemetry")
def course(tables: Tables, rank_id: int, steps: tuple[int, int] | None = None) -> Any:
    """Card and host of a rank over time beside the other ranks, with the steps marked."""
    found = telemetry_course(tables["telemetry"], rank_id)
    if found.empty:
        return Text(f"Of rank {rank_id}'s card and host nothing was sampled that could explain that it is slow.")
    return telemetry_chart(found, _marked(tables, steps) if len(found) and found["axis"].iloc[0] != "step" else steps)


@needs("telemetry")
def reasons(tables: Tables, rank_id: int, steps: tuple[int, int] | None = None) -> Any:
    """What of that differs enough to explain a slow rank, as a table."""
    found = physical_reasons(tables["telemetry"], rank_id, steps=steps, times=_times(tables))
    if found.empty:
        return Text(f"Nothing that was sampled of rank {rank_id}'s card and host explains that it is slow.")
    return found.round(3)


@needs("telemetry")
def verdict(tables: Tables, rank_id: int, steps: tuple[int, int] | None = None) -> Any:
    """The same as one sentence."""
    _, _, sentence = telemetry_evidence(tables["telemetry"], rank_id, steps=steps, times=_times(tables))
    return Text(f"{sentence[:1].upper()}{sentence[1:]}." if sentence else "Telemetry gives no reason.", quiet=False)


def _times(tables: Tables) -> pd.DataFrame:
    return step_times(tables.get("training_steps"), tables.get("kernels"))


def _marked(tables: Tables, steps: tuple[int, int] | None) -> tuple[float, float] | None:
    """The steps in seconds since the first sample of the chart."""
    times = _times(tables)
    ran = times[times["step"].between(*steps)] if steps is not None else times.iloc[:0]
    if ran.empty:
        return None
    rows = tables["telemetry"]
    first = rows.loc[rows["metric"].isin(METRICS), "time_ns"].min()
    return float(ran["start_ns"].min() - first) * S_PER_NS, float(ran["end_ns"].max() - first) * S_PER_NS
