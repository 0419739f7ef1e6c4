import numpy as np
import pandas as pd
import pytest

from tests.made_run import BASE_NS, made_steps
from workbench.findings.rank_waits import find_slow_rank
from workbench.findings.step_time import (
    find_checkpoint_stall,
    find_data_starved,
    find_evaluation_interference,
    find_recompile,
    find_stall_steps,
)
from workbench.tables import EVENTS, TRAINING_STEPS

RULES = (find_data_starved, find_stall_steps, find_recompile, find_slow_rank)
EVENT_RULES = (find_checkpoint_stall, find_evaluation_interference)


def test_healthy_and_empty_runs_find_nothing():
    for seed in range(10):
        steps = pd.concat([made_steps(400, rank_id=r, seed=seed) for r in range(2)])
        assert [f for rule in RULES for f in rule(steps)] == []
        assert [f for rule in EVENT_RULES for f in rule(steps, EVENTS.empty())] == []
    assert [f for rule in RULES for f in rule(TRAINING_STEPS.empty())] == []


def test_starvation_says_share_and_gain():
    steps = made_steps(100)
    steps = steps.assign(data_wait_us=40_000.0, step_us=steps.step_us + 40_000)
    found = find_data_starved(steps)[0]
    assert found.saves_us_per_step == 40_000
    assert found.evidence[0].value == pytest.approx(40 / 140, rel=0.02)
    assert found.severity == "warning"


def test_one_stall_in_a_hundred_steps_is_a_warning_with_its_cost():
    steps = made_steps(100)
    steps.loc[50, "step_us"] += 200_000
    found = find_stall_steps(steps)[0]
    wall_us = steps.step_us.sum() + steps.callbacks_us.sum()
    assert found.severity == ("warning" if 200_000 / wall_us >= 0.01 else "info")
    assert found.steps.list == (51,)
    assert found.saves_us_per_step == pytest.approx(200_000 / 100, rel=0.05)
    assert found.sub_cause == "unknown"


def noisy(count, *, seed=0):
    """Steps of a host whose cores are shared: they scatter by a third."""
    steps = made_steps(count)
    steps["step_us"] *= np.exp(np.random.default_rng(seed).normal(0.0, 0.3, count))
    return steps


def test_stalls_among_unsteady_steps_are_no_alarm_until_they_cost_much():
    steps = noisy(200)
    steps.loc[100, "step_us"] += 1_500_000
    (found,) = find_stall_steps(steps)
    assert (found.severity, found.sub_cause) == ("info", "unknown")
    steps.loc[[50, 150], "step_us"] += 5_000_000
    assert find_stall_steps(steps)[0].severity == "warning"


def test_a_stall_with_a_reason_is_an_alarm_among_unsteady_steps_too():
    steps = noisy(200)
    steps.loc[100, ["step_us", "data_wait_us"]] += 1_500_000
    (found,) = find_stall_steps(steps)
    assert (found.severity, found.sub_cause) == ("warning", "data_wait")


def test_hiccups_of_a_tiny_training_are_no_alarm():
    steps = made_steps(100)
    steps["step_us"] /= 10
    steps.loc[50, "step_us"] += 80_000
    assert [f.severity for f in find_stall_steps(steps)] == ["info"]


def saving(steps, *, every, duration_us, kind="checkpoint"):
    """Steps with saving after each `every` steps, and its events."""
    after = steps["step"] % every == 1
    after &= steps["step"] > 1
    steps = made_steps(len(steps), callbacks_us=np.where(after, duration_us, 40.0))
    begin = steps.time_ns - ((steps.step_us + steps.callbacks_us) * 1000).astype("int64")
    events = pd.DataFrame({"rank_id": 0, "kind": kind, "start_ns": begin[after], "duration_us": duration_us - 1,
                           "step": steps.step[after] - 1})  # fmt: skip
    return steps, EVENTS.check(events)


def test_saving_that_stops_training():
    steps, events = saving(made_steps(300), every=100, duration_us=2e6)
    found = find_checkpoint_stall(steps, events)[0]
    share = 2 * 2e6 / (steps.step_us.sum() + steps.callbacks_us.sum())
    assert found.evidence[0].value == pytest.approx(share, rel=1e-3)
    assert found.saves_us_per_step == pytest.approx(2 * 2e6 / 300, rel=1e-3)
    assert find_stall_steps(steps, events) == []  # has a rule of its own


