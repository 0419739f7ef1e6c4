"""A profile as operations that can be replayed, and how long each of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from workbench.analyses.profile_operations import profile_replay
from workbench.analyses.replay import Replay
from workbench.analyses.statistics import FloatArray


@dataclass(frozen=True)
class StepModel:
    """The operations of a profile and their replay; `links` is table `links`, or None."""

    profile: pd.DataFrame  # as `profile_operations` returns
    links: pd.DataFrame | None

    @cached_property
    def recorded(self) -> Replay:
        """The replay of what needs what as the profile shows it."""
        return profile_replay(self.profile)

    @cached_property
    def overlapped(self) -> Replay:
        """The replay of the same operations with gradients reduced as soon as they are there."""
        return profile_replay(self.profile, overlapped=True)


@dataclass(frozen=True)
class Durations:
    """Delay and work of every operation, which of the two replays they are for, and what a step is longer than it."""

    delay_us: FloatArray
    work_us: FloatArray
    overlapped: bool = False
    shift_us: float = 0.0

    @classmethod
    def recorded(cls, model: StepModel) -> Durations:
        """As the profile shows them."""
        table = model.recorded.operations
        return cls(table["delay_us"].to_numpy(copy=True), table["work_us"].to_numpy(copy=True))
