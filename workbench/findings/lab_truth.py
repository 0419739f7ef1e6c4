"""A training of the fault lab: what was planned against what a diagnosis of its files says."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workbench.findings.finding import Finding
from workbench.probes.lab_faults import FAULTS, HEALTHY, Planned

NO_FAULT = "healthy"
COLUMNS = ["what", "planned", "found", "agrees"]


def first_alarm(findings: Sequence[Finding]) -> Finding | None:
    """The first finding at warning or above."""
    return next((f for f in findings if f.severity != "info"), None)


def compared(fault: str, plan: Planned, findings: Sequence[Finding]) -> pd.DataFrame:
    """The plan beside the first alarm.

    Args:
        fault: name in `workbench.probes.lab.FAULTS`, or of a healthy variant.
        plan: what `run_lab` returned.
        findings: of the run, most costly first.

    Returns:
        Columns what (cause, first step, rank, subset), planned, found, agrees; one row for the cause, and one for each
        place that the plan fixes.
    """
    first = first_alarm(findings)
    kind = FAULTS.get(fault)
    cause = NO_FAULT if kind is None else kind.cause
    named = NO_FAULT if first is None else first.cause
    rows: list[tuple[str, object, object, bool]] = [("cause", cause, named, cause == named)]
    if first is not None and kind is not None:
        if plan.onset is not None:
            seen = first.steps.list[0] if first.steps.list else first.steps.first
            near = seen is not None and abs(seen - plan.onset) <= kind.onset_tolerance
            rows.append(("first step", plan.onset, seen, near))
        if plan.rank is not None:
            rows.append(("rank", plan.rank, first.culprit.rank, plan.rank == first.culprit.rank))
        if plan.subset is not None:
            rows.append(("subset", plan.subset, first.culprit.subset, plan.subset == first.culprit.subset))
    return pd.DataFrame(rows, columns=COLUMNS)


def faults() -> pd.DataFrame:
    """What the lab can train: columns name, cause (as the diagnosis calls it, or healthy), what is wrong."""
    rows = [(name, kind.cause, kind.what) for name, kind in FAULTS.items()]
    rows += [(name, NO_FAULT, "") for name in HEALTHY]
    return pd.DataFrame(rows, columns=["name", "cause", "what is wrong"]).set_index("name")
