"""Parts of the evaluation notebooks: each takes the run's tables, and says what is missing where it shows nothing."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from workbench.analyses.checkpoint_choice import rank_checkpoints
from workbench.analyses.cross_layer import cross_layer_readings
from workbench.analyses.evaluation import checkpoints_in_order
from workbench.analyses.position_loss import loss_by_position
from workbench.analyses.protocol import comparable_samples, protocol_labels
from workbench.analyses.sampling_mix import sampling_shares
from workbench.analyses.subset_causes import (
    change_by_length,
    coverage_changes,
    mix_changes,
    recorded_mix_changes,
    retokenized,
)
from workbench.analyses.subset_sampling import visible_changes
from workbench.charts import subset_course as charts
from workbench.charts.tables import STYLES
from workbench.findings.diagnosis import run_tables
from workbench.findings.subset_course import subset_drops, worth_saying
from workbench.run import Run
from workbench.tables import DATA_MIX
from workbench.widgets.sections import Tables, Text, needs

NAMES = ("evals", "eval_samples", "data_mix", "sample_ids", "training_steps", "settings")
SHOWN = ("kind", "subset", "metric", "before", "latest", "low", "high", "p_holm", "n", "last_good_step",
         "first_bad_step")  # fmt: skip
NOT_FALLEN = "No subset is known to have fallen."
PLANNED_SAMPLES = (100, 200, 400)
WRAPPED = {"selector": "td", "props": "white-space:normal;vertical-align:top"}
RANKED = ("checkpoint", "step", "mean_loss", "worst_subset", "worst_subset_excess", "unrest", "score", "in_best_set",
          "recommended", "why")  # fmt: skip


def tables_of(run: Run) -> dict[str, pd.DataFrame]:
    """The tables that the parts use."""
    return run_tables(run, NAMES)


def drops(tables: Tables) -> Any:
    """Every subset's largest drop, the surest first."""
    courses = subset_drops(tables)
    if courses.empty:
        return Text("No subset was evaluated at least twice: evaluate checkpoints, or give a CSV of scores.")
    return _table(courses.sort_values("p_holm", kind="stable")[list(SHOWN)])


@needs("evals")
def courses(tables: Tables) -> Any:
    """The courses of the metric of the surest drop (of the first metric, without one), as a chart."""
    every = subset_drops(tables)
    if every.empty:
        return Text("No subset was evaluated at least twice.")
    fallen = worth_saying(every)
    lead = (fallen if len(fallen) else every).iloc[0]
    same = every[(every["kind"] == lead["kind"]) & (every["metric"] == lead["metric"])]
    same = same.assign(fallen=same["subset"].isin(fallen["subset"]))
    scores = tables["evals"][tables["evals"]["kind"] == lead["kind"]]
    steps = tuple(_mix_changes(tables, str(lead["subset"]))["step"].unique())
    return charts.subset_course_chart(scores, same, metric=str(lead["metric"]), mix_steps=steps)


def suspect(tables: Tables, subset: str | None = None) -> str | None:
    """The subset to look at: the one named, else the surest drop; None where nothing fell."""
    fallen = worth_saying(subset_drops(tables))
    return subset or (str(fallen["subset"].iloc[0]) if len(fallen) else None)


def mix(tables: Tables) -> Any:
    """The sampling mix over training: as planned, else as the used samples tell."""
    if "data_mix" in tables:
        planned = tables["data_mix"].rename(columns={"from_step": "step", "weight_share": "share"})
        last = planned[planned["step"] == planned["step"].max()].assign(step=_last_step(tables))
        return charts.mix_chart(pd.concat([planned, last]))
    if "sample_ids" in tables:
        used = sampling_shares(tables["sample_ids"]).rename(columns={"first_step": "step", "subset": "source"})
        return charts.mix_chart(used)
    return Text("The sampling mix is not recorded: give a CSV of from_step, source, weight, or Recorder(samples=...).")


def mix_change(tables: Tables, subset: str | None) -> Any:
    """What changed in the mix, and when."""
    changes = _mix_changes(tables, subset or "")
    if len(changes):
        return _table(changes)
    is_recorded = "data_mix" in tables or "sample_ids" in tables
    return Text("The mix did not change." if is_recorded else "Whether the mix changed is not recorded.")


