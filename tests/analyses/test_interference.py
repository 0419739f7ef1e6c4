"""Cost of evaluations on made steps: windows of other processes, time inside the training, what counts as a finding."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.made_run import BASE_NS, made_steps
from workbench.analyses.interference import OTHER, OWN, evaluation_cost, evaluation_windows, interference
from workbench.findings.interference import find_evaluation_interference
from workbench.tables import EVALS, EVENTS


def other_windows(*seconds: tuple[float, float], started=True) -> pd.DataFrame:
    """Evaluations by other processes, given as (start, end) in seconds after the run's beginning."""
    rows = []
    for k, (start, end) in enumerate(seconds):
        protocol = {"compile_seconds": 1.0} | ({"started_ns": int(BASE_NS + start * 1e9)} if started else {})
        for subset in ("a", "b"):
            rows.append({"kind": "checkpoint", "checkpoint": f"c{k}", "subset": subset, "metric": "loss", "value": 1.0,
                         "seconds": (end - start - 1) / 2, "time_ns": int(BASE_NS + end * 1e9), "evaluation_id": str(k),
                         "protocol": json.dumps(protocol)})  # fmt: skip
    return EVALS.check(pd.DataFrame(rows))


def slowed(factor: float, *windows: tuple[float, float], steps=400) -> pd.DataFrame:
    """Steps of 100 ms that take `factor` times as long while they end in a window."""
    frame = made_steps(steps=steps)
    now, ends = 9.0, []
    for k, step_us in enumerate(frame["step_us"]):
        inside = any(a <= now <= b for a, b in windows)
        frame.loc[k, "step_us"] = step_us * (factor if inside else 1.0)
        now += frame.loc[k, "step_us"] / 1e6 * (k > 0)
        ends.append(int(BASE_NS + now * 1e9))
    return frame.assign(time_ns=ends)


WINDOWS = ((15.0, 20.0), (30.0, 36.0))


@pytest.mark.parametrize("started", [True, False])
def test_the_slowdown_in_windows_and_its_cost(started):
    steps = slowed(1.3, *WINDOWS)
    windows = evaluation_windows(other_windows(*WINDOWS, started=started), None)
    assert windows["who"].tolist() == [OTHER, OTHER]
    assert ((windows["end_ns"] - windows["start_ns"]) / 1e9).tolist() == pytest.approx([5.0, 6.0])
    cost = evaluation_cost(steps, windows).set_index("who").loc[OTHER]
    assert cost["slowdown_share"] == pytest.approx(0.3, abs=0.02)
    assert 0.2 < cost["low"] < cost["slowdown_share"] < cost["high"] < 0.4
    assert cost["steps"] == pytest.approx(11 / 0.13, abs=3)  # 11 s of steps that take 130 ms
    assert cost["cost_us"] == pytest.approx(11e6 * 0.3 / 1.3, rel=0.1)
    (finding,) = find_evaluation_interference(steps, other_windows(*WINDOWS))
    assert finding.cause == "evaluation_interference"
    assert finding.saves_us_per_step == pytest.approx(cost["cost_us"] / 400)


def test_evaluations_that_disturb_nothing_are_silent():
    steps = slowed(1.0, *WINDOWS)
    cost = evaluation_cost(steps, evaluation_windows(other_windows(*WINDOWS), None)).set_index("who").loc[OTHER]
    assert abs(cost["slowdown_share"]) < 0.02
    assert find_evaluation_interference(steps, other_windows(*WINDOWS)) == []


def test_a_drift_over_the_run_is_no_interference():
    steps = made_steps(steps=400)
    steps["step_us"] *= np.linspace(1, 1.5, 400)
    steps["time_ns"] = BASE_NS + (steps["step_us"].cumsum() * 1000).astype("int64")
    cost = evaluation_cost(steps, evaluation_windows(other_windows((20.0, 25.0)), None)).set_index("who").loc[OTHER]
    assert abs(cost["slowdown_share"]) < 0.02


