"""A page of parts, drawn from what is on show: the rows that the filters leave, the diagnosis, what is in focus."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ipywidgets
import pandas as pd

from workbench.analyses.selection import select
from workbench.errors import WorkbenchError
from workbench.findings.diagnosis import Diagnosis
from workbench.run import Run
from workbench.widgets.device_sections import STEP_TABLES, profiled_steps
from workbench.widgets.rows import Rows
from workbench.widgets.sections import Missing, Text
from workbench.widgets.slot import Brushed, Slot

BRUSHED = frozenset({"loss", "gradient norm", "learning rate", "step time"})  # dragging sets the range of steps
QUIET = "color:#57606a"


@dataclass
class Shown:
    """What a page's parts are made of.

    Attributes:
        rows: the run.
        names: tables that the page uses.
        ranks, steps, subset: the filters; no subset means all.
        rank: the rank whose steps, memory and telemetry are shown one by one.
        checkpoint: the chosen checkpoint; None means the last one.
        diagnosis: of the whole run; None while it is being made.
        causes: shows the causes of the diagnosis, with what can be done about them.
        other: the run to compare with.
    """

    rows: Rows
    names: tuple[str, ...]
    ranks: tuple[int, ...]
    steps: tuple[int, int]
    rank: int = 0
    subset: str | None = None
    checkpoint: str | None = None
    diagnosis: Diagnosis | None = None
    causes: ipywidgets.Widget | None = None
    other: Shown | None = field(default=None, repr=False)

    @property
    def run(self) -> Run:
        """The run."""
        return self.rows.run

    @cached_property
    def all_ranks(self) -> dict[str, pd.DataFrame]:
        """The tables with the chosen steps and subset of all ranks; those without rows are left out."""
        taken = select(self.rows.tables(self.names, self.steps), subset=self.subset)
        return {name: table for name, table in taken.items() if len(table)}

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables with the chosen ranks, too."""
        taken = select(self.all_ranks, ranks=self.ranks or None)
        return {name: table for name, table in taken.items() if len(table)}

    @cached_property
    def device_steps(self) -> pd.DataFrame:
        """Where the time of the profiled steps went, of all ranks: made of the whole profile where it is not large."""
        large = any(self.rows.is_large(name) for name in STEP_TABLES)
        taken = self.steps if large else self.rows.steps()
        steps = self.rows.once("device_steps", taken, lambda: profiled_steps(self.rows.tables(STEP_TABLES, taken)))
        return select({"steps": steps}, steps=self.steps)["steps"]

    @property
    def filtered_out(self) -> list[str]:
        """Tables of the page that the run has, but not with these ranks, steps and subset."""
        left = self.tables
        return [n for n in self.names if n in self.run.tables and n not in left and not self.rows.is_without_rows(n)]


Part = Callable[[Shown], Any]


@dataclass(frozen=True)
class Tab:
    """One page: the tables that it reads, and its parts by name, from top to bottom."""

    tables: tuple[str, ...]
    parts: Mapping[str, Part]


class Page:
    """The widget of a tab. What a run lacks is said once, below the parts.

    Args:
        tab: what it shows.
        brushed: called with first and last step when the user drags over a chart with steps.
    """

    def __init__(self, tab: Tab, brushed: Brushed | None = None) -> None:
        self._tab = tab
        self.slots = {name: Slot(brushed=brushed if name in BRUSHED else None) for name in tab.parts}
        self.note, self.lacking = ipywidgets.HTML(), ipywidgets.HTML()
        self.widget = ipywidgets.VBox([self.note, *(slot.widget for slot in self.slots.values()), self.lacking])

    def draw(self, shown: Shown) -> None:
        """Draw all parts."""
        empty = shown.filtered_out
        lacking: dict[str, list[str]] = {}
        words = [f"These ranks, steps and subset leave no rows of {', '.join(empty)}."] if empty else []
        self.note.value = _lines([*words, *shown.rows.notes.values()])
        for name, part in self._tab.parts.items():
            made = _made(part, shown)
            if isinstance(made, Missing):
                self.slots[name].hide()
                if made.table not in empty:
                    lacking.setdefault(made.text, []).append(name)
            else:
                self.slots[name].show(made)
        self.lacking.value = _lines([f"Not shown: {', '.join(names)}. {text}" for text, names in lacking.items()])


def _made(part: Part, shown: Shown) -> Any:
    try:
        return part(shown)
    except WorkbenchError as error:
        return Text(str(error), quiet=False)


def _lines(texts: list[str]) -> str:
    return "".join(f"<p style='{QUIET};line-height:1.4'>{html.escape(text)}</p>" for text in texts)
