"""Callbacks with which the fault lab disturbs a training: slow storage, a growing host, an evaluation in the way."""

from __future__ import annotations

import subprocess
import sys
import time

from mindspore.train import Callback, CheckpointConfig, ModelCheckpoint, RunContext

from workbench.probes.recorder import Recorder

BURN = "import sys, time, numpy as np\na = np.ones((700, 700))\nend = time.time() + float(sys.argv[1])\n"
BURN += "while time.time() < end:\n    a = a @ a * 1e-3\n"


class SlowStorage(ModelCheckpoint):
    """Saves checkpoints synchronously to storage on which each takes `stall_ms` longer."""

    def __init__(self, directory: str, every: int, stall_ms: float) -> None:
        super().__init__("lab", directory, CheckpointConfig(save_checkpoint_steps=every, keep_checkpoint_max=3))
        self.stall_ms = stall_ms

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Save if it is time."""
        before = self.latest_ckpt_file_name
        super().on_train_step_end(run_context)
        if self.latest_ckpt_file_name != before:
            time.sleep(self.stall_ms / 1e3)


class GrowingHost(Callback):
    """Keeps `bytes_per_step` more with each step, and needs `us_per_step` longer for it each time."""

    def __init__(self, bytes_per_step: int, us_per_step: float) -> None:
        super().__init__()
        self.bytes_per_step, self.us_per_step = bytes_per_step, us_per_step
        self.kept: list[bytes] = []

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Keep, and go through what was kept."""
        self.kept.append(b"\1" * self.bytes_per_step)
        end = time.perf_counter() + len(self.kept) * self.us_per_step / 1e6
        while time.perf_counter() < end:  # work, not sleep: it holds the interpreter like hooks that pile up
            sum(range(100))


class SleepBeforeStep(Callback):
    """Sleeps `milliseconds` before each step: a rank whose host is late."""

    def __init__(self, milliseconds: float) -> None:
        super().__init__()
        self.milliseconds = milliseconds

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Be late."""
        time.sleep(self.milliseconds / 1e3)


class BusyEvaluation(Callback):
    """Every `every` steps another process computes on all cores for `seconds`, recorded as an evaluation."""

    def __init__(self, recorder: Recorder, every: int, seconds: float, processes: int) -> None:
        super().__init__()
        self.recorder, self.every, self.seconds, self.processes = recorder, every, seconds, processes
        self.running: list[subprocess.Popen[bytes]] = []
        self.begun_ns = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Start, or note the end."""
        if self.running and all(p.poll() is not None for p in self.running):
            self._note_end()
        if self.recorder.step % self.every == 0 and not self.running:
            self.begun_ns = time.time_ns()
            command = [sys.executable, "-c", BURN, str(self.seconds)]
            self.running = [subprocess.Popen(command) for _ in range(self.processes)]

    def on_train_end(self, run_context: RunContext) -> None:
        """Wait for the last one."""
        for process in self.running:
            process.wait()
        if self.running:
            self._note_end()

    def _note_end(self) -> None:
        duration_us = (time.time_ns() - self.begun_ns) / 1e3
        detail = {"process_ids": [p.pid for p in self.running]}
        self.recorder.writer.event(
            "eval", start_ns=self.begun_ns, duration_us=duration_us, step=self.recorder.step, name="process",
            detail=detail,
        )  # fmt: skip
        self.running = []