def lengths(tables: Tables, subset: str | None) -> Any:
    """The subset's change by sample length."""
    row = _row(tables, subset)
    if row is None or "eval_samples" not in tables:
        return Text(NOT_FALLEN if "eval_samples" in tables else "No per-sample scores are recorded.")
    samples = tables["eval_samples"]
    own = samples[samples["checkpoint"].isna() == (row["kind"] == "inline")]
    parts = change_by_length(own, str(subset), before_step=row["last_good_step"], after_step=row["last_step"])
    return _table(parts) if len(parts) else Text("All samples have the same length: length explains nothing here.")


def tokens(tables: Tables, subset: str | None) -> Any:
    """Whether the same samples are cut into other tokens than before, and the coverage figures of the subset."""
    row = _row(tables, subset)
    if row is None:
        return Text(NOT_FALLEN)
    changed = retokenized(tables["eval_samples"], str(subset)) if "eval_samples" in tables else None
    if changed:
        return _table(pd.DataFrame([changed]))
    figures = coverage_changes(tables["evals"], str(subset), before_step=row["earliest_step"],
                               after_step=row["last_step"])  # fmt: skip
    if len(figures):
        return _table(figures)
    return Text("Token counts of the same samples did not change, and no coverage figures are recorded.")


@needs("eval_samples")
def choice(tables: Tables) -> Any:
    """The ranking of the checkpoints as a chart."""
    ranked = _ranked(tables)
    return charts.choice_chart(ranked) if isinstance(ranked, pd.DataFrame) else ranked


@needs("eval_samples")
def ranking(tables: Tables) -> Any:
    """The ranking of the checkpoints as a table."""
    ranked = _ranked(tables)
    return _table(ranked[list(RANKED)]) if isinstance(ranked, pd.DataFrame) else ranked


def _ranked(tables: Tables) -> Any:
    samples, _ = comparable_samples(tables["eval_samples"], tables.get("evals"))
    if not samples["checkpoint"].notna().any():
        return Text("No checkpoint was evaluated: `workbench report RUN` does that.")
    return rank_checkpoints(samples, tables.get("training_steps"))


@needs("evals")
def protocols(tables: Tables) -> Any:
    """What each evaluation did and skipped."""
    return _table(protocol_labels(tables["evals"])[["kind", "checkpoint", "step", "label", "mindspore", "data"]])


@needs("eval_samples")
def visible(tables: Tables) -> Any:
    """How small a change the samples show, from the last two checkpoints."""
    order = checkpoints_in_order(tables["eval_samples"])
    if len(order) < 2:
        return Text("It takes two evaluated checkpoints to say how small a change is visible.")
    plan = visible_changes(tables["eval_samples"], order[-2], order[-1], samples=PLANNED_SAMPLES)
    return _table(plan[["subset", "n", "documents", "visible_change", "sentence"]])


@needs("training_steps")
def layers(tables: Tables) -> Any:
    """What loss, gradients, steps and waits say together."""
    readings = cross_layer_readings(tables["training_steps"])
    return _table(readings) if len(readings) else Text("All signals stay level: nothing to read across the layers.")


def _table(frame: pd.DataFrame) -> Styler:
    """A table with few digits and without row numbers."""
    shown = frame.rename(columns={c: c.replace("_", " ") for c in frame if c != "p_holm"})
    small = {c: "{:.2g}" for c in ("p value", "p_holm") if c in shown}
    style = shown.style.format(precision=4, na_rep="")
    style = style.format(small, na_rep="", subset=list(small)) if small else style
    return style.hide(axis="index").set_table_styles([*STYLES, WRAPPED])


@needs("eval_samples", "position_losses")
def positions(tables: Tables) -> Any:
    """Loss by sample length and place in the sample, of the last evaluation."""
    samples = tables["eval_samples"]
    last = samples[samples["step"] == samples.loc[samples["position_losses"].notna(), "step"].max()]
    return charts.position_chart(loss_by_position(last))


def _row(tables: Tables, subset: str | None) -> pd.Series | None:
    every = subset_drops(tables)
    own = every[every["subset"] == subset].sort_values("p_holm")
    return own.iloc[0] if len(own) else None


def _mix_changes(tables: Tables, subset: str) -> pd.DataFrame:
    planned = mix_changes(tables["data_mix"] if "data_mix" in tables else DATA_MIX.empty(), subset)
    if len(planned) or "sample_ids" not in tables:
        return planned
    return recorded_mix_changes(tables["sample_ids"], subset)


def _last_step(tables: Tables) -> int:
    steps = [int(t["step"].max()) for n, t in tables.items() if n in ("evals", "training_steps") and len(t)]
    return max([int(tables["data_mix"]["from_step"].max()), *steps])
