"""Profile a window of training steps with the switches that the readers need.

On Ascend only a profile with a schedule knows its steps, so a schedule is always given. Analysis runs when the window
closes and stops training for about a second per window on CPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mindspore as ms
from mindspore import profiler

from workbench.probes.run_writer import RunWriter


def start_profile(
    output: str | os.PathLike[str], *, steps: int, memory: bool = True, level1: bool = True
) -> profiler.profile:
    """Start a profile of the next `steps` steps; call `.step()` after each and `.stop()` after the last.

    Args:
        output: directory; each window makes a folder of its own in it (`*_ascend_ms`, also on CPU).
        steps: number of steps in the window.
        memory: record every allocation and release.
        level1: operator types, shapes, communication files (Ascend); costs more than Level0.
    """
    device = ms.get_context("device_target")
    activities = [profiler.ProfilerActivity.CPU]
    experimental = None
    if device == "Ascend":
        activities.append(profiler.ProfilerActivity.NPU)
        level = profiler.ProfilerLevel.Level1 if level1 else profiler.ProfilerLevel.Level0
        experimental = profiler._ExperimentalConfig(profiler_level=level)
    Path(output).mkdir(parents=True, exist_ok=True)
    return profiler.profile(
        activities=activities,
        profile_memory=memory,
        schedule=profiler.schedule(wait=0, warmup=0, active=steps, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(output)),
        experimental_config=experimental,
    )


@contextmanager
def profile_steps(
    output: str | os.PathLike[str], *, steps: int, memory: bool = True, level1: bool = True
) -> Iterator[profiler.profile]:
    """Profile the steps of a hand-written loop inside a `with` block; call `.step()` of what it gives after each."""
    window = start_profile(output, steps=steps, memory=memory, level1=level1)
    try:
        yield window
    finally:
        window.stop()


class ProfileWindow:
    """The Recorder's profile of the steps `first` to `last`, both included; written to the run's `profiles` folder."""

    def __init__(self, writer: RunWriter, first: int, last: int) -> None:
        self._writer = writer
        self.first, self.last = first, last
        self._profile: profiler.profile | None = None
        self._start_ns = 0

    @property
    def was_reached(self) -> bool:
        """Whether the first step of the window has come."""
        return self._start_ns > 0

    def begin_step(self, step: int) -> None:
        """Open the profile before its first step."""
        if step == self.first:
            self._start_ns = time.time_ns()
            self._profile = start_profile(self._writer.files.profiles, steps=self.last - self.first + 1)

    def end_step(self, step: int) -> None:
        """Advance the profile, and close it after its last step."""
        if self._profile is None:
            return
        self._profile.step()
        if step >= self.last:
            self.close(step)

    def close(self, step: int) -> None:
        """Write what was profiled; training waits for the analysis, which the event's duration includes."""
        if self._profile is None:
            return
        self._profile.stop()
        self._profile = None
        self._writer.event(
            "profile",
            start_ns=self._start_ns,
            duration_us=(time.time_ns() - self._start_ns) / 1e3,
            step=step,
            name=self._writer.files.profiles.name,
            detail={"first_step": self.first, "last_step": min(step, self.last)},
        )
