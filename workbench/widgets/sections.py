"""Parts of a page: analyses and charts over a run's tables, or a line that says what is missing and how to collect it.

The report, the start notebook and the explorer are made of the same parts. Each takes the tables of a run by name (as
`tables_of` returns them) and gives something that Jupyter shows.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
from pandas.io.formats.style import Styler

from workbench.analyses import curves, evaluation, step_time, summaries, training
from workbench.analyses.downsample import downsample
from workbench.analyses.settings import changed_settings
from workbench.charts import evaluation as evaluation_charts
from workbench.charts import tables as styled
from workbench.charts import training as charts
from workbench.charts.theme import AnyChart, half_width
from workbench.findings.diagnosis import Diagnosis, run_tables
from workbench.findings.shown import with_code
from workbench.findings.verdict import Verdict
from workbench.findings.verdict import verdict as layer_verdict
from workbench.readers.run_list import previous_run
from workbench.run import Run, open_run
from workbench.tables import TABLES

NAMES = ("training_steps", "parameter_groups", "events", "evals", "eval_samples", "settings")
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Text:
    """A line of text in a page."""

    text: str
    quiet: bool = True

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<p style='color:{'#57606a' if self.quiet else '#24292f'}'>{with_code(self.text)}</p>"


@dataclass(frozen=True, repr=False)
class Missing(Text):
    """A line that says what is missing and how to collect it."""

    table: str = ""


Part: TypeAlias = AnyChart | alt.HConcatChart | Styler | Verdict | Diagnosis | Text


def tables_of(run: Run, *, checkpoint: str | None = None) -> dict[str, pd.DataFrame]:
    """The tables that the parts use, up to the step of `checkpoint` where one is given."""
    return run_tables(run, NAMES, checkpoint=checkpoint)


def heading(run: Run, tables: Tables, checkpoint: str | None = None) -> Text:
    """Which run, which checkpoint, up to which step, on what."""
    steps = tables["training_steps"]["step"].max() if "training_steps" in tables else None
    settings = (
        dict(zip(tables["settings"]["name"], tables["settings"]["value"], strict=True)) if "settings" in tables else {}
    )
    total = settings.get("steps_total")
    parts = [
        f"Run {run.run_id}",
        f"checkpoint {checkpoint}" if checkpoint else "",
        "" if steps is None else f"step {steps}" + (f" of {total}" if total else ""),
        f"{len(run.ranks)} rank(s)" if run.ranks else "",
        settings.get("device_target", ""),
        f"MindSpore {settings['versions.mindspore']}" if "versions.mindspore" in settings else "",
    ]
    return Text(" · ".join(str(p) for p in parts if p), quiet=False)


def verdict(diagnosis: Diagnosis, tables: Tables, checkpoint: str | None = None) -> Verdict:
    """One line per layer."""
    return layer_verdict(diagnosis, tables, checkpoint=checkpoint)


def needs(table: str, column: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a part say what is missing where the run has no rows of `table`, or no value in its `column`."""

    def wrap(part: Callable[..., Any]) -> Callable[..., Any]:
        def checked(tables: Tables, *arguments: Any, **options: Any) -> Any:
            if table not in tables or tables[table].empty:
                return Missing(f"No rows of table {table}. To have them: {TABLES[table].fix}.", table=table)
            if column is not None and not tables[table][column].notna().any():
                meaning = next(c.meaning for c in TABLES[table].columns if c.name == column)
                return Missing(f"Not recorded: {column} ({meaning}). To have it: {TABLES[table].fix}.", table=table)
            return part(tables, *arguments, **options)

        checked.__doc__, checked.__name__ = part.__doc__, part.__name__
        return checked

    return wrap


@needs("eval_samples", "checkpoint")
def quality(tables: Tables, checkpoint: str | None = None) -> Part:
    """Metrics per subset with intervals, and paired changes, as a table."""
    samples = tables["eval_samples"]
    order = evaluation.checkpoints_in_order(samples)
    if checkpoint is not None and checkpoint not in order:
        return _not_evaluated(checkpoint)
    return styled.quality_table(summaries.quality_summary(samples, checkpoint or order[-1]))


@needs("evals")
def quality_over_time(tables: Tables, checkpoint: str | None = None, *, metric: str = "loss") -> Part:
    """One metric per subset over the checkpoints."""
    evals = tables["evals"].dropna(subset=["step"])
    of_checkpoints = evals[evals["checkpoint"].notna()]
    evals = of_checkpoints if len(of_checkpoints) else evals[evals["kind"] == "inline"]
    if metric not in set(evals["metric"]):
        return Text(f"Nothing of a known step was evaluated for {metric}. Steps come from the Recorder's events.")
    return evaluation_charts.subset_chart(evals, metric, highlight=checkpoint)


@needs("eval_samples", "checkpoint")
def changes(tables: Tables, checkpoint: str | None = None, *, metric: str = "loss") -> Part:
    """Paired changes per subset against the previous and the best checkpoint."""
    samples = tables["eval_samples"]
    order = evaluation.checkpoints_in_order(samples)
    if checkpoint is not None and checkpoint not in order:
        return _not_evaluated(checkpoint)
    found = evaluation.changes_from_references(samples, checkpoint or order[-1], metric=metric)
    if found.empty:
        return Text("The first evaluated checkpoint: there is none to compare with.")
    return evaluation_charts.changes_chart(found, metric=metric)


