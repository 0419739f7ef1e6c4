"""A data pipeline in JupyterLab: which operator holds it back, sliders for its settings, a button that measures.

DataPipelineView("runs/demo")            # a recorded pipeline: choose the rank
PipelineTuner({"train": dataset})        # a live one: measure, slide, predict, measure again
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets
import pandas as pd
import traitlets

from workbench.analyses.data_pipeline import wait_curve
from workbench.analyses.pipeline_rates import Machine, Setting, operator_times
from workbench.analyses.pipeline_tuning import predict, recommend
from workbench.analyses.step_time import rank_step_times
from workbench.charts.data_pipeline import (
    batch_waits_chart,
    operator_times_chart,
    operators_chart,
    predictions_chart,
)
from workbench.charts.theme import are_static, prepare_live_charts
from workbench.errors import WorkbenchError
from workbench.findings.data_pipeline import NAMES, pipeline_verdicts
from workbench.run import Run, open_run
from workbench.widgets.sections import Tables, Text, needs
from workbench.widgets.slot import Slot

WIDE = "560px"
NEEDS_LAB = (
    "This page is no live one, so nothing is measured here. Open this notebook in JupyterLab, or run "
    "`workbench data tune package.module:function`."
)


@needs("data_ops")
def verdict(tables: Tables) -> Text:
    """What holds each rank's pipeline back, in a sentence."""
    _operators, found = pipeline_verdicts(tables)
    return Text(" ".join(found["sentence"]), quiet=False)


@needs("data_ops")
def operators(tables: Tables, *, rank_id: int | None = None) -> Any:
    """The operators with their queues."""
    rows, found = pipeline_verdicts(tables)
    return operators_chart(rows, found, rank_id=rank_id)


@needs("data_batches")
def waits(tables: Tables, *, rank_id: int | None = None) -> Any:
    """The wait for each batch."""
    return batch_waits_chart(wait_curve(tables["data_batches"], rank_id=rank_id))


@needs("training_steps", "data_wait_us")
def before_and_after(tables: Tables, after: Tables | None = None) -> Any:
    """Typical step and its wait for data, of a run and where there is one of the run after the fix, as a table."""
    runs = {"before": tables} if after is None else {"before": tables, "after": after}
    known = {n: t["training_steps"] for n, t in runs.items() if "training_steps" in t}
    rows = {name: rank_step_times(steps).median(numeric_only=True) for name, steps in known.items()}
    shown = pd.DataFrame(rows).T[["step_us", "data_wait_us"]] / 1e3
    named = shown.assign(share=shown["data_wait_us"] / shown["step_us"])
    named.columns = ["step, ms", "wait for data, ms", "wait for data, share"]
    return named.style.format({"step, ms": "{:.1f}", "wait for data, ms": "{:.1f}", "wait for data, share": "{:.1%}"})


def tuner(build: Callable[[], Mapping[str, Any]], *, step_ms: float = 0.0) -> Any:
    """The controls to tune a live pipeline, or a line that says why there are none.

    Args:
        build: makes the pipelines, by name.
        step_ms: time of a training step without waiting.
    """
    if are_static():
        return Text(NEEDS_LAB)
    try:
        return PipelineTuner(build(), step_ms=step_ms)
    except WorkbenchError as error:
        return Text(str(error))


class DataPipelineView(ipywidgets.VBox):
    """The recorded pipeline of a run: verdict, operators with their queues, waits. Trait: rank_id."""

    rank_id = traitlets.Int(0)

    def __init__(self, run: Run | str | os.PathLike[str]) -> None:
        prepare_live_charts()
        opened = run if isinstance(run, Run) else open_run(run, quiet=True)
        self.tables = {n: opened.table(n) for n in NAMES if n in opened.tables or n == "data_ops"}
        self.operators, self.found = pipeline_verdicts(self.tables)
        ranks = [int(r) for r in self.found["rank_id"]]
        self._ranks = ipywidgets.Dropdown(options=ranks, description="Rank")
        self._ranks.layout.display = "none" if len(ranks) < 2 else ""
        self._slots = [Slot(), Slot(), Slot()]
        super().__init__([self._ranks, *(slot.widget for slot in self._slots)])
        self.rank_id = ranks[0]
        traitlets.link((self, "rank_id"), (self._ranks, "value"))
        self.observe(lambda _change: self._draw(), "rank_id")
        self._draw()

    def _draw(self) -> None:
        sentence = self.found.set_index("rank_id").loc[self.rank_id, "sentence"]
        verdict, graph, waits = self._slots
        verdict.show(Text(str(sentence), quiet=False))
        graph.show(operators_chart(self.operators, self.found, rank_id=self.rank_id))
        if "data_batches" in self.tables:
            waits.show(batch_waits_chart(wait_curve(self.tables["data_batches"], rank_id=self.rank_id)))


