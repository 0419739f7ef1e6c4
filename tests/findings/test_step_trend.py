import numpy as np
import pytest

from tests.analyses.test_step_trend import noisy, series
from tests.made_run import made_steps
from workbench.analyses.step_trend import job_step_times
from workbench.findings.step_trend import find_step_time_drift


def test_a_slow_phase_is_told_with_onset_recovery_and_cost():
    (found,) = find_step_time_drift(series(noisy([(100e3, 200), (115e3, 100), (100e3, 100)])))
    assert (found.cause, found.sub_cause, found.severity) == ("step_time_drift", "jump", "warning")
    assert (found.steps.first, found.steps.last) == (pytest.approx(201, abs=4), pytest.approx(300, abs=4))
    assert found.saves_us_per_step == pytest.approx(15e3 * 100 / 400, rel=0.1)
    assert "recover" in found.title


def test_a_lasting_jump_has_no_recovery():
    (found,) = find_step_time_drift(series(noisy([(100e3, 100), (130e3, 100)])))
    assert "since step" in found.title
    assert {e.fact: e.value for e in found.evidence}["recovered"] == "no"


def test_a_creep_is_told_with_its_line():
    times = series(noisy([(100e3, 400)]) * np.linspace(1, 1.4, 400))
    (found,) = find_step_time_drift(times)
    assert (found.sub_cause, found.severity) == ("creep", "warning")
    # from the first tenth, whose median lies at 5 % of the rise of 40 ms, to the mean at 50 %
    assert found.saves_us_per_step == pytest.approx(0.45 * 40e3, rel=0.05)


def test_a_late_creep_is_told_by_what_was_measured():
    times = series(noisy([(100e3, 600)]) * np.concatenate([np.ones(300), np.linspace(1, 1.25, 300)]))
    (found,) = find_step_time_drift(times)
    facts = {e.fact: e.value for e in found.evidence}
    assert facts["typical step of the first tenth"] == pytest.approx(100e3, rel=0.01)  # a line would begin below
    assert facts["typical step of the last tenth"] == pytest.approx(122.5e3, rel=0.01)  # 90 % of the rise
    assert found.saves_us_per_step == pytest.approx(25e3 / 4, rel=0.1)  # half the steps, half the rise


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_has_no_drift(seed):
    assert find_step_time_drift(job_step_times(made_steps(400, seed=seed))) == []


def test_a_run_that_gets_faster_is_no_alarm():
    (found,) = find_step_time_drift(series(noisy([(130e3, 50), (100e3, 150)])))
    assert found.severity == "info"


def test_a_slow_phase_that_is_unsteady_or_costs_nothing_is_no_alarm():
    times = noisy([(100e3, 200), (150e3, 60), (100e3, 100)])
    (found,) = find_step_time_drift(series(times))
    assert found.severity == "warning"
    (cheap,) = find_step_time_drift(series(times / 10))  # 0.3 s of 4 s
    assert cheap.severity == "info"
    held_up = times * np.where(times > 125e3, np.random.default_rng(0).uniform(0.8, 1.2, len(times)), 1.0)
    (shared,) = find_step_time_drift(series(held_up))
    assert shared.severity == "info"
    (sampled,) = find_step_time_drift(series(times / 10), table="step_time")
    assert sampled.severity == "warning"


def test_the_part_that_grew_is_named():
    steps = made_steps(300)
    steps["data_wait_us"] += 30_000.0 * (steps["step"] > 150)
    steps["step_us"] += 30_000.0 * (steps["step"] > 150)
    (found,) = find_step_time_drift(job_step_times(steps))
    assert {e.fact: e.value for e in found.evidence}["growth of waiting for data"] == pytest.approx(30_000, rel=0.05)
