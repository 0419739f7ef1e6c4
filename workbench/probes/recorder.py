"""The Recorder: two lines in a training script, and a run directory that everything else reads.

    model = ms.Model(RecordedStep(network, optimizer, clip_norm=1.0))
    model.train(epochs, dataset, callbacks=[Recorder("runs/my_run"), ...])

or, in a hand-written loop,

    with Recorder("runs/my_run") as recorder:
        for batch in recorder.batches(dataset):
            recorder.end_step(train_step(*batch))
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import mindspore as ms
import numpy as np
import psutil
from mindspore import nn
from mindspore.train import Callback, RunContext

from workbench.errors import UnknownParameterError
from workbench.probes.callback_timer import CallbackTimer, record_calls
from workbench.probes.data_profile import PipelineProfiler
from workbench.probes.live_alerts import Alerts, recorder_alerts
from workbench.probes.profile_capture import ProfileWindow
from workbench.probes.recorder_options import batch_parts, first_shape, run_info, step_range
from workbench.probes.run_writer import RunWriter
from workbench.probes.sample_columns import SampleColumns
from workbench.probes.signals import (
    ParameterNorms,
    StepSignals,
    device_memory,
    layer_group,
    learning_rate,
    norm_fields,
    read_outputs,
)
from workbench.probes.telemetry import recorder_telemetry
from workbench.probes.train_step import RecordedStep

log = logging.getLogger(__name__)


class Recorder(Callback):
    """Record a training: per step loss, norms, rates, times, memory; events; optionally profiles.

    Args:
        run_dir: directory of the run, e.g. `runs/my_run`; every rank of an `msrun` job names the same one.
        config: configuration, nested or flat; experiments are compared by it key by key.
        seeds: random seeds, for the record.
        data_fingerprint: text or hash that changes when the data does.
        tags: free words.
        checkpoint_dir: where the checkpoints go, relative to `run_dir` or absolute.
        evaluation: `{"task": "package.module:function", "arguments": {...}}`, which checkpoints are evaluated with.
        steps_total: planned steps, for progress and for the end of `watch`.
        profile_steps: first and last step of a profile window, both included; None for none.
        profile_data: profile the data pipeline (needs to exist before the training's iterator; about 1 % of a step).
        telemetry: sample host, process and card every 5 seconds (about 1 ms of processor time each).
        alerts: raise alerts on steps as they come, with a webhook and rules of yours; None for none.
        parameter_norms_every: steps between measurements of the parameter norms; 0 turns them off.
        group_of: parameter name -> group, for the gradient/parameter ratio.
        count_tokens: columns of a batch -> tokens; the default is the size of the first input.
        samples: columns of a batch that tell its samples; None for none (docs/recorder.md has the cost).
        first_step: number of the first step, when resuming; `Model.train(initial_epoch=...)` is understood without.
    """

    # state of a training; a step's own part is set anew by `_begin_step` and `_take_signals`
    _network: nn.Cell | None = None
    _optimizer: nn.Optimizer | None = None
    _parameter_norms: ParameterNorms | None = None
    _pipeline: PipelineProfiler | None = None
    _graphs = 0
    _started = False
    _open = False  # a step of a hand-written loop
    _eval_start_ns = 0
    _batch: Sequence[Any] = ()
    _signals: StepSignals | None = None
    _rate: float | None = None
    _data_wait_us: float | None = None
    _callbacks_us: float | None = None
    _run_begin = _run_end = _step_begun_at = 0  # perf_counter_ns

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        config: Mapping[str, object] | None = None,
        seeds: Mapping[str, int] | None = None,
        data_fingerprint: str | None = None,
        tags: Sequence[str] = (),
        checkpoint_dir: str = "checkpoints",
        evaluation: Mapping[str, object] | None = None,
        steps_total: int | None = None,
        profile_steps: tuple[int, int] | None = None,
        profile_data: bool = False,
        telemetry: bool = False,
        alerts: Alerts | None = None,
        parameter_norms_every: int = 50,
        group_of: Callable[[str], str] = layer_group,
        count_tokens: Callable[[Sequence[Any]], float | None] | None = None,
        samples: SampleColumns | None = None,
        first_step: int = 1,
    ) -> None:
        super().__init__()
        rank_id, world_size = job_place()
        self.writer = RunWriter(run_dir, rank_id=rank_id, world_size=world_size)
        self._info = run_info(
            config=config, seeds=seeds, data_fingerprint=data_fingerprint, tags=tags, checkpoint_dir=checkpoint_dir,
            evaluation=evaluation, steps_total=steps_total, weights=samples.weights if samples else None,
        )  # fmt: skip
        self._samples, self._profile_data = samples, profile_data
        self._window = ProfileWindow(self.writer, *step_range(profile_steps)) if profile_steps else None
        self._telemetry = recorder_telemetry(self.writer.files.telemetry, rank_id, on=telemetry)
        self._alerts = recorder_alerts(self.writer, alerts)
        self._parameter_norms_every, self._group_of = parameter_norms_every, group_of
        self._count_tokens = count_tokens or _size_of_first
        self._timer = CallbackTimer(before_step_begin=self._close_wait, before_step_end=self._close_run)
        self._process = psutil.Process()
        self.step = first_step - 1

    # context: `Model.train` enters and leaves its callbacks, a hand-written loop does it with `with`
    def __enter__(self) -> Recorder:
        if not self._started:
            self._started = True
            self.writer.describe({**self._environment(), **self._info})
            self.writer.event("start", start_ns=time.time_ns(), step=self.step + 1, detail={"process_id": os.getpid()})
            self._telemetry.start()
            if self._alerts:
                self._alerts.start()
            if self._profile_data:
                self._pipeline = PipelineProfiler(self.writer.files.data_pipeline(self.writer.rank_id))
                self._pipeline.start()
        self._timer.touch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._started:
            return
        self._started = False
        self._telemetry.stop()
        if self._alerts:
            self._alerts.stop()
        self._record_calls()
        self._timer.remove()
        if self._window:
            self._close_window(self._window)
        if self._pipeline is not None:
            self._pipeline.stop()
        status = "finished" if kind is None else kind.__name__
        self.writer.event("end", start_ns=time.time_ns(), step=self.step, name=status)
        self.writer.close()

    def _close_window(self, window: ProfileWindow) -> None:
        window.close(self.step)
        if not window.was_reached:
            log.warning(
                "profile_steps=(%d, %d) was not reached: the training ended at step %d, nothing is profiled.",
                window.first, window.last, self.step,
            )  # fmt: skip

    # MindSpore's hooks
    def on_train_begin(self, run_context: RunContext) -> None:
        """Learn the network, and time the other callbacks."""
        params = run_context.original_args()
        self.bind(params.train_network, params.optimizer)
        self.step = max(self.step, params.cur_step_num or 0)
        self.writer.describe({**self._environment(), **self._info, "steps_per_epoch": params.batch_num})
        self._timer.install(params.list_callback, own=self)
        self._timer.touch()

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """The data wait starts here."""
        self._timer.touch()

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Close the data wait, open the run."""
        params = run_context.original_args()
        self._begin_step(params.train_dataset_element)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Record the step."""
        self._close_run(run_context)
        params = run_context.original_args()
        self._write_step(epoch=params.cur_epoch_num)
        self._timer.touch()

    def on_eval_begin(self, run_context: RunContext) -> None:
        """An evaluation of `Model.fit` begins."""
        self._eval_start_ns = time.time_ns()

    def on_eval_end(self, run_context: RunContext) -> None:
        """Record the evaluation as an event."""
        duration_us = (time.time_ns() - self._eval_start_ns) / 1e3
        self.writer.event("eval", start_ns=self._eval_start_ns, duration_us=duration_us, step=self.step, name="fit")
        self._timer.touch()

    # hand-written loops
    def bind(self, train_network: nn.Cell | None = None, optimizer: nn.Optimizer | None = None) -> None:
        """Tell the Recorder the training cell and optimizer of a hand-written loop (norms, rate, compile events)."""
        self._network = train_network
        self._optimizer = optimizer or getattr(train_network, "optimizer", None)
        if self._optimizer is not None and self._parameter_norms_every > 0:
            self._parameter_norms = ParameterNorms(self._optimizer.parameters, self._parameter_norms_every)

    def batches(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """Iterate over `iterable`, timing the wait for each batch; call `end_step` once per batch."""
        if not self._started:
            raise UnknownParameterError(
                "The Recorder does not record yet.", fix="put the loop into `with Recorder(...) as recorder:`"
            )
        iterator = iter(iterable)
        self._timer.touch()
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._begin_step(batch_parts(batch))
            self._open = True
            yield batch

    def end_step(self, outputs: object, *, epoch: int | None = None, **values: float | bool | None) -> None:
        """Record the step that `batches` opened.

        Args:
            outputs: what the step returned, in any form that `signals.read_outputs` knows.
            epoch: epoch number.
            values: further or other values by column name of table `training_steps`, e.g. `learning_rate=1e-3`.

        Raises:
            UnknownParameterError: no step is open.
        """
        if not self._open:
            raise UnknownParameterError(
                "end_step closes a step that `batches` opened, and none is open.",
                fix="iterate with `for batch in recorder.batches(dataset):` and call end_step once per batch",
            )
        self._open = False
        self._take_signals(outputs)
        self._write_step(epoch=epoch, **values)
        self._timer.touch()

    @contextmanager
    def interval(self, kind: str, name: str = "", **detail: object) -> Iterator[None]:
        """Record what the block does (evaluation, saving, ...) as an event, and keep it out of the data wait."""
        start_ns, start = time.time_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            duration_us = (time.perf_counter_ns() - start) / 1e3
            self.writer.event(
                kind, start_ns=start_ns, duration_us=duration_us, step=self.step, name=name, detail=detail
            )
            self._timer.touch()

    # one step
    def _close_wait(self) -> None:
        """Stop the clock of the data wait; the first step-begin hook of any callback triggers it."""
        if self._data_wait_us is None:
            self._data_wait_us = (time.perf_counter_ns() - self._timer.free_at) / 1e3

    def _begin_step(self, batch: Sequence[Any]) -> None:
        self._close_wait()
        self._record_calls()
        self._batch = batch
        self._signals = None
        self.step += 1
        if self._window:
            self._window.begin_step(self.step)
        if not self._rate_in_outputs:
            self._rate = learning_rate(self._optimizer)
        self._run_begin = time.perf_counter_ns()

    @property
    def _rate_in_outputs(self) -> bool:
        return isinstance(self._network, RecordedStep) and self._network.has_rate

    def _close_run(self, run_context: RunContext) -> None:
        """Wait for the device and stop the step's clock; the first step-end hook of any callback triggers it."""
        if self._signals is None:
            self._take_signals(run_context.original_args().net_outputs)

    def _take_signals(self, outputs: object) -> None:
        names = self._network.parameter_names if isinstance(self._network, RecordedStep) else ()
        self._step_begun_at = self._timer.begun_at  # step-end hooks move it on
        self._signals = read_outputs(outputs, names)
        self._run_end = time.perf_counter_ns()

    def _write_step(self, *, epoch: int | None, **values: float | bool | None) -> None:
        signals = self._signals
        assert signals is not None
        wait_us, self._data_wait_us = self._data_wait_us or 0.0, None
        run_us = (self._run_end - max(self._run_begin, self._step_begun_at)) / 1e3
        compiled = self._note_compile(run_us)
        shape = first_shape(self._batch)
        norm = None if signals.gradient_norms is None else float(np.sqrt(np.sum(signals.gradient_norms**2)))
        record: dict[str, object] = {
            "step": self.step,
            "epoch": epoch,
            "time_ns": time.time_ns() - (time.perf_counter_ns() - self._run_end),
            "loss": signals.loss,
            "learning_rate": self._rate if signals.learning_rate is None else signals.learning_rate,
            "gradient_norm": norm,
            "overflow": signals.overflow,
            "loss_scale": signals.loss_scale if signals.loss_scale else getattr(self._network, "loss_scale", None),
            "tokens": self._count_tokens(self._batch),
            "samples": float(shape[0]) if shape else None,
            "step_us": wait_us + run_us,
            "data_wait_us": wait_us,
            "callbacks_us": self._callbacks_us,
            "compiled": compiled,
            "host_memory_bytes": float(self._process.memory_info().rss),
            **device_memory(),
            **norm_fields(signals, self._parameter_norms, self._group_of, self.step),
            **values,
        }
        self.writer.step(record)
        if self._alerts:
            self._alerts.step(record)
        if self._samples is not None:
            self.writer.extra("sample_ids", self._samples.record(self.step, epoch, self._batch))
        if self._window:
            self._window.end_step(self.step)

    def _note_compile(self, run_us: float) -> bool:
        graphs = len(getattr(self._network, "compile_cache", ()))
        compiled = graphs > self._graphs
        if compiled:
            shapes = [list(getattr(part, "shape", ())) for part in self._batch]
            self.writer.event(
                "compile",
                start_ns=time.time_ns() - int(run_us * 1e3),
                duration_us=run_us,
                step=self.step,
                name=type(self._network).__name__,
                detail={"graphs": graphs, "input_shapes": shapes},
            )
        self._graphs = max(graphs, self._graphs)
        return compiled

    def _record_calls(self) -> None:
        calls = self._timer.take_calls()
        self._callbacks_us = sum(c.duration_us for c in calls) if self.step > 0 else None
        record_calls(self.writer, calls, self.step)

    def _environment(self) -> dict[str, object]:
        graph = ms.get_context("mode") == ms.GRAPH_MODE
        return {"device_target": ms.get_context("device_target"), "mode": "graph" if graph else "pynative"}


def _size_of_first(batch: Sequence[Any]) -> float | None:
    shape = first_shape(batch)
    return float(np.prod(shape)) if shape else None


def job_place() -> tuple[int, int]:
    """This process's rank and the number of ranks, from MindSpore's communication or msrun's environment."""
    if ms.communication.GlobalComm.INITED:
        return ms.communication.get_rank(), ms.communication.get_group_size()
    return int(os.environ.get("RANK_ID", "0")), int(os.environ.get("RANK_SIZE", "1"))
