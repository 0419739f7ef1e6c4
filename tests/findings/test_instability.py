import numpy as np
import pandas as pd
import pytest

from tests.made_run import made_steps
from workbench.findings.instability import (
    find_loss_normalisation,
    find_lr_too_high,
    find_odd_batches,
    find_resume_state_lost,
)
from workbench.findings.training import find_loss_spike
from workbench.tables import EVENTS, SETTINGS, TRAINING_STEPS

SEEDS = (0, 1, 2)


def steps(count=240, *, seed=0, **columns):
    return TRAINING_STEPS.check(made_steps(count, seed=seed, **columns))


def settings(**values):
    names = {"name": list(values), "value": [str(v) for v in values.values()]}
    return SETTINGS.check(pd.DataFrame(names).assign(source="run.json"))


def healthy(count=240, *, seed=0):
    """A loss that falls from 5.5 to 2.4, and its gradient norm."""
    random = np.random.default_rng(seed)
    step = np.arange(1, count + 1)
    loss = 2.4 + 3.1 * np.exp(-step / 40) + random.normal(0, 0.05, count)
    norm = (0.6 + 2 * np.exp(-step / 30)) * np.exp(random.normal(0, 0.15, count))
    return step, loss, norm


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("turn", "top"), [(25, 5.0), (60, 3.5), (120, 8.0)])
def test_a_loss_that_turns_upwards_for_good(seed, turn, top):
    step, loss, norm = healthy(seed=seed)
    away = 1 - np.exp(-np.clip(step - turn, 0, None) / 8)
    (found,) = find_lr_too_high(steps(seed=seed, loss=loss + away * (top - loss), gradient_norm=norm * (1 + 9 * away)))
    assert (found.cause, found.confidence, found.severity) == ("lr_too_high", "high", "critical")
    assert found.steps.first == pytest.approx(turn, abs=12)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_warm_up_and_a_loss_that_jumps_at_once(seed):
    step, loss, norm = healthy(seed=seed)
    jumped = np.where(step == 1, 5.5, loss + 4 * np.exp(-step / 30))
    made = steps(seed=seed, loss=jumped, gradient_norm=norm, learning_rate=0.05)
    (found,) = find_lr_too_high(made)
    assert (found.sub_cause, found.confidence, found.steps.first) == ("warmup_too_short", "high", 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_single_jump_in_the_first_steps_is_of_the_rate_only_without_warm_up(seed):
    step, loss, norm = healthy(seed=seed)
    jumped = np.where(step == 8, 9.0, loss)
    (found,) = find_lr_too_high(
        steps(seed=seed, loss=jumped, gradient_norm=norm, learning_rate=0.03 * (1 - step / 300))
    )
    assert (found.sub_cause, found.steps.first) == ("warmup_too_short", 1)
    warmed = 0.03 * np.minimum(step / 24, 1)
    assert find_lr_too_high(steps(seed=seed, loss=jumped, gradient_norm=norm, learning_rate=warmed)) == []
    tuned = np.where(step == 8, 1.5, 1.0 + 0.01 * np.sin(step))  # a tuned model has nothing left to learn
    assert find_lr_too_high(steps(seed=seed, loss=tuned, gradient_norm=norm, learning_rate=1e-5 + 0 * step)) == []


def test_a_jump_below_the_first_loss_tells_with_the_gradient_norm_alone():
    step, loss, norm = healthy()
    loss = np.select([step == 12, (step > 1) & (step < 40)], [5.4, 3.5], loss)
    norm = np.where(step == 12, 20.0, norm)
    (found,) = find_lr_too_high(steps(loss=loss, gradient_norm=norm, learning_rate=0.03 + 0 * step))
    assert (found.sub_cause, found.steps.first) == ("warmup_too_short", 1)
    assert found.evidence[1].value == 5.4
    assert "before step" not in found.fix
    level = np.where(step == 12, 2.0, norm)
    assert find_lr_too_high(steps(loss=loss, gradient_norm=level, learning_rate=0.03 + 0 * step)) == []


def test_what_is_no_rate_that_is_too_high():
    for seed in range(6):
        step, loss, norm = healthy(seed=seed)
        assert find_lr_too_high(steps(seed=seed, loss=loss, gradient_norm=norm)) == []
        harder = loss + 0.8 * (step > 120)  # other data from step 121 on: gradients as before
        assert find_lr_too_high(steps(seed=seed, loss=harder, gradient_norm=norm)) == []
        one = loss + 3 * (step == 150)
        assert find_lr_too_high(steps(seed=seed, loss=one, gradient_norm=norm)) == []
    assert find_lr_too_high(steps(20)) == []


def test_a_loss_that_fell_without_a_step_back_scatters_at_its_floor():
    """The first half falls so fast that no loss is off its running median; the other half scatters by 15 %."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        loss = (0.004 + 2.4 * np.exp(-np.arange(10, 610, 10) / 45)) * np.exp(random.normal(0, 0.15, 60))
        assert find_lr_too_high(steps(60, loss=loss.round(4), gradient_norm=np.nan)) == []


def test_parameters_that_outgrow_their_first_values_though_the_loss_falls():
    step, loss, norm = healthy()
    rates = 0.2 * np.minimum(step / 24, 1)
    weights = np.where(step % 50 == 1, 13.0 * np.exp(2 * np.clip((step - 1) / 50, 0, 1)), np.nan)  # 13 to 96
    (found,) = find_lr_too_high(steps(loss=loss, gradient_norm=norm, learning_rate=rates, parameter_norm=weights))
    assert (found.cause, found.severity, found.sub_cause) == ("lr_too_high", "warning", "parameters_outgrow")
    assert (found.steps.first, found.steps.last) == (1, 51)
    assert found.evidence[1].value == pytest.approx(13 * np.exp(2))
    slow = np.where(step % 50 == 1, 13.0 * (1 + step / 100), np.nan)  # doubled after 100 steps, 3.4 times at the end
    assert find_lr_too_high(steps(loss=loss, gradient_norm=norm, learning_rate=rates, parameter_norm=slow)) == []
    resumed = steps(loss=loss, gradient_norm=norm, learning_rate=rates, parameter_norm=weights)
    assert find_lr_too_high(resumed.assign(step=resumed["step"] + 500)) == []
    zeros = np.where(step % 50 == 1, np.where(step == 1, 0.0, 5.0), np.nan)  # adapters begin at nothing
    assert find_lr_too_high(steps(loss=loss, gradient_norm=norm, learning_rate=rates, parameter_norm=zeros)) == []


def test_without_warmup_parameters_that_double_tell_if_the_gradients_jump_too():
    step, loss, norm = healthy()
    doubled = np.where(step % 50 == 1, 13.0 * np.minimum(1 + (step - 1) / 50 * 1.3, 2.3), np.nan)  # 13 to 29.9
    given = {"loss": loss, "parameter_norm": doubled, "learning_rate": np.full(len(step), 0.03)}
    shocked = np.where(step == 7, 12 * np.median(norm), norm)
    (found,) = find_lr_too_high(steps(gradient_norm=shocked, **given))
    assert (found.sub_cause, found.steps.first, found.steps.last) == ("warmup_too_short", 1, 51)
    assert find_lr_too_high(steps(gradient_norm=norm, **given)) == []  # adapters grow fast, and calmly
    warmed = {**given, "learning_rate": 0.03 * np.minimum(step / 24, 1)}
    assert find_lr_too_high(steps(gradient_norm=shocked, **warmed)) == []


def odd(at, *, seed=0, width=2, heals=True, norm_times=12.0):
    step, loss, norm = healthy(seed=seed)
    for place in at:
        hit = (step >= place) & (step < place + width)
        loss = loss + 4.0 * hit + (0 if heals else 0.8 * (step >= place + width) * np.exp(-(step - place) / 25))
        norm = np.where(hit, norm * norm_times, norm)
    return steps(seed=seed, loss=loss, gradient_norm=norm)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("at", [(100,), (90, 170), (61, 120, 200)])
def test_odd_batches_with_and_without_clipping(seed, at):
    (found,) = find_odd_batches(odd(at, seed=seed), settings(clip_norm=1.0))
    assert (found.cause, found.confidence, found.severity) == ("bad_batch", "high", "warning")
    assert found.steps.list == at
    (unclipped,) = find_odd_batches(odd(at, seed=seed, width=1, heals=False), settings(clip_norm=None))
    assert (unclipped.cause, unclipped.confidence, unclipped.severity) == ("no_gradient_clipping", "high", "critical")
    assert unclipped.steps.list == at
    (unknown,) = find_odd_batches(odd(at, seed=seed))
    assert unknown.cause == "bad_batch"
    assert any(e.fact.startswith("not known: whether gradients are clipped") for e in unknown.evidence)


def test_a_jump_without_its_gradient_is_no_question_of_clipping():
    (found,) = find_odd_batches(odd((100,), norm_times=1.0), settings(clip_norm=0))
    assert (found.cause, found.confidence) == ("bad_batch", "medium")


def test_no_odd_batch_in_healthy_trainings():
    for seed in range(6):
        _, loss, norm = healthy(seed=seed)
        for clip in (None, 1.0):
            made = steps(seed=seed, loss=loss, gradient_norm=norm)
            assert find_odd_batches(made, settings(clip_norm=clip)) == []


def test_a_jump_in_the_warm_up_is_no_spike():
    step, loss, norm = healthy()
    warm = 1e-3 * np.minimum(step / 40, 1)
    early = steps(loss=loss + 1.5 * (step == 14), gradient_norm=norm, learning_rate=warm)
    assert find_loss_spike(early) == []
    assert find_odd_batches(early) == []
    late = steps(loss=loss + 1.5 * (step == 90), gradient_norm=norm, learning_rate=warm)
    assert [f.steps.list for f in find_loss_spike(late)] == [(90,)]


def start_event(step):
    return EVENTS.check(pd.DataFrame({"rank_id": [0], "kind": ["start"], "start_ns": [1], "step": [step]}))


@pytest.mark.parametrize("at", [60, 100, 170])
def test_a_schedule_that_begins_anew(at):
    step, loss, _ = healthy()
    since = np.where(step >= at, step - at + 1, step)
    rate = 1e-3 * np.minimum(since / 20, 1) * (1 - since / 300)
    made = steps(learning_rate=rate, loss=loss + 1.0 * (step >= at) * np.exp(-np.clip(step - at, 0, None) / 20))
    (found,) = find_resume_state_lost(made, start_event(at))
    assert (found.cause, found.sub_cause, found.confidence) == ("resume_state_lost", "schedule_restarted", "high")
    assert (found.steps.first, found.severity) == (at, "critical")
    assert find_resume_state_lost(made)[0].confidence == "medium"


def test_healthy_resumptions_and_schedules_are_no_lost_state():
    step = np.arange(1, 241)
    linear = 1e-3 * np.minimum(step / 20, 1) * (1 - step / 300)
    assert find_resume_state_lost(steps(learning_rate=linear), start_event(100)) == []
    warm_restarts = 1e-3 * (1 + np.cos(np.pi * (step % 60) / 60)) / 2
    assert find_resume_state_lost(steps(learning_rate=warm_restarts)) == []
    assert find_resume_state_lost(steps(learning_rate=1e-3 * 0.1 ** (step // 80))) == []


@pytest.mark.parametrize(
    ("count", "name"), [(2, "accumulation_steps"), (4, "gradient_accumulation_steps"), (8, "micro_batch_num")]
)
def test_a_loss_that_is_summed(count, name):
    step = np.arange(1, 241)
    loss = count * (2.4 + (np.log(256) - 2.4) * np.exp(-(step - 1) / 40))
    (found,) = find_loss_normalisation(steps(loss=loss), settings(vocabulary_size=256, **{name: count}))
    assert (found.cause, found.confidence, found.steps.first) == ("loss_normalisation", "high", 1)
    assert f"{name} is {count}" in found.title


def test_losses_that_are_no_sums():
    loss = 2.4 + 3.1 * np.exp(-np.arange(240) / 40)
    made = steps(loss=loss)
    assert find_loss_normalisation(made, settings(vocabulary_size=256, accumulation_steps=4)) == []
    assert find_loss_normalisation(made, settings(vocabulary_size=256)) == []
    assert find_loss_normalisation(steps(loss=2 * loss), settings(accumulation_steps=2)) == []
    later = steps(loss=4 * loss).assign(step=range(1001, 1241))
    assert find_loss_normalisation(later, settings(vocabulary_size=256, accumulation_steps=4)) == []


@pytest.mark.parametrize("seed", range(8))
def test_losses_of_small_batches_scatter_and_do_not_jump(seed):
    random, step = np.random.default_rng(seed), np.arange(1, 1001)
    loss = np.maximum(0.2, 1.6 + 1.4 * np.exp(-step / 300) + random.normal(0, 0.35, 1000))
    norm, rate = np.exp(random.normal(0, 0.4, 1000)), 2e-5 * (1 - step / 4000)
    made = steps(1000, seed=seed, loss=loss, gradient_norm=norm, learning_rate=rate)
    assert find_lr_too_high(made) == []
    risen = np.where((step > 2) & (step < 60), loss + 4, loss)  # eleven deviations above the first
    assert [f.sub_cause for f in find_lr_too_high(made.assign(loss=risen))] == ["warmup_too_short"]
