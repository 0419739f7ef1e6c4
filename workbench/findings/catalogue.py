"""Rules over the metric catalogue: what several layers say together, as evidence for the jump or slow-down they name.

They are of severity info: the rules on loss and step time judge how grave it is, and join with these.
"""

from __future__ import annotations

import pandas as pd

from workbench.analyses.cross_layer import READINGS, cross_layer_readings
from workbench.findings.finding import Evidence, Finding, Steps
from workbench.findings.rule import Rule

CAUSE_OF_SIGNAL = {"training_loss": "loss_spike", "step_time": "step_time_drift"}  # where it is up
CAUSES = {r.reading: next((c for s, c in CAUSE_OF_SIGNAL.items() if r.signals.get(s) == "up"), None) for r in READINGS}


def find_cross_layer(training_steps: pd.DataFrame) -> list[Finding]:
    """One finding per reading of a loss jump or a slow-down, at its first place.

    Args:
        training_steps: table `training_steps`.
    """
    readings = cross_layer_readings(training_steps)
    found = []
    for cause, group in _said(readings).groupby("cause", sort=False):
        for points_at, part in group.groupby("points_at", sort=False):
            first, last = int(part["first_step"].min()), int(part["last_step"].max())
            found.append(
                Finding(
                    cause=str(cause),
                    playbook="T1" if cause == "loss_spike" else "T2",
                    severity="info",
                    confidence="low",
                    title=f"{part['reading'].iloc[0].rstrip('.')} (steps {first} to {last}).",
                    fix=f"Look at: {points_at}.",
                    source="combinations of signals in blocks of steps (workbench.analyses.cross_layer)",
                    steps=Steps(first=first, last=last),
                    evidence=(
                        Evidence(fact=f"layers together: {part['signals'].iloc[0]}; points at", value=str(points_at),
                                 table="training_steps", where=f"steps {first} to {last}"),
                    ),
                )
            )  # fmt: skip
    return found


def _said(readings: pd.DataFrame) -> pd.DataFrame:
    """The readings of which a loss or a step time that is up is a part, with the cause word for it."""
    return readings.assign(cause=readings["reading"].map(CAUSES)).dropna(subset=["cause"])


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("loss_spike", "step_time_drift"),
        needs=("training_steps",),
        find=lambda t: find_cross_layer(t["training_steps"]),
    ),
)
