"""The controller of inline evaluation on made costs, steps and losses: budget, cadence, queue."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.probes.inline_budget import InlineBudget


def simulated(budget, *, steps, step_seconds=0.1, costs=None, first=0.0, losses=None):
    """Decisions and costs of a made training; `costs` are seconds per subset, `first` is added to the first one."""
    costs = costs or {"a": 0.05, "b": 0.05}
    queue, decisions, training = list(costs), [], 0.0
    for step in range(1, steps + 1):
        training += step_seconds
        budget.loss(None if losses is None else float(losses[step - 1]))
        guesses = {s: step_seconds for s in queue}
        waiting = first if not any(d.subsets for d in decisions) else 0.0
        decision = budget.decide(step, guesses, training_seconds=training, compile_seconds=waiting)
        if decision is None:
            continue
        decisions.append(decision)
        if decision.subsets:
            part = {s: costs[s] for s in decision.subsets}
            budget.spent(sum(part.values()) + waiting, by_subset=part)
            queue = [s for s in queue if s not in part] + list(part)
    return decisions, training


def test_cheap_evaluations_come_at_the_fixed_interval():
    budget = InlineBudget(every=50)
    decisions, _ = simulated(budget, steps=200)
    # 0.1 s for both, every 5 s of training: 2 %
    assert [d.step for d in decisions] == [50, 100, 150, 200]
    assert {d.subsets for d in decisions} == {("a", "b")}
    assert math.isclose(budget.spent_seconds, 0.4)


def test_a_first_compilation_is_waited_for_until_it_is_earned():
    budget = InlineBudget(every=10)
    decisions, _ = simulated(budget, steps=1000, first=2.0)
    begun = next(d for d in decisions if d.subsets)
    # 2 s for the graph and 0.1 s as guessed for `a`, of 5 % of 0.1 s per step: 2.1 / 0.005 = 420 steps
    assert begun.step in (420, 421)
    assert decisions[0].reason == "budget"
    assert decisions[0].subsets == ()
    assert len([d for d in decisions if d.step < begun.step]) <= 3  # decided ahead, not tried at every step


def test_without_control_every_interval_is_paid_for():
    budget = InlineBudget(every=10, controlled=False)
    decisions, training = simulated(budget, steps=300, costs={"a": 1.0})
    assert len(decisions) == 30
    assert budget.spent_seconds / training == pytest.approx(1.0)  # 30 s on 30 s
    assert {d.reason for d in decisions} == {"fixed interval"}


def test_subsets_take_turns_when_one_round_is_too_dear():
    costs = {"a": 0.2, "b": 0.2, "c": 0.2}
    decisions, _ = simulated(InlineBudget(every=50), steps=2000, costs=costs)
    seen = [s for d in decisions for s in d.subsets]
    assert seen[:6] == ["a", "b", "c", "a", "b", "c"]
    counts = [seen.count(s) for s in costs]
    assert max(counts) - min(counts) <= 1


def test_a_volatile_loss_is_watched_more_closely_and_a_steady_one_less():
    random = np.random.default_rng(0)
    calm = np.cumsum(random.normal(0, 0.01, 800))
    volatile = np.concatenate([calm[:400], calm[399] + random.normal(0, 0.2, 400)])
    steady = np.concatenate([random.normal(0, 0.2, 400), random.normal(0, 0.01, 400)])
    gaps = {}
    for name, losses in {"volatile": volatile, "steady": steady}.items():
        decisions, _ = simulated(InlineBudget(every=50), steps=800, costs={"a": 0.001}, losses=losses)
        after = [d for d in decisions if d.step > 430]
        gaps[name] = after[0].next_step - after[0].step
        assert {f"loss {name}"} == {after[0].reason}
    assert gaps["volatile"] == 10  # a fifth of 50
    assert gaps["steady"] == 200  # four times 50


def test_losses_that_are_not_numbers_count_as_volatile():
    losses = np.where(np.arange(200) < 150, np.tile([1.0, 1.1], 100), np.nan)
    decisions, _ = simulated(InlineBudget(every=50), steps=200, costs={"a": 0.001}, losses=losses)
    late = next(d for d in decisions if d.step >= 200)
    assert late.reason == "loss volatile"
    assert late.wanted_steps == 10


@settings(max_examples=40, deadline=None)
@given(
    every=st.integers(1, 80),
    costs=st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=4),
    first=st.floats(0, 20),
    step_seconds=st.floats(0.01, 2.0),
    seed=st.integers(0, 1000),
)
def test_what_is_known_beforehand_never_breaks_the_budget(every, costs, first, step_seconds, seed):
    """With costs no larger than expected, spent / training time is at most the share at any moment."""
    named = {f"s{i}": min(c, step_seconds) for i, c in enumerate(costs)}  # the guess is a training step
    random = np.random.default_rng(seed)
    losses = np.where(random.random(600) < 0.02, np.nan, random.normal(0, random.gamma(1, 1, 600)))
    budget = InlineBudget(every=every)
    decisions, _ = simulated(budget, steps=600, step_seconds=step_seconds, costs=named, first=first, losses=losses)
    spent = 0.0
    for decision in decisions:
        assert decision.next_step > decision.step
        part = sum(named[s] for s in decision.subsets) + (first if decision.subsets and spent == 0 else 0.0)
        spent += part
        assert spent <= 0.05 * decision.training_seconds * (1 + 1e-9)
