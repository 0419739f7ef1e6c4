"""The explorer's rows of controls: run, checkpoint, subset, steps, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ipywidgets

from workbench.readers.run_list import list_runs
from workbench.run import Run

LAST = "last evaluated"
ALL = "all subsets"


class Pickers:
    """The controls and what can be chosen with them."""

    def __init__(self, run: Run) -> None:
        self.run = ipywidgets.Dropdown(
            options=run_places(run), value=str(run.root), description="Run", layout=_wide(330)
        )
        self.path = ipywidgets.Text(placeholder="path of another run", continuous_update=False, layout=_wide(240))
        self.checkpoint = ipywidgets.Dropdown(options=[LAST], value=LAST, description="Checkpoint", layout=_wide(300))
        self.subset = ipywidgets.Dropdown(options=[ALL], value=ALL, description="Subset", layout=_wide(270))
        self.ranks = ipywidgets.SelectMultiple(options=[], description="Ranks", rows=4, layout=_wide(230))
        self.rank = ipywidgets.Dropdown(options=[0], value=0, description="One rank", layout=_wide(170))
        self.steps = ipywidgets.IntRangeSlider(
            min=0, max=1, value=(0, 0), description="Steps", continuous_update=False, layout=_wide(500)
        )
        self.all_steps = ipywidgets.Button(description="All steps", layout=_wide(100))
        self._ranks = ipywidgets.HBox([self.ranks, self.rank])
        self.widget = ipywidgets.VBox(
            [
                ipywidgets.HBox([self.run, self.checkpoint, self.subset]),
                ipywidgets.HBox([self.steps, self.all_steps, self.path]),
                self._ranks,
            ]
        )

    def show_run(self, run: Run) -> None:
        """Show which run is open; one that was not among the choices becomes one."""
        path = str(run.root)
        if path not in [place for _name, place in self.run.options]:
            self.run.options = [*self.run.options, (run.run_id, path)]
        self.run.value = path

    def offer(
        self, ranks: list[int], steps: tuple[int, int], checkpoints: Sequence[str], subsets: Sequence[str]
    ) -> None:
        """Set what can be chosen for a run. What was chosen is kept where it can be."""
        for control, options in (
            (self.checkpoint, [LAST, *checkpoints]), (self.subset, [ALL, *subsets]), (self.rank, ranks or [0])
        ):  # fmt: skip
            chosen = control.value
            if list(control.options) != list(options):
                control.options = options
                control.value = chosen if chosen in options else options[0]
        if list(self.ranks.options) != ranks:
            self.ranks.options = ranks
        self._ranks.layout.display = "none" if len(ranks) < 2 else ""
        with self.steps.hold_trait_notifications():
            self.steps.max = max(steps[1], self.steps.min)
            self.steps.min = steps[0]
            self.steps.max = max(steps[1], steps[0] + 1)


def run_places(run: Run) -> list[tuple[str, str]]:
    """Names and paths of the recorded runs beside a run, and of the run itself."""
    runs = list_runs(run.root.resolve().parent)
    places = {str(Path(p).resolve()): (n, p) for n, p in zip(runs["run_id"], runs["path"], strict=True)}
    places[str(run.root.resolve())] = (run.run_id, str(run.root))
    return list(places.values())


def _wide(pixels: int) -> ipywidgets.Layout:
    return ipywidgets.Layout(width=f"{pixels}px")
