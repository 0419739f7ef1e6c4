"""Evaluate a few fixed samples per subset during training, within a budget of the training time."""

from __future__ import annotations

import math
import time

from mindspore.train import Callback, RunContext

from workbench.probes.evaluation import EvaluationTask, protocol_of, score, write_evaluation
from workbench.probes.recorder import Recorder


class InlineEvaluation(Callback):
    """Score the task's samples every `every` steps, further apart where that would cost more than `budget_share`.

    The first evaluation compiles a graph; that cost is counted as well. Put it into the callback list with the
    Recorder, whose run directory receives `evals/inline.jsonl` and the events.

    Args:
        task: network being trained (the same cell), and the samples.
        recorder: of the run.
        every: steps between evaluations, as long as the budget allows.
        budget_share: largest share of the training time so far that evaluations may take.
    """

    def __init__(
        self, task: EvaluationTask, recorder: Recorder, *, every: int = 50, budget_share: float = 0.05
    ) -> None:
        super().__init__()
        self.task, self.recorder = task, recorder
        self.every, self.budget_share = every, budget_share
        self.spent_seconds = 0.0
        self.next_step = every
        self._last_seconds = 0.0
        self._start = time.perf_counter()

    def on_train_begin(self, run_context: RunContext) -> None:
        """The training time starts here."""
        self._start = time.perf_counter()

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Evaluate when it is due and affordable."""
        step = self.recorder.step
        if step < self.next_step:
            return
        training_seconds = time.perf_counter() - self._start - self.spent_seconds
        if self.spent_seconds + self._last_seconds > self.budget_share * training_seconds and self.spent_seconds:
            self.next_step = step + max(1, self.every // 5)
            return
        self._evaluate(step, training_seconds)

    def _evaluate(self, step: int, training_seconds: float) -> None:
        start = time.perf_counter()
        with self.recorder.interval("eval", name="inline", budget_share=self.budget_share):
            scored = score(self.task, checkpoint=None, step=step)
            protocol = protocol_of(self.task, file=None, scored=scored, dataset_rebuilt=False, graph_rebuilt=False)
            write_evaluation(self.recorder.writer.files, "inline", scored, protocol)
        self._last_seconds = time.perf_counter() - start
        self.spent_seconds += self._last_seconds
        self.next_step = step + self.affordable_interval(self._last_seconds, training_seconds / step)

    def affordable_interval(self, cost_seconds: float, step_seconds: float) -> int:
        """Steps until the next evaluation: `every`, or as many as keep this cost inside the budget."""
        return max(self.every, math.ceil(cost_seconds / (self.budget_share * max(step_seconds, 1e-9))))
