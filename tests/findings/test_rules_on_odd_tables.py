"""No rule on logs and recorded steps fails on tables that are odd, only short of what it needs, or damaged."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.made_run import made_steps
from workbench.findings import (
    instability,
    label_leak,
    log_compiles,
    log_gaps,
    log_timeouts,
    lr_schedule,
    rank_waits,
    step_growth,
    training,
    version_change,
)
from workbench.findings.finding import Finding
from workbench.findings.rule_tables import of_all_runs, of_last_run
from workbench.tables import EVALS, EVENTS, LOG_MESSAGES, SETTINGS, STEP_TIME, TELEMETRY, TRAINING_STEPS

TOPICS = (instability, label_leak, log_compiles, log_gaps, log_timeouts, lr_schedule, rank_waits, step_growth,
          training, version_change)  # fmt: skip
SOURCES = pd.DataFrame({"file": ["a.log"], "kind": ["training_log"], "rank_id": [0], "window": [0], "tables": ["x"]})
KEYS = {"rank_id": 0, "step": 1, "kind": "gap", "line": 1, "file": "a.log", "source": "a.log", "name": "x",
        "value": "x", "metric": "loss", "subset": "s", "window": 0, "host": "h", "component": "c"}  # fmt: skip


def one_row(table):
    """A row with the required columns only."""
    row = {c.name: KEYS.get(c.name, 1) for c in table.columns if c.required or c.name in ("rank_id", "source", "file")}
    if table in (EVALS, TELEMETRY):
        row["value"] = 1.0
    if table is EVENTS:
        row["start_ns"] = 1
    return table.check(pd.DataFrame([row]))


BARE = {
    "training_steps": TRAINING_STEPS, "events": EVENTS, "evals": EVALS, "log_messages": LOG_MESSAGES,
    "settings": SETTINGS, "telemetry": TELEMETRY, "step_time": STEP_TIME,
}  # fmt: skip


def run(tables):
    """All rules of the topics on these tables."""
    every = of_all_runs(tables, SOURCES)
    last = of_last_run(every)
    rules = [r for topic in TOPICS for r in topic.RULES if all(n in tables for n in r.needs)]
    found = [f for r in rules for f in r.find(every if r.all_runs else last)]
    assert all(isinstance(f, Finding) for f in found)
    return found


def test_rows_that_hold_only_what_they_must():
    assert run({name: one_row(table) for name, table in BARE.items()}) == []
    for name, table in BARE.items():
        assert run({name: one_row(table)}) == []


@pytest.mark.parametrize("column", ["loss", "learning_rate", "gradient_norm", "step_us", "time_ns", "epoch", "source"])
@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_a_column_that_is_missing_or_zero(column, value):
    steps = TRAINING_STEPS.check(made_steps(80))
    if column == "source":
        steps = steps.assign(source=pd.NA if np.isnan(value) else "a.log")
    else:
        steps[column] = pd.array([pd.NA if np.isnan(value) else int(value)] * 80, dtype=steps[column].dtype) if str(
            steps[column].dtype
        ) == "Int64" else value  # fmt: skip
    run({"training_steps": steps, "events": one_row(EVENTS), "settings": one_row(SETTINGS)})


NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=60), st.integers(1, 3))
def test_any_numbers_at_all(rows, ranks):
    frame = pd.DataFrame(rows, columns=["loss", "learning_rate", "gradient_norm", "step_us"])
    frame = frame.assign(step=range(1, len(frame) + 1), rank_id=np.arange(len(frame)) % ranks, source="a.log")
    frame["loss_finite"] = np.isfinite(frame["loss"])
    run({"training_steps": TRAINING_STEPS.check(frame)})