def inline_events(*seconds: float) -> pd.DataFrame:
    rows = [{"rank_id": 0, "kind": "eval", "start_ns": BASE_NS + int((10 + 2 * k) * 1e9), "duration_us": s * 1e6,
             "name": "inline"} for k, s in enumerate(seconds)]  # fmt: skip
    return EVENTS.check(pd.DataFrame(rows))


def test_time_inside_the_training_against_its_budget():
    steps = made_steps(steps=200)
    steps.loc[50, "callbacks_us"] += 3e6
    windows = evaluation_windows(None, inline_events(1.0, 2.0))
    cost = evaluation_cost(steps, windows).set_index("who").loc[OWN]
    rest_us = (steps["step_us"] + steps["callbacks_us"]).sum() - 3e6
    assert cost["cost_us"] == pytest.approx(3e6)
    assert cost["cost_share"] == pytest.approx(3e6 / rest_us)
    (finding,) = find_evaluation_interference(steps, None, inline_events(1.0, 2.0))
    assert finding.sub_cause == "inline_over_budget"
    assert find_evaluation_interference(steps, None, inline_events(0.5, 0.5)) == []


def test_a_log_that_prints_every_tenth_step_tells_of_all_of_them():
    """400 steps of 100 ms are 40 s, of which 40 lines tell 4 s: evaluations of 1.5 s are 3.75 % and not half."""
    every = made_steps(steps=400).assign(step_us=100e3, callbacks_us=np.nan, compiled=False)
    printed = every[every["step"] % 10 == 0]
    share = evaluation_cost(printed, evaluation_windows(None, inline_events(0.75, 0.75)))["cost_share"].iloc[0]
    told_s = 0.1 * (int(printed["step"].max()) - int(printed["step"].min()) + 1)
    assert share == pytest.approx(1.5 / (told_s - 1.5))
    assert find_evaluation_interference(printed, None, inline_events(0.75, 0.75)) == []
    (finding,) = find_evaluation_interference(printed, None, inline_events(2.0, 2.0))
    assert finding.saves_us_per_step == pytest.approx(4e6 / (told_s / 0.1))


def test_evaluations_behind_the_last_recorded_step_do_not_count():
    """Steps of a run that was cut off, or whose file is torn, with all of its evaluations."""
    windows = evaluation_windows(None, inline_events(1.0, 2.0))
    first = windows[:1].assign(start_ns=BASE_NS, end_ns=BASE_NS + 10**9)
    later = windows[:1].assign(start_ns=BASE_NS + 10**15, end_ns=BASE_NS + 10**15 + 10**9)
    both = pd.concat([first, later], ignore_index=True)
    assert evaluation_cost(made_steps(steps=200), both).set_index("who").loc[OWN, "windows"] == 1
    assert evaluation_cost(made_steps(steps=200), later).empty


def test_steps_shorter_than_the_evaluations_inside_them_tell_no_share():
    steps = made_steps(steps=200).assign(step_us=0.0)
    assert np.isnan(evaluation_cost(steps, evaluation_windows(None, inline_events(1.0, 2.0)))["cost_share"].iloc[0])
    assert find_evaluation_interference(steps, None, inline_events(1.0, 2.0)) == []


def test_an_evaluation_beside_the_training_that_it_recorded_itself_is_no_time_inside_it():
    events = inline_events(1.0, 2.0).assign(detail='{"process_ids":[17]}')
    assert set(evaluation_windows(None, events)["who"]) == {OTHER}


def test_a_busy_host_is_told():
    steps = slowed(1.3, *WINDOWS)
    time_ns = BASE_NS + np.arange(9, 60) * 10**9
    inside = np.array([any(a <= s <= b for a, b in WINDOWS) for s in np.arange(9, 60)])
    telemetry = pd.DataFrame({"metric": "host_cpu_share", "time_ns": time_ns, "value": np.where(inside, 0.99, 0.5)})
    (finding,) = find_evaluation_interference(steps, other_windows(*WINDOWS), None, telemetry)
    assert finding.sub_cause == "host_busy"


def test_without_evaluations_there_is_no_cost():
    steps = made_steps(steps=50)
    empty = evaluation_windows(None, None)
    assert evaluation_cost(steps, empty).empty
    assert interference(steps, empty).empty
    assert find_evaluation_interference(steps) == []
