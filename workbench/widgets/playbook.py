"""A playbook at work: the run, the run after the fix, the checks, charts of both, and the findings as a file."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from workbench.charts.theme import half_width
from workbench.errors import UnknownParameterError
from workbench.files import share_dir
from workbench.findings.checks import Checks, Examined, Verdict, checks, conclude, examine, prove
from workbench.findings.diagnosis import RULES
from workbench.findings.finding import Finding
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.rule_tables import run_tables
from workbench.widgets.sections import Tables, Text

NOT_YET = "No fixed run yet. After the change, run this notebook again with compare_with = the path of the new run."
NAMES = tuple(sorted({name for rule in RULES for name in (*rule.needs, *rule.needs_any, *rule.uses)}))
SAMPLES = "data_samples"
Part = Callable[..., Any]


class Case:
    """One run in one playbook. `open_case` makes it.

    Attributes:
        tables: of the run, by name, as parts of pages take them.
        fixed_tables: of the run after the fix; empty where there is none yet.
        findings: of the run, most costly first.
    """

    def __init__(self, playbook: str, examined: Examined, fixed: Examined | None) -> None:
        self.playbook = playbook
        self.examined, self.fixed = examined, fixed
        self.tables: Tables = run_tables(examined.run, NAMES)
        self.fixed_tables: Tables = {} if fixed is None else run_tables(fixed.run, NAMES)

    @property
    def findings(self) -> Sequence[Finding]:
        """What was found in the run."""
        return self.examined.diagnosis.causes

    def check(self, *causes: str) -> Checks:
        """Verdict on each of the causes."""
        return checks(self.examined, *causes)

    def verdict(self) -> Verdict:
        """All verdicts, the cause, its fix; or where to go on."""
        return conclude(self.examined, self.playbook)

    def proof(self) -> Verdict | Text:
        """Whether what was found is gone after the fix."""
        return Text(NOT_YET) if self.fixed is None else prove(self.examined, self.fixed, self.playbook)

    def beside(self, part: Part, *arguments: Any) -> Any:
        """A part of a page for this run and for the one after the fix: charts side by side, else one below the other.

        Args:
            part: takes tables first, then `arguments`.
            *arguments: of the part.
        """
        before = part(self.tables, *arguments)
        if self.fixed is None:
            return before
        after = part(self.fixed_tables, *arguments)
        names = (f"before: {self.examined.run.run_id}", f"after: {self.fixed.run.run_id}")
        if all(isinstance(c, alt.Chart | alt.LayerChart) for c in (before, after)):
            halves = [_half(c, n) for c, n in zip((before, after), names, strict=True)]
            return alt.hconcat(*halves).resolve_scale(x="shared", y="shared", color="shared")
        return Stacked([(names[0], before), (names[1], after)])

    def __repr__(self) -> str:
        symptom = f"{self.playbook}: {PLAYBOOKS[self.playbook].symptom}"
        after = "none yet" if self.fixed is None else self.fixed.run.run_id
        return f"{symptom}\nRun {self.examined.run.run_id}; after the fix: {after}."

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in repr(self).splitlines())


class Stacked:
    """Things that show themselves, each under its name."""

    def __init__(self, parts: Sequence[tuple[str, Any]]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return "\n".join(f"{name}\n{part!r}" for name, part in self.parts)

    def _repr_html_(self) -> str:
        return "".join(f"<p><b>{html.escape(name)}</b></p>{_as_html(part)}" for name, part in self.parts)


def open_case(playbook: str, run_path: str, compare_with: str | None = None) -> Case:
    """Open a run in a playbook.

    Args:
        playbook: T1 to T10, E7.
        run_path: the run with the symptom: any directory that a reader knows.
        compare_with: the run after the fix; None: none yet (the playbook's packaged sample has one).

    Raises:
        UnknownParameterError: there is no such playbook.
        UnknownContentError: nothing at a path that a reader knows.
    """
    if playbook not in PLAYBOOKS:
        raise UnknownParameterError(f"There is no playbook {playbook!r}.", fix=f"use one of {', '.join(PLAYBOOKS)}")
    fixed = compare_with or _packaged_fix(playbook, run_path)
    return Case(playbook, examine(run_path), None if fixed is None else examine(fixed))


def _half(chart: Any, title: str) -> Any:
    """A copy that can stand beside another: half as wide, without what only whole charts have."""
    half = chart.properties(width=half_width(), title=title)
    for key in ("padding", "background", "config"):
        half[key] = alt.Undefined
    return half


def _packaged_fix(playbook: str, run_path: str) -> str | None:
    known = PLAYBOOKS[playbook]
    samples = share_dir() / SAMPLES
    is_sample = Path(run_path).resolve() == (samples / known.sample).resolve()
    return str(samples / known.fixed_sample) if is_sample else None


def _as_html(part: Any) -> str:
    if isinstance(part, pd.DataFrame):
        return str(part._repr_html_())
    shown = getattr(part, "_repr_html_", None)
    return f"<pre>{html.escape(repr(part))}</pre>" if shown is None else str(shown())
