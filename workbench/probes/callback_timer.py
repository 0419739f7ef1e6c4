"""Tell apart what `Model.train` does between two steps: waiting for data, running the step, other callbacks.

`Model.train` runs all callbacks in list order before and after each step, so one callback alone cannot see whether a
gap was the data pipeline or a neighbour that saved a checkpoint. Each neighbour's hooks are therefore wrapped (on the
object, for the time of the training) and timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mindspore.train import Callback, RunContext

from workbench.probes.run_writer import RunWriter

LONG_CALL_US = 10_000.0  # calls that take longer become events
HOOKS = (
    "on_train_epoch_begin",
    "on_train_step_begin",
    "on_train_step_end",
    "on_train_epoch_end",
    "on_eval_begin",
    "on_eval_end",
)


@dataclass(frozen=True, kw_only=True)
class CallbackCall:
    """One call of another callback's hook."""

    callback: str  # class name
    hook: str
    start_ns: int  # ns since epoch
    duration_us: float
    checkpoint: str | None  # file that it saved, if it did


@dataclass
class CallbackTimer:
    """Times the hooks of `callbacks` while installed.

    Attributes:
        calls: calls since the last `take_calls`.
        free_at: `perf_counter_ns` at which the last work other than fetching data ended: the data wait starts here.
        begun_at: `perf_counter_ns` at which the last step-begin hook returned: the step runs from here.
    """

    before_step_begin: Callable[[], None]  # called before every step-begin hook
    before_step_end: Callable[[RunContext], None]  # called before every step-end hook
    calls: list[CallbackCall] = field(default_factory=list)
    free_at: int = 0
    begun_at: int = 0
    _wrapped: list[tuple[Callback, str]] = field(default_factory=list)

    def install(self, callbacks: Sequence[Callback], own: Callback) -> None:
        """Wrap the hooks of all callbacks but `own`."""
        for callback in callbacks:
            if callback is own or type(callback).__name__ in ("_FrameworkProfilerCallback", "_StepSync"):
                continue
            for hook in HOOKS:
                setattr(callback, hook, self._timed(callback, hook))
                self._wrapped.append((callback, hook))

    def remove(self) -> None:
        """Give the callbacks their own hooks back."""
        for callback, hook in self._wrapped:
            callback.__dict__.pop(hook, None)
        self._wrapped.clear()

    def take_calls(self) -> list[CallbackCall]:
        """The calls since last time."""
        calls, self.calls = self.calls, []
        return calls

    def touch(self) -> None:
        """Note that work other than fetching data ended now."""
        self.free_at = time.perf_counter_ns()

    def _timed(self, callback: Callback, hook: str) -> Callable[[RunContext], None]:
        original = getattr(callback, hook)

        def timed(run_context: RunContext) -> None:
            if hook == "on_train_step_begin":
                self.before_step_begin()
            elif hook == "on_train_step_end":
                self.before_step_end(run_context)
            saved_before = getattr(callback, "latest_ckpt_file_name", None)
            start_ns, start = time.time_ns(), time.perf_counter_ns()
            original(run_context)
            self.free_at = self.begun_at = time.perf_counter_ns()
            saved = getattr(callback, "latest_ckpt_file_name", None)
            self.calls.append(
                CallbackCall(
                    callback=type(callback).__name__,
                    hook=hook,
                    start_ns=start_ns,
                    duration_us=(self.free_at - start) / 1e3,
                    checkpoint=saved if saved and saved != saved_before else None,
                )
            )

        return timed


def record_calls(writer: RunWriter, calls: Sequence[CallbackCall], step: int) -> None:
    """Write an event for each checkpoint that was saved, and for each other long call.

    Inline evaluations are left out: they record themselves.
    """
    for call in calls:
        kind = "checkpoint" if call.checkpoint else "callback"
        if kind == "callback" and (call.duration_us < LONG_CALL_US or call.callback.startswith("InlineEval")):
            continue
        writer.event(
            kind,
            start_ns=call.start_ns,
            duration_us=call.duration_us,
            step=step,
            name=os.path.basename(call.checkpoint) if call.checkpoint else call.callback,
            detail={"callback": call.callback, "hook": call.hook, "file": call.checkpoint},
        )
