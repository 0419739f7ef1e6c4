"""A playbook at work: the run, the run after the fix, the checks, charts of both, and the findings as a file."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from IPython.display import display

from workbench.analyses.run_comparison import courses
from workbench.analyses.version_change import operator_changes
from workbench.charts.run_comparison import courses_chart, parts_chart
from workbench.charts.theme import half_width
from workbench.errors import UnknownParameterError
from workbench.files import share_dir
from workbench.findings.checks import Checks, Examined, Verdict, checks, conclude, examine, prove
from workbench.findings.diagnosis import RULES
from workbench.findings.finding import Finding
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.rule_tables import of_all_runs, run_tables
from workbench.run import Run
from workbench.widgets.sections import Tables, Text, needs

NOT_YET = "No fixed run yet. After the change, run this notebook again with compare_with = the path of the new run."
NAMES = tuple(sorted({name for rule in RULES for name in (*rule.needs, *rule.needs_any, *rule.uses)}))
SAMPLES = "data_samples"
COURSES = {  # column of `job_steps` -> title, unit, factor to that unit
    "loss": ("Training loss", "loss (nats per token)", 1.0),
    "learning_rate": ("Learning rate", "learning rate", 1.0),
    "gradient_norm": ("Gradient norm before clipping", "gradient norm (L2)", 1.0),
    "step_us": ("Step time", "step time (ms)", 1e-3),
}
JOBS = ("earlier", "later")
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

    def over_steps(self, column: str) -> Any:
        """One column of the recorded steps of this run and the one after the fix, in one chart; where the fault begins.

        Args:
            column: of COURSES.
        """
        runs = {f"before: {self.examined.run.run_id}": self.tables}
        if self.fixed is not None:
            runs[f"after: {self.fixed.run.run_id}"] = self.fixed_tables
        own = [f for f in self.findings if f.severity != "info" and f.cause in PLAYBOOKS[self.playbook].causes]
        steps = {name: tables["training_steps"] for name, tables in runs.items() if "training_steps" in tables}
        return _course(self.tables, steps, column, own[0].steps.first if own else None)

    def jobs(self, column: str = "step_us", *, after_fix: bool = False) -> Any:
        """One column of the steps of each job that lies in the run's directory, in one chart.

        Args:
            column: of COURSES.
            after_fix: draw the jobs after the fix beside them.
        """
        if not after_fix or self.fixed is None:
            return _course(self.tables, _jobs(self.tables, self.examined.run.sources), column, None)
        sources = {id(self.tables): self.examined.run.sources, id(self.fixed_tables): self.fixed.run.sources}
        return self.beside(lambda tables: _course(tables, _jobs(tables, sources[id(tables)]), column, None))

    def operators(self) -> Any:
        """Operator types of the earlier and the later job in the run's directory, where both were profiled."""
        return _operators(self.tables, self.examined.run)

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

    def _ipython_display_(self) -> None:
        for name, part in self.parts:
            display(Text(name, quiet=False), part)


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


def _jobs(tables: Tables, sources: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Table `training_steps` of each job in a directory, by name."""
    if "training_steps" not in tables:
        return {}
    jobs = [steps for _, steps in of_all_runs(tables, sources)["training_steps"].groupby("run")]
    names = JOBS if len(jobs) == len(JOBS) else [f"job {i}" for i in range(1, len(jobs) + 1)]
    return dict(zip(names, jobs, strict=True))


@needs("training_steps")
def _course(_tables: Tables, runs: Mapping[str, pd.DataFrame], column: str, onset: int | None) -> Any:
    title, unit, factor = COURSES[column]
    rows = courses(runs, column)
    return courses_chart(rows.assign(value=rows[column] * factor), "value", title=title, unit=unit, onset=onset)


@needs("kernel_totals")
def _operators(tables: Tables, run: Run) -> Any:
    jobs = _jobs(tables, run.sources)
    if len(jobs) != len(JOBS):
        return Text("Operators are compared between two jobs: put logs and operator tables of both into one folder.")
    sources = {i: [str(s) for s in steps["source"].dropna().unique()] for i, steps in enumerate(jobs.values())}
    found = operator_changes(tables["kernel_totals"], run.sources, sources)
    if found is None:
        return Text("Nothing tells which profile belongs to which job: name the files as the logs, before and after.")
    named = found.rename(columns={"op_type": "part", "before_us": JOBS[0], "after_us": JOBS[1]})
    rows = named.melt("part", list(JOBS), "run", "us_per_step")
    return parts_chart(rows, {}, title="Operators in the profiles of both jobs", unit="time in the profile (ms)")