def test_cheap_saving_is_no_finding():
    assert find_checkpoint_stall(*saving(made_steps(300), every=100, duration_us=1e5)) == []


def test_evaluation_over_its_budget():
    dear = saving(made_steps(400), every=100, duration_us=4e6, kind="eval")
    assert "3 evaluations inside the training" in find_evaluation_interference(*dear)[0].title
    once = saving(made_steps(400), every=300, duration_us=4e6, kind="eval")
    assert find_evaluation_interference(*once) == []


def test_compiling_again_but_not_when_resuming():
    steps = made_steps(200)
    steps.loc[[100, 150], ["step_us", "compiled"]] = [3e6, True]
    starts = EVENTS.check(
        pd.DataFrame({"rank_id": 0, "kind": "start", "start_ns": [BASE_NS, BASE_NS], "step": [1, 101]})
    )
    assert find_recompile(steps)[0].steps.list == (101, 151)
    assert find_recompile(steps, starts)[0].steps.list == (151,)


def test_the_rank_whose_input_is_late_and_not_those_that_wait():
    ranks = [made_steps(100, rank_id=r) for r in range(4)]
    for rank in ranks:
        rank["step_us"] += 30_000  # all wait for rank 2
    ranks[2]["data_wait_us"] += 30_000
    assert find_data_starved(pd.concat(ranks)) == []  # three of four ranks have their data in time
    found = find_slow_rank(pd.concat(ranks))
    assert [(f.cause, f.culprit.rank, f.sub_cause) for f in found] == [("data_starved", 2, "one_rank")]
    assert found[0].saves_us_per_step == pytest.approx(30_000, rel=0.05)


def test_of_two_ranks_one_is_compared_with_the_other():
    ranks = [made_steps(100, rank_id=r) for r in range(2)]
    for rank in ranks:
        rank["step_us"] += 30_000
    ranks[1]["data_wait_us"] += 30_000
    (found,) = find_slow_rank(pd.concat(ranks))
    assert found.culprit.rank == 1
    assert found.saves_us_per_step == pytest.approx(30_000, rel=0.05)


def test_the_rank_that_is_late_between_steps_and_not_its_victim():
    late, victim = (made_steps(100, rank_id=r) for r in range(2))
    late["callbacks_us"] += 40_000  # the other one waits so long in the collective of its step
    victim["step_us"] += 40_000
    (found,) = find_slow_rank(pd.concat([late, victim]))
    assert (found.cause, found.sub_cause, found.culprit.rank) == ("slow_rank", "callbacks", 0)
    assert found.saves_us_per_step == pytest.approx(40_000, rel=0.05)


def test_no_rank_is_named_where_only_the_steps_differ_and_end_together():
    ranks = [made_steps(100, rank_id=r) for r in range(2)]
    ranks[1]["step_us"] += 30_000  # it waits for rank 0, which is late for a reason that nobody recorded
    (found,) = find_slow_rank(pd.concat(ranks))
    assert (found.severity, found.confidence, found.culprit.rank) == ("info", "low", None)


def test_an_unsynchronised_slow_rank():
    ranks = [made_steps(100, rank_id=r) for r in range(4)]
    ranks[3]["step_us"] *= 1.3
    ranks[3]["time_ns"] = BASE_NS + (ranks[3]["step_us"].cumsum() * 1000).astype("int64")
    found = find_slow_rank(pd.concat(ranks))[0]
    assert (found.culprit.rank, found.confidence) == (3, "medium")


def test_a_rank_recorded_for_a_while_is_compared_over_that_while():
    """All steps grow slower after step 40, from where on rank 1 is not recorded: rank 0 is not the slow one."""
    ranks = [made_steps(200, rank_id=r) for r in range(2)]
    for rank in ranks:
        rank.loc[40:, "callbacks_us"] += 50_000
    assert find_slow_rank(pd.concat([ranks[0], ranks[1].head(40)])) == []
