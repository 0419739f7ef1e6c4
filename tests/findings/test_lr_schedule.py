import numpy as np
import pandas as pd
import pytest

from tests.log_text import read_text
from tests.rendered_logs import huggingface, llama_factory, megatron, mindformers, series
from workbench.findings.lr_schedule import find_lr_schedule_error
from workbench.tables import TRAINING_STEPS

WRITERS = {"mindformers": mindformers, "megatron": megatron, "huggingface": huggingface, "llama_factory": llama_factory}


def find(folder, frame, *, writer=mindformers, planned, head=""):
    text = head + (writer(frame, planned=planned) if planned else writer(frame, planned=99999))
    readings = read_text(folder, text, name="trainer_log.txt")
    settings = readings["settings"].table if "settings" in readings else None
    settings = settings if planned else None
    return find_lr_schedule_error(readings["training_steps"].table, settings)


def linear(planned, *, times, every, peak=3e-4, warmup=0, until=None, seed=0, clamp=False, turn=True):
    """A linear decay that runs `times` as fast as planned; the loss turns where the rate is gone."""
    random = np.random.default_rng(seed)
    step = np.arange(every, (until or planned) + 1, every)
    rate = peak * np.minimum(step / warmup if warmup else 1.0, 1 - times * (step - warmup) / (planned - warmup))
    gone = planned / times
    loss = 2 + 3 * np.exp(-step / (0.15 * planned)) + turn * 4 * np.clip(step - gone, 0, None) / planned
    loss += random.normal(0, 0.03, len(step))
    return series(step, loss=loss, lr=np.maximum(rate, 0) if clamp else rate, ms=1000 + random.normal(0, 5, len(step)))


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize(("planned", "times", "every"), [(2000, 2, 20), (900, 4, 5), (30000, 1.5, 300)])
def test_a_rate_below_zero_is_found_with_its_step(tmp_path, writer, planned, times, every):
    frame = linear(planned, times=times, every=every, seed=planned)
    (found,) = find(tmp_path, frame, writer=writer, planned=planned)
    assert (found.cause, found.sub_cause, found.confidence, found.severity) == (
        "lr_schedule_error", "below_zero", "high", "critical",
    )  # fmt: skip
    assert found.steps.first == pytest.approx(planned / times, abs=every)
    assert fact(found, "planned steps per step to zero") == pytest.approx(times, rel=0.02)
    assert fact(found, "fall of the rate per step") == pytest.approx(times, rel=0.02)
    assert fact(found, "step of the lowest loss") == pytest.approx(planned / times, abs=0.1 * planned)
    assert fact(found, "steps printed with a negative") == (frame.lr < 0).sum()


def test_the_counter_that_fits_is_named(tmp_path):
    head = "global_batch_size = batch_size_per_card * device_num * gradient_accumulation_steps = 4 * 1 * 8 = 32\n"
    (found,) = find(tmp_path, linear(4000, times=8, every=10, until=1500), planned=4000, head=head)
    assert "not 8 times (gradient_accumulation_steps)" in found.fix
    assert fact(found, "gradient_accumulation_steps") == 8


def test_a_clamped_rate_that_ends_early(tmp_path):
    (found,) = find(tmp_path, linear(2000, times=2, every=20, clamp=True, turn=False), planned=2000)
    assert (found.sub_cause, found.severity, found.steps.first) == ("ends_early", "warning", 1000)
    (unplanned,) = find(tmp_path, linear(2000, times=2, every=20, clamp=True, turn=False), planned=None)
    assert (unplanned.sub_cause, unplanned.confidence) == ("ended", "medium")
    assert any(e.fact.startswith("not known: the planned steps") for e in unplanned.evidence)


def test_a_run_that_still_goes_is_warned_ahead(tmp_path):
    (found,) = find(tmp_path, linear(2000, times=2, every=10, until=600, warmup=50), planned=2000)
    assert (found.sub_cause, found.severity) == ("will_end_early", "warning")
    assert found.steps.first == pytest.approx(50 + 1950 / 2, abs=5)  # peak at 50, zero after half of the rest