@needs("training_steps")
def stability(tables: Tables) -> Part:
    """State of loss, gradients and overflow, as a table."""
    summary = summaries.stability_summary(tables["training_steps"], tables.get("parameter_groups"))
    return styled.measures_table(summary)


@needs("training_steps", "loss")
def loss(tables: Tables) -> Part:
    """Training loss over steps."""
    return charts.loss_chart(downsample(training.job_steps(tables["training_steps"]), ["loss"]))


@needs("training_steps", "loss")
def course(tables: Tables) -> Part:
    """Training loss beside the gradient norm."""
    half = [part(tables) for part in (loss, gradient_norm)]
    shown = [c.properties(width=half_width()) for c in half if not isinstance(c, Text)]
    return alt.hconcat(*shown)


@needs("training_steps", "gradient_norm")
def gradient_norm(tables: Tables) -> Part:
    """Gradient norm over steps, with overflow marks."""
    return charts.gradient_norm_chart(downsample(training.job_steps(tables["training_steps"]), ["gradient_norm"]))


@needs("training_steps", "learning_rate")
def learning_rate(tables: Tables) -> Part:
    """Learning rate over steps."""
    return charts.learning_rate_chart(downsample(training.job_steps(tables["training_steps"]), ["learning_rate"]))


@needs("parameter_groups", "gradient_parameter_ratio")
def group_ratios(tables: Tables) -> Part:
    """Gradient to parameter ratio per group over steps."""
    return charts.group_ratio_chart(curves.group_ratio_curve(tables["parameter_groups"]))


@needs("training_steps")
def efficiency(tables: Tables) -> Part:
    """Step time, throughput, waits and memory, as a table."""
    return styled.measures_table(summaries.efficiency_summary(tables["training_steps"], tables.get("events")))


@needs("training_steps", "step_us")
def step_times(tables: Tables) -> Part:
    """Wall time of each step, stalls coloured by their cause."""
    steps = tables["training_steps"]
    slowest = step_time.timed_steps(steps).groupby("step", as_index=False)["wall_us"].max()
    stalls = step_time.job_outliers(step_time.step_outliers(steps, tables.get("events")))
    return charts.step_time_chart(downsample(slowest, ["wall_us"]), stalls)


@needs("training_steps", "step_us")
def speed(tables: Tables) -> Part:
    """Distribution of the step time beside the throughput over steps."""
    steps = tables["training_steps"]
    histogram = charts.step_time_histogram(curves.step_time_histogram(steps))
    rates = curves.throughput_curve(steps)
    if rates.empty:
        return histogram
    return alt.hconcat(*(c.properties(width=half_width()) for c in (histogram, charts.tokens_chart(rates))))


@needs("training_steps", "step_us")
def time_shares(tables: Tables) -> Part:
    """Where the wall time went, per rank."""
    return charts.time_shares_chart(step_time.time_shares(tables["training_steps"], tables.get("events")))


@needs("training_steps")
def memory(tables: Tables) -> Part:
    """Memory over steps."""
    columns = tables["training_steps"][list(training.MEMORY_COLUMNS)]
    if not columns.notna().any(axis=None):
        return Missing(f"Memory was not recorded. To have it: {TABLES['training_steps'].fix}.", table="training_steps")
    return charts.memory_chart(downsample(training.job_steps(tables["training_steps"]), list(training.MEMORY_COLUMNS)))


def configuration(run: Run, tables: Tables, *, reference: str | None = None) -> Part:
    """Settings that differ from the run before this one in the same folder (or from `reference`)."""
    other = reference or previous_run(run.root)
    if other is None or "settings" not in tables:
        return Text("No earlier recorded run beside this one to compare the configuration with.")
    earlier = open_run(other, quiet=True)
    if "settings" not in earlier.tables:
        return Text(f"Run {earlier.run_id} has no recorded configuration to compare with.")
    changed = changed_settings(earlier.table("settings"), tables["settings"])
    if changed.empty:
        return Text(f"Nothing changed against run {earlier.run_id}: same configuration, seeds, data and versions.")
    return styled.changes_table(changed).set_caption(html.escape(f"Changed against run {earlier.run_id}"))


def next_steps(run: Run, diagnosis: Diagnosis, *, is_open: bool = False) -> Text:
    """What to open next; `is_open` in the start notebook, which need not be opened once more."""
    playbooks = list(dict.fromkeys(f.playbook for f in diagnosis.causes))
    words = f" Playbooks of what was found: {', '.join(playbooks)}." if playbooks else ""
    start = "" if is_open else f"`workbench open {run.root}` opens the start notebook of this run in JupyterLab. "
    return Text(
        f"{start}The notebooks in the folders beside {'this one' if is_open else 'it'} are filled in for this run: "
        f"reports/checkpoint for one checkpoint, explore and troubleshoot for the rest.{words}",
        quiet=False,
    )


def _not_evaluated(checkpoint: str) -> Text:
    return Text(f"Checkpoint {checkpoint} has no evaluation. To have it: {TABLES['eval_samples'].fix}.")
