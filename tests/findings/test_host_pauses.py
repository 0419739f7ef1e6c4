import pandas as pd
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.made_run import made_steps
from workbench.findings.diagnosis import RULES
from workbench.findings.host_pauses import find_gc_jitter
from workbench.findings.joining import join
from workbench.findings.step_time import find_stall_steps
from workbench.tables import EVENTS

PAUSED = (40, 80, 120)
PAUSE_US = 400_000.0


def paused_run(*, explained=True):
    """A training whose steps 40, 80 and 120 take 0.4 s longer, with a collection of that length in each."""
    usual = made_steps(160)
    longer = usual["step"].isin(PAUSED)
    steps = made_steps(160, step_us=usual["step_us"] + PAUSE_US * longer)
    kind = "gc" if explained else "alert"
    begin = steps.loc[longer, "time_ns"] - int((PAUSE_US + 10_000) * 1e3)  # ends 10 ms before the step does
    rows = [{"rank_id": 0, "kind": kind, "start_ns": ns, "duration_us": PAUSE_US} for ns in begin]
    events = EVENTS.check(pd.DataFrame(rows).reindex(columns=[c.name for c in EVENTS.columns]))
    return steps, events


def test_steps_that_collecting_stops_are_named():
    (found,) = find_gc_jitter(*paused_run())
    assert (found.cause, found.severity, found.steps.list) == ("host_gc_jitter", "warning", PAUSED)
    assert found.saves_us_per_step == pytest.approx(3 * PAUSE_US / 160, rel=0.05)
    assert "gc.freeze()" in found.fix


def test_the_stalls_are_its_symptom():
    steps, events = paused_run()
    stalls = find_stall_steps(steps, events)
    assert stalls[0].sub_cause == "gc"
    joined = {f.cause: f for f in join([*stalls, *find_gc_jitter(steps, events)])}
    assert joined["host_gc_jitter"].severity == "warning"
    assert joined["stall_steps"].severity == "info"


def test_pauses_that_stop_no_step_are_no_finding():
    _, events = paused_run()
    assert find_gc_jitter(made_steps(160), events) == []


def test_stalls_without_pauses_are_no_finding():
    assert find_gc_jitter(*paused_run(explained=False)) == []


def test_pauses_between_lines_that_state_no_step_time(tmp_path):
    """torchtitan prints tokens per second; each 40th of 400 steps of 1 s takes 2.5 s more, which are collected in."""
    start, text, now = "[rank0]:2026-01-05 {}:{:02d}:{:02d},000 - root - INFO - ", "", 0.0
    stamp = lambda s: start.format(10 + int(s) // 3600, int(s) % 3600 // 60, int(s) % 60)  # noqa: E731
    for step in range(1, 401):
        now += 1.0
        if step % 40 == 0:
            now += 2.5
            text += stamp(now) + "[GC] Peforming periodical GC collection. 2.50 seconds.\n"
        text += stamp(now) + f"step: {step}  loss:  5.2553  grad_norm:  1.47  tps: 5,868  mfu: 34.36%\n"
    (found,) = [f for f in wb.diagnose(write_logs(tmp_path, {"rank_0.log": text})).causes if f.severity != "info"]
    assert (found.cause, found.severity, found.confidence) == ("host_gc_jitter", "warning", "high")
    assert found.steps.list == tuple(range(39, 400, 40))
    assert found.saves_us_per_step == pytest.approx(25e6 / 400, rel=0.2)  # times of whole seconds


def test_the_diagnosis_has_the_rule():
    assert [r.needs for r in RULES if "host_gc_jitter" in r.causes] == [("training_steps", "events")]
