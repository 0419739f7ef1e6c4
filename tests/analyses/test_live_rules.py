import math

import pytest

from tests.made_run import made_steps
from workbench.analyses.live_rules import LiveRules, metric_rule
from workbench.errors import UnknownParameterError


def fed(steps, *rules):
    live = LiveRules([metric_rule(text) for text in rules])
    return [a for r in steps.to_dict("records") for a in live.feed(r, rank_id=r["rank_id"])]


def test_healthy_steps_raise_nothing():
    for seed in range(20):
        assert fed(made_steps(400, seed=seed)) == []


def test_one_stall_a_checkpoint_or_a_compilation_is_no_slow_training():
    steps = made_steps(300)
    steps.loc[[100, 150, 151, 200], "step_us"] = 5e6
    steps.loc[120:140, "compiled"] = True
    steps.loc[120:140, "step_us"] = 9e6
    assert fed(steps) == []


def test_slow_steps_once_and_again_after_they_were_over():
    steps = made_steps(400)
    steps.loc[100:199, "step_us"] *= 1.8
    steps.loc[300:, "step_us"] *= 1.8
    found = fed(steps)
    # the median of the last 20 counted steps passes 1.5 times when 11 of them are slow: after step 111, and 311
    assert [(a.step, a.severity) for a in found] == [(111, "warning"), (311, "warning")]
    assert [a.key for a in found] == ["slow_steps:rank_0", "slow_steps:rank_0:311"]
    assert "1.8 times the usual" in found[0].title


def test_waiting_for_data():
    steps = made_steps(200)
    steps.loc[100:, "data_wait_us"] = 45_000.0
    steps.loc[100:, "step_us"] += 45_000.0  # 45 of 145 ms; too little to count as slow
    found = fed(steps)
    assert [a.rule for a in found] == ["data_wait"]
    assert "of its time" in found[0].title


@pytest.mark.parametrize("loss", [math.nan, math.inf, "NaN", "-Infinity"])
def test_a_loss_that_is_not_finite(loss):
    live = LiveRules()
    assert live.feed({"step": 1, "loss": 2.0}, rank_id=3) == []
    found = live.feed({"step": 2, "loss": loss}, rank_id=3)
    assert [(a.key, a.severity, a.title) for a in found] == [
        ("loss_not_finite:rank_3", "critical", "The loss of rank 3 is not finite at step 2.")
    ]
    assert live.feed({"step": 3, "loss": loss}, rank_id=3) == []
    assert live.feed({"step": 4, "loss": 2.0}, rank_id=3) == []
    assert live.feed({"step": 5, "loss": loss}, rank_id=3)[0].key == "loss_not_finite:rank_3:5"
    assert live.feed({"step": 5, "loss": None, "loss_finite": False}, rank_id=4)[0].rank_id == 4


def test_a_loss_that_rises_and_one_that_spikes_for_a_step():
    steps = made_steps(300)
    steps.loc[200, "loss"] = 20.0
    assert fed(steps) == []  # one step
    steps.loc[200:, "loss"] = 6.0
    found = fed(steps)
    assert [(a.rule, a.step) for a in found] == [("loss_rise", 203)]  # three of the last five


def test_overflows_in_a_row():
    steps = made_steps(100)
    steps.loc[[20, 21, 40, 41, 42], "overflow"] = True
    assert fed(steps) == []
    steps.loc[60:75, "overflow"] = True
    assert [(a.rule, a.step) for a in fed(steps)] == [("overflows", 70)]


def test_rules_of_the_user():
    steps = made_steps(60).assign(gradient_norm=1.0)
    steps.loc[[9, 20, 21, 22, 23], "gradient_norm"] = 200.0
    found = fed(steps, "gradient_norm > 100 for 3 steps", "tokens<1")
    assert [(a.step, a.rule) for a in found] == [(23, "gradient_norm > 100 for 3 steps")]
    assert "200 at step 23" in found[0].title
    assert len(fed(steps, "gradient_norm > 1e2")) == 2
    assert fed(steps.drop(columns="gradient_norm"), "gradient_norm > 0") == []


@pytest.mark.parametrize(
    "text", ["", "loss", "loss > ", "loss >= 3", "loss > x", "loss > 3 for", "loss > 3 for 0 steps"]
)
def test_what_is_no_rule(text):
    with pytest.raises(UnknownParameterError, match="no rule for alerts"):
        metric_rule(text)


def test_a_rule_on_what_no_step_has():
    with pytest.raises(UnknownParameterError, match=r"no metric of a step[^$]*gradient_norm"):
        metric_rule("accuracy > 3")
    assert metric_rule(" step_us>2.5e6 for 4").text == "step_us > 2.5e+06 for 4 steps"


def test_no_step_for_long_by_the_ranks_own_pace():
    live, second = LiveRules(), 10**9
    for step in range(1, 80):
        live.feed({"step": step, "time_ns": step * 60 * second, "step_us": 60e6}, rank_id=0)  # a minute each
    last = 79 * 60 * second
    assert live.stalled(last + 2900 * second) == []  # fifty of its steps are 3000 s
    assert [a.severity for a in live.stalled(last + 3100 * second)] == ["critical"]
    assert live.stalled(last + 3200 * second) == []
    live.feed({"step": 80, "time_ns": last + 3300 * second, "step_us": 60e6}, rank_id=0)
    assert [a.key for a in live.stalled(last + 7000 * second)] == ["no_step_since_80:rank_0"]
    assert LiveRules().stalled(last) == []
