"""What a diagnosis cannot judge of a training, because too little of it is recorded."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analyses import instability, step_trend

STEPS_NEEDED = max(instability.STEPS_LEAST, step_trend.STEPS_LEAST)  # with fewer, no rule on a course says anything
MAIN_COLUMNS = {
    "loss": "loss",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "step_us": "step time",
}  # of `training_steps`, with the words for them


@dataclass(frozen=True, kw_only=True)
class Gap:
    """One thing that recorded steps do not allow to judge."""

    sentence: str  # what there is, and what it does not tell; without a full stop
    collect_with: str
    layers: tuple[str, ...]  # of `workbench.findings.verdict`

    def as_missing(self) -> dict[str, str]:
        """As an entry of `coverage.missing`."""
        return {"table": "training_steps", "costs": self.sentence, "collect_with": self.collect_with}


def gaps(training_steps: pd.DataFrame | None, *, has_profile: bool) -> tuple[Gap, ...]:
    """Too few steps for a course, and a loss that no step has. None where no step is recorded at all.

    Args:
        training_steps: steps of one job; a loss that is NaN counts as recorded.
        has_profile: whether profiled steps tell the speed.
    """
    if training_steps is None or training_steps.empty:
        return ()
    steps = int(training_steps["step"].nunique())
    if not _is_recorded(training_steps, "loss"):
        return (NO_LOSS,) if has_profile or steps >= STEPS_NEEDED else (_few(steps, has_profile=False), NO_LOSS)
    return (_few(steps, has_profile=has_profile),) if steps < STEPS_NEEDED else ()


def unrecorded(training_steps: pd.DataFrame | None) -> tuple[str, ...]:
    """Words for those of `MAIN_COLUMNS` that no step has, and for step times that cannot be."""
    if training_steps is None:
        return ()
    absent = [words for column, words in MAIN_COLUMNS.items() if not _is_recorded(training_steps, column)]
    odd = int((training_steps["step_us"] <= 0).sum())
    return (*absent, f"{odd} step times of zero or less") if odd else tuple(absent)


NO_LOSS = Gap(
    sentence="no step has a recorded loss, so the training itself is not judged",
    collect_with="let the training print or record the loss of its steps",
    layers=("stability",),
)


def _few(steps: int, *, has_profile: bool) -> Gap:
    count = f"{steps} recorded steps are" if steps > 1 else "one recorded step is"
    what = "the course of the training" if has_profile else "training and speed"
    return Gap(
        sentence=f"{count} too few to judge {what}: {STEPS_NEEDED} are needed",
        collect_with=f"let the training run for {STEPS_NEEDED} steps, and record each",
        layers=("stability",) if has_profile else ("stability", "efficiency"),
    )


def _is_recorded(training_steps: pd.DataFrame, column: str) -> bool:
    has_value = bool(training_steps[column].notna().any())
    return has_value or (column == "loss" and bool(training_steps["loss_finite"].notna().any()))
