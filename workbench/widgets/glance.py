"""The charts of the start notebook: of recorded steps, else of the profile; what is not there is said once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from workbench.run import Run
from workbench.widgets import device_sections, sections
from workbench.widgets.sections import Missing, Tables, Text

ALL_STEPS = (0, 2**62)
INSTEAD = {"step time": "the mean step of each rank by part", "shares of the time": "the largest operators"}


class Glance:
    """Loss, step times, shares of the time and quality of a run; None where there is nothing to show.

    Args:
        run: the run.
        tables: as `sections.tables_of` returns them.
    """

    def __init__(self, run: Run, tables: Tables) -> None:
        self._run, self._tables = run, tables

    def loss(self) -> Any:
        """Training loss over steps."""
        return self._shown("loss")

    def step_times(self) -> Any:
        """Wall time of each step; without recorded steps the mean profiled step of each rank by part."""
        return self._shown("step time")

    def time_shares(self) -> Any:
        """Where the wall time went; without recorded steps the largest operators of the profile."""
        return self._shown("shares of the time")

    def quality(self) -> Any:
        """Loss per subset over the checkpoints."""
        return self._shown("quality over time")

    def lacking(self) -> Text | None:
        """What is not shown and how to have it, once for each table, and what of a profile is shown instead."""
        names: dict[str, list[str]] = {}
        for name, part in self._recorded.items():
            if isinstance(part, Missing):
                names.setdefault(part.text, []).append(name)
        lines = [f"Not shown: {', '.join(of_table)}. {text}" for text, of_table in names.items()]
        instead = [INSTEAD[name] for name in self._instead]
        lines += [f"Shown instead, of the profile: {', '.join(instead)}."] if instead else []
        return Text(" ".join(lines)) if lines else None

    @cached_property
    def _recorded(self) -> dict[str, Any]:
        return {
            "loss": sections.loss(self._tables),
            "step time": sections.step_times(self._tables),
            "shares of the time": sections.time_shares(self._tables),
            "quality over time": sections.quality_over_time(self._tables),
        }

    @cached_property
    def _instead(self) -> dict[str, Any]:
        """Parts of the profile for what is not recorded; read only then."""
        of_profile = {"step time": self._profiled_ranks, "shares of the time": self._operators}
        lacking = [name for name, part in self._recorded.items() if isinstance(part, Missing) and name in of_profile]
        made = {name: of_profile[name]() for name in lacking}
        return {name: part for name, part in made.items() if not isinstance(part, Missing)}

    def _shown(self, name: str) -> Any:
        part = self._recorded[name]
        return self._instead.get(name) if isinstance(part, Missing) else part

    def _profiled_ranks(self) -> Any:
        has = self._run.has("step_time")
        return device_sections.profiled_ranks({"step_time": self._run.table("step_time")} if has else {})

    def _operators(self) -> Any:
        return device_sections.operators(self._run, self._run.ranks, ALL_STEPS)
