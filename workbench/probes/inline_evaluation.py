"""Evaluate a few fixed samples per subset during training, within a budget of the training time."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mindspore.train import Callback, RunContext

from workbench.errors import UnknownParameterError
from workbench.probes.corpus import Sample
from workbench.probes.evaluation import EvaluationTask, Scored, protocol_of, score, write_evaluation
from workbench.probes.inline_budget import Decision, InlineBudget
from workbench.probes.recorder import Recorder
from workbench.probes.signals import read_outputs

log = logging.getLogger(__name__)
COMPILE_GUESS_SHARE = 0.35  # of the first training step: a forward graph compiled in 0.32 to 0.37 of its time


class InlineEval(Callback):
    """Score the task's subsets in turn, always the same samples, at most for `budget_share` of the training time.

    Put it into the callback list behind the Recorder, whose run directory receives `evals/inline.jsonl`, the scores,
    an event `eval` per evaluation and an event `inline_decision` per decision. Everything that an evaluation takes
    counts as spent: compiling (once per shape), scoring, writing.

    Args:
        task: network being trained (the same cell), and the samples.
        recorder: of the run.
        every: steps between evaluations while the loss is as volatile as usual: a fifth of it at most when the loss
            jumps, four times it when the loss is steady, longer where the budget demands it.
        budget_share: largest share of the training time so far (without evaluations) that evaluations may take.
        controlled: False evaluates all subsets every `every` steps, whatever that costs.

    Raises:
        UnknownParameterError: `every` is below 1, `budget_share` not between 0 and 1, or a subset has no samples.
    """

    def __init__(
        self,
        task: EvaluationTask,
        recorder: Recorder,
        *,
        every: int = 50,
        budget_share: float = 0.05,
        controlled: bool = True,
    ) -> None:
        super().__init__()
        if every < 1 or not 0 < budget_share < 1:
            raise UnknownParameterError(
                f"every={every!r} and budget_share={budget_share!r} are no interval and no share.",
                fix="give every >= 1 and 0 < budget_share < 1",
            )
        _must_have_samples(task.subsets)
        self.task, self.recorder = task, recorder
        self.budget = InlineBudget(every=every, budget_share=budget_share, controlled=controlled)
        self._scorer = task.scorer()
        self._subsets: dict[str, Sequence[Sample]] = dict(task.subsets)
        self._queue = list(self._subsets)
        self._start = time.perf_counter()
        self._first_step_seconds: float | None = None

    @property
    def spent_seconds(self) -> float:
        """What evaluations took so far."""
        return self.budget.spent_seconds

    @property
    def training_seconds(self) -> float:
        """Since the training began, without evaluations."""
        return time.perf_counter() - self._start - self.spent_seconds

    def add_subset(self, name: str, samples: Sequence[Sample]) -> None:
        """Let a subset join the queue, as its next.

        Raises:
            UnknownParameterError: it has no samples.
        """
        _must_have_samples({name: samples})
        self._subsets[name] = samples
        self._queue = [name, *(s for s in self._queue if s != name)]

    def on_train_begin(self, run_context: RunContext) -> None:
        """The training time starts here."""
        self._start = time.perf_counter()

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Evaluate what is due and affordable."""
        self.budget.loss(read_outputs(run_context.original_args().net_outputs).loss)
        if self._first_step_seconds is None:
            self._first_step_seconds = self.training_seconds
        decision = self._decide()
        if decision is None:
            return
        self.recorder.writer.event(
            "inline_decision", start_ns=time.time_ns(), step=decision.step, name=decision.reason,
            detail=decision.to_dict(),
        )  # fmt: skip
        if decision.subsets:
            self._evaluate(decision)

    def _decide(self) -> Decision | None:
        step, training_seconds = self.recorder.step, self.training_seconds
        if step < self.budget.next_step:
            return None
        step_seconds = training_seconds / max(step, 1)  # no less than a forward pass
        batches = {s: -(-len(self._subsets[s]) // self._scorer.batch_size) for s in self._queue}
        compiled = all(self._scorer.is_compiled(self._subsets[s]) for s in self._queue)
        to_compile = 0.0 if compiled else COMPILE_GUESS_SHARE * (self._first_step_seconds or 0.0)
        return self.budget.decide(
            step,
            {subset: count * step_seconds for subset, count in batches.items()},
            training_seconds=training_seconds,
            compile_seconds=to_compile,
        )

    def _evaluate(self, decision: Decision) -> None:
        start = time.perf_counter()
        due = replace(self.task, subsets={s: self._subsets[s] for s in decision.subsets})
        with self.recorder.interval("eval", name="inline", subsets=list(decision.subsets)):
            scored = score(due, checkpoint=None, step=decision.step, scorer=self._scorer)
            protocol = protocol_of(due, file=None, scored=scored, dataset_rebuilt=False, graph_rebuilt=False)
            self._write(scored, protocol)
        self._queue = [s for s in self._queue if s not in decision.subsets] + list(decision.subsets)
        seconds = time.perf_counter() - start
        self.budget.spent(seconds, by_subset=_recurring(scored.seconds, seconds - scored.compile_seconds))

    def _write(self, scored: Scored, protocol: Mapping[str, object]) -> None:
        """Record the evaluation; a full disk must not end a training of days."""
        files = self.recorder.writer.files
        try:
            write_evaluation(files, "inline", scored, protocol)
        except OSError as error:
            log.warning(
                "An evaluation could not be written to %s (%s); training goes on. Fix: free space on that disk.",
                files.root, error,
            )  # fmt: skip


def _must_have_samples(subsets: Mapping[str, Sequence[Sample]]) -> None:
    if empty := [name for name, samples in subsets.items() if not samples]:
        raise UnknownParameterError(
            f"Subset {', '.join(empty)} has no samples.", fix="leave it out, or give it some (see docs/evaluation.md)"
        )


def _recurring(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Scoring seconds per subset, with what was neither that nor compiling (writing) shared out evenly."""
    rest = max(whole - sum(seconds.values()), 0.0) / max(len(seconds), 1)
    return {subset: s + rest for subset, s in seconds.items()}