class PipelineTuner(ipywidgets.VBox):
    """A live pipeline: what its operators can do, what a setting would give, and what it gives.

    Traits to read and to set: pipeline, step_ms, prefetch_size. `setting` is what the controls say, `table` all
    settings that were looked at, with what was measured.
    """

    pipeline = traitlets.Unicode()
    step_ms = traitlets.Float(0.0)
    prefetch_size = traitlets.Int(16)

    def __init__(self, pipelines: Mapping[str, Any], *, step_ms: float = 0.0, seconds: float = 0.5) -> None:
        from workbench.probes.pipeline_services import cores

        prepare_live_charts()
        self._pipelines, self._seconds, self._cores = dict(pipelines), seconds, cores()
        self._services: dict[str, Any] = {}
        self.table = pd.DataFrame()
        self._choice = ipywidgets.Dropdown(options=list(self._pipelines), description="Pipeline")
        self._step = ipywidgets.FloatText(value=step_ms, description="Step, ms")
        self._size = ipywidgets.IntSlider(min=1, max=64, value=16, description="Prefetch", continuous_update=False)
        self._look = ipywidgets.Button(description="Measure operators", button_style="primary")
        self._best = ipywidgets.Button(description="Recommended", disabled=True)
        self._try = ipywidgets.Button(description="Measure", disabled=True)
        self._operators = ipywidgets.VBox()
        self._says, self._times, self._settings = Slot(), Slot(), Slot()
        rows = [ipywidgets.HBox([self._choice, self._step, self._look]), self._operators, self._size]
        shown = [slot.widget for slot in (self._says, self._times, self._settings)]
        super().__init__([*rows, ipywidgets.HBox([self._best, self._try]), *shown])
        self.pipeline, self.step_ms = next(iter(self._pipelines)), step_ms
        self._link()
        self._say("Press “Measure operators”: each is run alone for some tenths of a second.")

    @property
    def setting(self) -> Setting:
        """What the controls say."""
        return Setting(
            workers={name: row.children[0].value for name, row in self._rows.items()},
            processes={name: row.children[1].value for name, row in self._rows.items() if len(row.children) > 1},
            prefetch_size=self.prefetch_size,
        )

    def measure_operators(self) -> None:
        """Run each operator of the chosen pipeline alone; then settings can be predicted."""
        from workbench.probes.pipeline_services import measure_services

        self._services[self.pipeline] = measure_services(
            self._pipelines[self.pipeline],
            seconds_each=self._seconds,
            progress=lambda name: self._say(f"Measuring {name} …"),
        )
        self._offer()

    def measure(self) -> None:
        """Apply the setting of the controls to a copy of the pipeline and measure it."""
        from workbench.probes.pipeline_tune import measure_settings

        self._say("Measuring …")
        measured = measure_settings(
            self._pipelines[self.pipeline], [self.setting], step_us=self.step_ms * 1e3, rounds=1
        )
        row = pd.concat([self._predicted(self.setting), measured], axis=1)
        self.table = pd.concat([self.table, row], ignore_index=True)
        self._settings.show(predictions_chart(self.table))
        self._predict()

    def use_recommended(self) -> None:
        """Set the controls to the cheapest setting that feeds the step."""
        services = self._services[self.pipeline]
        best = recommend(services.table, services.intervals_us, self._machine, prefetch_size=self.prefetch_size)[0]
        for name, row in self._rows.items():
            row.children[0].value = best.workers.get(name, row.children[0].value)
            if len(row.children) > 1:
                row.children[1].value = best.processes.get(name, row.children[1].value)
        self.prefetch_size = best.prefetch_size or self.prefetch_size

    @property
    def _machine(self) -> Machine:
        return Machine(cores=self._cores, step_us=self.step_ms * 1e3)

    def _link(self) -> None:
        self._rows: dict[str, ipywidgets.HBox] = {}
        traitlets.link((self, "pipeline"), (self._choice, "value"))
        traitlets.link((self, "step_ms"), (self._step, "value"))
        traitlets.link((self, "prefetch_size"), (self._size, "value"))
        self._look.on_click(lambda _button: self._guarded(self.measure_operators))
        self._try.on_click(lambda _button: self._guarded(self.measure))
        self._best.on_click(lambda _button: self._guarded(self.use_recommended))
        self.observe(lambda _change: self._offer(), "pipeline")
        self.observe(lambda _change: self._predict(), ["step_ms", "prefetch_size"])

    def _guarded(self, action: Any) -> None:
        try:
            action()
        except WorkbenchError as error:
            self._say(str(error))

    def _offer(self) -> None:
        """Controls for the operators that were measured."""
        services = self._services.get(self.pipeline)
        self._rows, self.table = {}, pd.DataFrame()
        rows = (
            []
            if services is None
            else services.table[services.table["can_have_workers"].astype(bool)].to_dict("records")
        )
        for row in rows:
            slider = ipywidgets.IntSlider(
                min=1, max=max(self._cores, int(row["workers"])), value=int(row["workers"]), description=row["name"],
                continuous_update=False, layout=ipywidgets.Layout(width=WIDE),
            )  # fmt: skip
            kinds = [ipywidgets.Checkbox(value=bool(row["processes"]), description="processes", indent=False)]
            self._rows[row["name"]] = ipywidgets.HBox([slider, *(kinds if pd.notna(row["process_us"]) else [])])
            for control in self._rows[row["name"]].children:
                control.observe(lambda _change: self._predict(), "value")
        self._operators.children = list(self._rows.values())
        self._best.disabled = self._try.disabled = services is None
        self._predict()

    def _predicted(self, setting: Setting) -> pd.DataFrame:
        services = self._services[self.pipeline]
        return predict(services.table, services.intervals_us, self._machine, [setting])

    def _predict(self) -> None:
        services = self._services.get(self.pipeline)
        if services is None:
            return
        row = self._predicted(self.setting).iloc[0]
        measured = self.table[self.table["setting"] == row["setting"]] if len(self.table) else self.table
        seen = f" Measured: {measured['measured_us'].iloc[-1] / 1e3:.2f} ms." if len(measured) else ""
        self._say(
            f"Predicted: a batch every {row['batch_us'] / 1e3:.2f} ms ({row['low_us'] / 1e3:.2f} to "
            f"{row['high_us'] / 1e3:.2f}), set by {row['bound']}; full queues hold {row['queue_bytes'] / 2**20:.1f} "
            f"MiB.{seen}"
        )
        times = operator_times(services.table, self.setting)
        self._times.show(operator_times_chart(times, batch_us=float(row["batch_us"]), step_us=self.step_ms * 1e3))

    def _say(self, text: str) -> None:
        self._says.show(Text(text, quiet=False))
