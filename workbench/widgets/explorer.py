"""The explorer: choose a run, ranks, steps and a checkpoint; tabs of tables and charts follow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd
import traitlets

from workbench.analyses.evaluation import checkpoints_in_order
from workbench.analyses.selection import select
from workbench.charts.theme import prepare_live_charts
from workbench.errors import WorkbenchError
from workbench.findings.diagnosis import Diagnosis, diagnose
from workbench.readers.run_list import list_runs
from workbench.run import Run, open_run
from workbench.widgets import sections
from workbench.widgets.slot import Slot

LAST = "last evaluated"


@dataclass(frozen=True)
class Shown:
    """What a tab's parts are made of: the filtered tables, the whole run's diagnosis, the chosen checkpoint."""

    tables: Mapping[str, pd.DataFrame]
    diagnosis: Diagnosis
    checkpoint: str | None


Part = Callable[[Shown], Any]
TABS: dict[str, dict[str, Part]] = {
    "Overview": {
        "verdict": lambda s: sections.verdict(s.diagnosis, s.tables, s.checkpoint),
        "causes": lambda s: s.diagnosis,
        "loss": lambda s: sections.loss(s.tables),
        "step time": lambda s: sections.step_times(s.tables),
        "loss per subset": lambda s: sections.quality_over_time(s.tables, s.checkpoint),
    },
    "Training": {
        "stability": lambda s: sections.stability(s.tables),
        "loss": lambda s: sections.loss(s.tables),
        "gradient norm": lambda s: sections.gradient_norm(s.tables),
        "ratios": lambda s: sections.group_ratios(s.tables),
        "learning rate": lambda s: sections.learning_rate(s.tables),
        "efficiency": lambda s: sections.efficiency(s.tables),
        "step time": lambda s: sections.step_times(s.tables),
        "speed": lambda s: sections.speed(s.tables),
        "where the time went": lambda s: sections.time_shares(s.tables),
        "memory": lambda s: sections.memory(s.tables),
    },
    "Evaluation": {
        "quality": lambda s: sections.quality(s.tables, s.checkpoint),
        "changes": lambda s: sections.changes(s.tables, s.checkpoint),
        "loss per subset": lambda s: sections.quality_over_time(s.tables, s.checkpoint),
        "perplexity per subset": lambda s: sections.quality_over_time(s.tables, s.checkpoint, metric="perplexity"),
        "accuracy per subset": lambda s: sections.quality_over_time(
            s.tables, s.checkpoint, metric="next_token_accuracy"
        ),
    },
}
BRUSHED = frozenset({"loss", "step time"})  # dragging over these sets the range of steps


class Explorer(ipywidgets.VBox):
    """Explore a run in JupyterLab: `explorer = workbench.explore("runs/demo"); explorer`.

    Traits to read and to set: run_path, ranks, steps, checkpoint, tab. `tables` is always what is on show.
    """

    run_path = traitlets.Unicode()
    ranks = traitlets.Tuple()
    steps = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0))
    checkpoint = traitlets.Unicode(LAST)
    tab = traitlets.Unicode(next(iter(TABS)))
    tables = traitlets.Dict()

    def __init__(self, run: Run) -> None:
        prepare_live_charts()
        self.run = run
        self._stale: set[str] = set()
        self._ready = False
        self._slots = {tab: {name: self._slot(name) for name in parts} for tab, parts in TABS.items()}
        self._pickers = _Pickers(run)
        self._tabs = ipywidgets.Tab(
            children=[ipywidgets.VBox([s.widget for s in slots.values()]) for slots in self._slots.values()],
            titles=list(TABS),
        )
        self._problem = ipywidgets.HTML()
        super().__init__([self._pickers.widget, self._problem, self._tabs])
        self.run_path = str(run.root)
        self._link()

    def show_all_steps(self) -> None:
        """Take the filter on steps back."""
        steps = self._all["training_steps"]["step"] if "training_steps" in self._all else pd.Series([0])
        self.steps = (int(steps.min()), int(steps.max()))

    def _link(self) -> None:
        pickers = self._pickers
        traitlets.link((self, "run_path"), (pickers.run, "value"))
        traitlets.link((self, "steps"), (pickers.steps, "value"))
        traitlets.link((self, "checkpoint"), (pickers.checkpoint, "value"))
        traitlets.link((self, "ranks"), (pickers.ranks, "value"))
        pickers.all_steps.on_click(lambda _button: self.show_all_steps())
        self._tabs.observe(self._tab_clicked, "selected_index")

    @traitlets.observe("run_path")
    def _open(self, _change: object) -> None:
        try:
            run = self.run if self.run_path == str(self.run.root) else open_run(self.run_path, quiet=True)
            tables, diagnosis = sections.tables_of(run), diagnose(run)
        except WorkbenchError as error:
            self._problem.value = sections.Text(str(error), quiet=False)._repr_html_()
            return
        self._problem.value = ""
        self._ready = False
        self.run, self._all, self._diagnosis = run, tables, diagnosis
        samples = self._all.get("eval_samples")
        self._pickers.offer(self.run.ranks, self._all.get("training_steps"), samples)
        self.ranks, self.checkpoint = tuple(self.run.ranks), LAST
        self.show_all_steps()
        self._ready = True
        self._filter(None)

    @traitlets.observe("ranks", "steps", "checkpoint")
    def _filter(self, _change: object) -> None:
        if self._ready:
            self.tables = select(self._all, ranks=self.ranks or None, steps=self.steps)
            self._stale = set(TABS)
            self._draw()

    @traitlets.observe("tab")
    def _draw(self, _change: object = None) -> None:
        self._tabs.selected_index = list(TABS).index(self.tab)
        if not self._ready or self.tab not in self._stale:
            return
        self._stale.discard(self.tab)
        checkpoint = None if self.checkpoint == LAST else self.checkpoint
        shown = Shown(self.tables, self._diagnosis, checkpoint)
        for name, part in TABS[self.tab].items():
            self._slots[self.tab][name].show(part(shown))

    def _tab_clicked(self, change: Any) -> None:
        self.tab = list(TABS)[change.new]

    def _slot(self, name: str) -> Slot:
        return Slot(brushed=self._brushed if name in BRUSHED else None)

    def _brushed(self, first: float, last: float) -> None:
        self.steps = (round(first), max(round(last), round(first) + 1))


class _Pickers:
    """The row of controls."""

    def __init__(self, run: Run) -> None:
        def wide() -> ipywidgets.Layout:
            return ipywidgets.Layout(width="330px")

        runs = list_runs(run.root.resolve().parent)
        places = {str(Path(p).resolve()): (name, p) for name, p in zip(runs["run_id"], runs["path"], strict=True)}
        places[str(run.root.resolve())] = (run.run_id, str(run.root))
        self.run = ipywidgets.Dropdown(
            options=list(places.values()), value=str(run.root), description="Run", layout=wide()
        )
        self.checkpoint = ipywidgets.Dropdown(options=[LAST], value=LAST, description="Checkpoint", layout=wide())
        self.ranks = ipywidgets.SelectMultiple(options=[], description="Ranks", rows=3, layout=wide())
        self.steps = ipywidgets.IntRangeSlider(
            min=0,
            max=1,
            value=(0, 0),
            description="Steps",
            continuous_update=False,
            layout=ipywidgets.Layout(width="560px"),
        )
        self.all_steps = ipywidgets.Button(description="All steps", layout=ipywidgets.Layout(width="100px"))
        self.widget = ipywidgets.VBox(
            [
                ipywidgets.HBox([self.run, self.checkpoint, self.ranks]),
                ipywidgets.HBox([self.steps, self.all_steps]),
            ]
        )

    def offer(self, ranks: list[int], steps: pd.DataFrame | None, samples: pd.DataFrame | None) -> None:
        """Set what can be chosen for a run."""
        checkpoints = [] if samples is None else checkpoints_in_order(samples)
        self.checkpoint.options = [LAST, *checkpoints[::-1]]
        self.ranks.options = ranks
        self.ranks.layout.display = "none" if len(ranks) < 2 else ""
        first, last = (0, 0) if steps is None else (int(steps["step"].min()), int(steps["step"].max()))
        with self.steps.hold_trait_notifications():
            self.steps.max, self.steps.min = max(last, self.steps.min), first
            self.steps.max = max(last, first + 1)


def explore(run: Run | str | os.PathLike[str]) -> Explorer:
    """The explorer of a run, to be shown as the last line of a cell in JupyterLab.

    Args:
        run: an opened run, or a path to open.
    """
    return Explorer(run if isinstance(run, Run) else open_run(run, quiet=True))
