"""Choose checkpoints, subsets and a metric -> scores and paired changes; evaluate what is missing by a button."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd
import traitlets

from workbench.analyses.evaluation import METRICS, checkpoints_in_order, paired_changes, subset_metrics
from workbench.analyses.protocol import comparable_samples
from workbench.charts.evaluation import changes_chart, subset_chart
from workbench.errors import UnknownContentError
from workbench.metrics import evaluation_title
from workbench.processes import run_child
from workbench.readers.checkpoints import find_checkpoints
from workbench.run import open_run
from workbench.widgets.sections import Text
from workbench.widgets.slot import Slot

EVALUATOR = "workbench.probes.evaluate"
SIGNIFICANT = 0.05
LATER = "Choose two different checkpoints to see what changed between them."


class _CancelledError(Exception):
    """The user pressed Cancel."""


class EvaluationExplorer(ipywidgets.VBox):
    """Scores of chosen subsets over the checkpoints, and paired changes from `reference` to `checkpoint`.

    `changes` is always the table on show. Checkpoints that were not evaluated yet can be, in a process of their own at
    low priority, one at a time; Cancel ends it and leaves nothing half.

    Args:
        run_path: run directory.
        evaluator: module run as `python -m MODULE RUN --checkpoint FILE [--step N]`.
    """

    checkpoint = traitlets.Unicode(None, allow_none=True)
    reference = traitlets.Unicode(None, allow_none=True)
    metric = traitlets.Unicode("loss")
    subsets = traitlets.Tuple()
    changes = traitlets.Instance(pd.DataFrame)
    is_evaluating = traitlets.Bool(default_value=False)

    def __init__(self, run_path: str | os.PathLike[str], *, evaluator: str = EVALUATOR) -> None:
        self._run_path, self._evaluator = Path(run_path), evaluator
        self._samples, self._left_out = pd.DataFrame(), pd.DataFrame()
        self._cancel, self._thread = threading.Event(), threading.Thread()
        self._scores, self._changes, self._status = Slot(), Slot(), ipywidgets.HTML()
        self._choices = {
            "checkpoint": ipywidgets.Dropdown(description="checkpoint"),
            "reference": ipywidgets.Dropdown(description="against"),
            "metric": ipywidgets.Dropdown(description="metric", options=[m for m in METRICS if m != "perplexity"]),
            "subsets": ipywidgets.SelectMultiple(description="subsets", rows=5),
        }
        self._missing = ipywidgets.Dropdown(description="not evaluated")
        self._start = ipywidgets.Button(description="Evaluate", icon="play")
        self._stop = ipywidgets.Button(description="Cancel", icon="stop", disabled=True)
        self._start.on_click(lambda _button: self.evaluate(self._missing.value))
        self._stop.on_click(lambda _button: self.cancel())
        choosing = ipywidgets.HBox([ipywidgets.VBox(list(self._choices.values())[:3]), self._choices["subsets"]])
        running = ipywidgets.HBox([self._missing, self._start, self._stop, self._status])
        super().__init__([choosing, running, self._scores.widget, self._changes.widget], changes=pd.DataFrame())
        self.refresh()
        for name, choice in self._choices.items():
            traitlets.link((self, name), (choice, "value"))
        self.observe(self._redraw, ["checkpoint", "reference", "metric", "subsets"])
        self._redraw()

    def refresh(self) -> None:
        """Read the run again: new evaluations, new checkpoint files."""
        run = open_run(self._run_path, quiet=True)
        evals = run.table("evals") if run.has("evals") else None
        samples = run.table("eval_samples") if run.has("eval_samples") else pd.DataFrame()
        if len(samples):
            samples, self._left_out = comparable_samples(samples.dropna(subset=["checkpoint"]), evals)
        self._samples = samples
        names = checkpoints_in_order(samples) if len(samples) else []
        known = sorted(samples["subset"].unique()) if len(samples) else []
        before = self.checkpoint, self.reference, self.subsets  # new options reset what is chosen
        for choice in ("checkpoint", "reference"):
            self._choices[choice].options = names
        self._choices["subsets"].options = known
        if names:
            self.checkpoint = before[0] if before[0] in names else names[-1]
            self.reference = before[1] if before[1] in names else names[max(len(names) - 2, 0)]
        self.subsets = tuple(s for s in before[2] if s in known) or tuple(known)
        done = set(names) | set(self._left_out["checkpoint"] if len(self._left_out) else ())
        waiting = [c.name for c in find_checkpoints(self._run_path) if c.name not in done]
        self._missing.options = waiting
        self._start.disabled = not waiting

    def evaluate(self, name: str | None) -> None:
        """Evaluate checkpoint `name` in the background; `is_evaluating` is true meanwhile.

        Raises:
            UnknownContentError: the run has no such checkpoint file.
        """
        files = {c.name: c for c in find_checkpoints(self._run_path)}
        if name not in files:
            raise UnknownContentError(f"The run has no checkpoint {name!r}.", fix=f"use one of {sorted(files)}")
        if self.is_evaluating:
            return
        step = [] if files[name].step is None else ["--step", str(files[name].step)]
        words = [str(self._run_path.resolve()), "--checkpoint", str(files[name].path.resolve()), *step]
        self._cancel.clear()
        self._set_running(True)
        self._thread = threading.Thread(target=self._evaluate, args=(name, words), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """End a running evaluation."""
        self._cancel.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until no evaluation runs."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _evaluate(self, name: str, words: list[str]) -> None:
        begin = time.monotonic()

        def tick() -> None:
            if self._cancel.is_set():
                raise _CancelledError
            self._status.value = f"evaluating {name}, {time.monotonic() - begin:.0f} s"

        try:
            outcome = run_child([sys.executable, "-m", self._evaluator, *words], tick=tick)
            said = f"{name} is evaluated" if outcome.status == 0 else f"{name} was not evaluated: {outcome.reason}"
        except _CancelledError:
            said = f"cancelled; {name} is not evaluated"
        self._set_running(False)
        self.refresh()
        self._status.value = said
        self._redraw()

    def _set_running(self, running: bool) -> None:
        self.is_evaluating = running
        self._start.disabled, self._stop.disabled = running, not running

    def _redraw(self, _change: Any = None) -> None:
        own = self._samples[self._samples["subset"].isin(self.subsets)] if len(self._samples) else self._samples
        if own.empty:
            self.changes = pd.DataFrame()
            self._scores.show(Text("No checkpoint is evaluated yet."))
            self._changes.show(Text(""))
            return
        self._scores.show(subset_chart(subset_metrics(own), self.metric, highlight=self.checkpoint))
        if self.checkpoint == self.reference:
            self.changes = pd.DataFrame()
            self._changes.show(Text(LATER))
            return
        self.changes = self._changed(own)
        self._changes.show(changes_chart(self.changes, metric=self.metric))

    def _changed(self, samples: pd.DataFrame) -> pd.DataFrame:
        changes = paired_changes(samples, str(self.reference), str(self.checkpoint), metric=self.metric)
        better = (changes["change"] < 0) != (self.metric == "next_token_accuracy")
        verdict = better.map({True: "better", False: "worse"}).where(changes["p_holm"] < SIGNIFICANT, "within noise")
        verdict = verdict.where(changes["p_holm"].notna(), "not testable")
        title = f"{self.checkpoint} against {self.reference}, {evaluation_title(self.metric)}"
        return changes.assign(verdict=verdict, reference=title)