def test_a_cosine_that_runs_over_its_end(tmp_path):
    step = np.arange(10, 2001, 10)
    over = series(step, lr=1e-4 * (1 + np.cos(np.pi * step / 1200)) / 2)
    (found,) = find(tmp_path, over, planned=2000)
    assert (found.sub_cause, found.confidence) == ("over_its_end", "medium")
    assert found.steps.first == pytest.approx(1200, abs=10)


STEP = np.arange(10, 2001, 10)
HEALTHY = {
    "linear to zero at the end": 1e-4 * (1 - STEP / 2000),
    "warm-up from zero, cosine": 1e-4 * np.minimum((STEP - 10) / 200, (1 + np.cos(np.pi * STEP / 2000)) / 2),
    "cosine to a tenth, then constant": 1e-4 * (0.1 + 0.45 * (1 + np.cos(np.pi * np.minimum(STEP / 1200, 1)))),
    "constant": np.full(len(STEP), 1e-4),
    "step decay": 1e-4 * 0.5 ** (STEP // 500),
    "warm restarts": 1e-4 * (1 + np.cos(np.pi * (STEP % 500) / 500)) / 2,
    "inverse square root": 1e-4 * np.minimum(STEP / 200, np.sqrt(200 / STEP)),
    "only warm-up so far": 1e-6 * STEP,
}


@pytest.mark.parametrize("rate", HEALTHY.values(), ids=HEALTHY)
def test_healthy_schedules_are_no_error(tmp_path, rate):
    assert find(tmp_path, series(STEP, lr=rate, loss=2 + np.exp(-STEP / 300)), planned=2000) == []


def test_where_no_plan_is_told_the_last_step_may_be_the_planned_one(tmp_path):
    """A cosine is below a thousandth of its peak over the last 2 % of its steps: here 40 of 2000."""
    step = np.arange(1, 2001)
    cosine = 1e-4 * (1 + np.cos(np.pi * np.minimum(step / 2000, 1))) / 2
    assert find(tmp_path, series(step, lr=cosine, loss=2 + np.exp(-step / 300)), planned=None) == []
    early = 1e-4 * (1 + np.cos(np.pi * np.minimum(step / 1500, 1))) / 2
    (found,) = find(tmp_path, series(step, lr=early, loss=2 + np.exp(-step / 300)), planned=None)
    assert (found.sub_cause, found.confidence) == ("ended", "medium")


def test_a_healthy_cosine_that_still_goes_is_no_error(tmp_path):
    for until in (300, 600, 1000, 1400):
        step = np.arange(10, until + 1, 10)
        assert find(tmp_path, series(step, lr=1e-4 * (1 + np.cos(np.pi * step / 2000)) / 2), planned=2000) == []


def test_too_few_rates_tell_nothing(tmp_path):
    assert find(tmp_path, series([1, 2, 3], lr=[1e-4, 0, -1e-4]), planned=3) == []


@pytest.mark.parametrize("shift", [-6000, -3000])
def test_steps_at_and_below_zero_are_no_error_of_the_rule(tmp_path, shift):
    """A counter that was reset wrongly: the onset is no divisor then."""
    frame = linear(6000, times=2, every=100)
    moved = frame.assign(step=frame["step"] + shift)
    settings = read_text(tmp_path, mindformers(frame, planned=6000), name="trainer_log.txt")["settings"].table
    columns = {"rank_id": 0, "step": moved["step"], "learning_rate": moved["lr"], "loss": moved["loss"]}
    steps = TRAINING_STEPS.check(pd.DataFrame(columns).reindex(columns=[c.name for c in TRAINING_STEPS.columns]))
    assert [f.cause for f in find_lr_schedule_error(steps, settings)] == ["lr_schedule_error"]
