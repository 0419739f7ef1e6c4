"""Parts of a page that show device tasks over time."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from workbench.analyses import task_timeline
from workbench.analyses.collective_waits import clock_offsets
from workbench.analyses.task_timeline import Tasks
from workbench.analyses.trace_steps import device_tables
from workbench.charts import task_timeline as charts
from workbench.store import query, to_arrow
from workbench.tables import KERNELS, TABLES
from workbench.widgets.device_sections import STEP_TABLES
from workbench.widgets.rows import Rows
from workbench.widgets.sections import Missing, Tables, Text

RANKS_MOST = 16  # more rows than this do not fit on a page


def rank_timeline(rows: Rows, tables: Tables, ranks: tuple[int, ...], steps: tuple[int, int], rank_id: int) -> Any:
    """When each rank computes, communicates and stands idle.

    Args:
        rows: the run.
        tables: its tables within the steps, of all ranks.
        ranks: ranks to draw.
        steps: first and last step.
        rank_id: the rank in focus, drawn also where there are too many.
    """
    drawn = _few(ranks, rank_id)
    tasks = _tasks(rows, tables, drawn)
    shown = _shown(tasks, steps)
    if isinstance(shown, Text):
        return shown
    left_out = f"{len(drawn)} of {len(ranks)} ranks. " if len(drawn) < len(ranks) else ""
    bars = task_timeline.rank_bars(tasks, shown)
    return charts.rank_timeline_chart(bars, shown, note=left_out + _which(shown, steps))


def stream_timeline(rows: Rows, tables: Tables, steps: tuple[int, int], rank_id: int) -> Any:
    """The tasks of one rank by stream.

    Args:
        rows: the run.
        tables: its tables within the steps, of all ranks.
        steps: first and last step.
        rank_id: the rank.
    """
    tasks = _tasks(rows, tables, (rank_id,))
    shown = _shown(tasks, steps)
    if isinstance(shown, Text):
        return shown
    bars = task_timeline.stream_bars(tasks, shown)
    return charts.stream_timeline_chart(bars, shown, rank_id=rank_id, note=_which(shown, steps))


def _shown(tasks: Tasks, steps: tuple[int, int]) -> pd.DataFrame | Text:
    """The steps to draw, or why there is nothing to see."""
    shown = task_timeline.shown_steps(tasks, steps)
    if shown.empty:
        return Missing(f"No device task with a start time. To have them: {TABLES['kernels'].fix}.", table="kernels")
    if not task_timeline.can_be_seen(shown):
        return Text("The tasks lie too far apart to be drawn on one axis: they were recorded on several clocks.")
    return shown


def _tasks(rows: Rows, tables: Tables, ranks: tuple[int, ...]) -> Tasks:
    """The tasks as DuckDB reads them; where the files number no steps, or have no kernels, those that can be made."""
    collectives = tables.get("collectives")
    clocks = {} if collectives is None else clock_offsets(collectives).set_index("rank_id")["offset_us"].to_dict()
    if rows.has_numbered("kernels"):
        return Tasks(rows.run.sql, ranks, clocks)
    made = rows.once("tasks", rows.steps(), lambda: _made(rows))
    return Tasks(partial(_query, to_arrow(made, KERNELS)), ranks, clocks)


def _made(rows: Rows) -> pd.DataFrame:
    return device_tables(rows.tables(STEP_TABLES, rows.steps())).get("kernels", KERNELS.empty())


def _query(kernels: pa.Table, statement: str) -> pd.DataFrame:
    return query(statement, {"kernels": kernels}, scratch=Path(tempfile.gettempdir()))


def _few(ranks: tuple[int, ...], rank_id: int) -> tuple[int, ...]:
    """At most RANKS_MOST ranks, with the one in focus."""
    first = [r for r in ranks if r != rank_id]
    focus = [rank_id] if rank_id in ranks else []
    return tuple(sorted([*focus, *first[: RANKS_MOST - len(focus)]]))


def _which(shown: pd.DataFrame, steps: tuple[int, int]) -> str:
    known = shown["step"].dropna()
    if known.empty:
        return "These tasks have no step number."
    last = int(known.max())
    words = f"Step {last}" if known.min() == last else f"Steps {int(known.min())} to {last}"
    is_cut = len(known) == task_timeline.STEPS_MOST and last < steps[1]
    return f"{words}." + (" Choose later steps above to see them." if is_cut else "")
