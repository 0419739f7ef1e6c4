import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import huggingface, mindformers, series
from workbench.findings.label_leak import find_label_leak
from workbench.tables import EVALS, TRAINING_STEPS


def leaking(steps=400, *, every=5, speed=40.0, floor=0.003, first=2.5, seed=0):
    random = np.random.default_rng(seed)
    step = np.arange(every, steps + 1, every)
    loss = (floor + first * np.exp(-step / speed)) * np.exp(random.normal(0, 0.1, len(step)))
    return series(step, loss=loss, norm=3 * np.exp(-step / speed) + 0.01, lr=2e-5 * (1 - step / 4000))


def table(frame, *, epoch=1, **columns):
    named = frame.rename(columns={"lr": "learning_rate", "norm": "gradient_norm"})
    made = named.assign(rank_id=0, epoch=epoch, loss_finite=True, source="x.log", **columns)
    return TRAINING_STEPS.check(made.drop(columns=["ms", "seconds"]))


def scores(**values):
    """metric=[(step, value), ...]"""
    rows = [(metric, step, value) for metric, pairs in values.items() for step, value in pairs]
    frame = pd.DataFrame(rows, columns=["metric", "step", "value"])
    return EVALS.check(frame.assign(kind="imported", subset="held_out"))


COLLAPSED = {"held_out_loss": [(0, 2.4), (400, 0.004)], "repeat_3gram_rate": [(0, 0.05), (400, 0.8)]}


@pytest.mark.parametrize(("speed", "first", "seed"), [(40.0, 2.5, 0), (20.0, 1.2, 1), (70.0, 9.8, 2)])
def test_a_loss_too_low_on_held_out_data_too_with_broken_text(speed, first, seed):
    steps = table(leaking(speed=speed, first=first, seed=seed))
    (found,) = find_label_leak(steps, scores(**COLLAPSED))
    assert (found.cause, found.confidence, found.severity) == ("label_leak", "high", "critical")
    below = speed * np.log(first / 0.1)  # where first * exp(-step / speed) passes 0.1
    assert found.steps.first == pytest.approx(below, abs=15)
    assert {r.cause for r in found.rules_out} == {"overfitting", "lr_schedule_error"}
    values = {e.fact: e.value for e in found.evidence}
    assert values["held-out loss (held_out_loss)"] == 0.004
    assert values["generated text repeats itself (repeat_3gram_rate, first 0.05)"] == 0.8
    assert values["gradient norm at the end, of the first"] < 0.05


@pytest.mark.parametrize("writer", [mindformers, huggingface])
def test_from_logs_of_two_writers(tmp_path, writer):
    csv = "step,subset,n,loss,exact_match\n0,held,300,2.4,0.3\n200,held,300,0.02,0.01\n400,held,300,0.004,0.0\n"
    write_logs(tmp_path, {"train.log": writer(leaking(), planned=4000), "scores.csv": csv})
    found = wb.diagnose(tmp_path).causes[0]
    assert (found.cause, found.confidence) == ("label_leak", "high")
    assert found.steps.first == pytest.approx(40 * np.log(25), abs=15)


def test_other_names_of_scores():
    for ppl, repeats in (("perplexity", "repetition_rate"), ("eval_ppl", "rep_4"), ("valid_ppl", "loop_share")):
        evals = scores(**{ppl: [(0, 11.0), (400, 1.004)], repeats: [(0, 0.02), (400, 0.7)]})
        (found,) = find_label_leak(table(leaking()), evals)
        assert found.confidence == "high"
        value = next(e.value for e in found.evidence if e.fact.startswith("held-out loss"))
        assert value == pytest.approx(np.log(1.004))


def test_without_generated_text_it_is_less_sure_and_says_what_is_missing():
    (found,) = find_label_leak(table(leaking()), scores(loss=[(0, 2.4), (400, 0.004)]))
    assert found.confidence == "medium"
    assert any(e.fact.startswith("not known: scores of freely generated text") for e in found.evidence)
    (alone,) = find_label_leak(table(leaking()))
    assert (alone.confidence, alone.severity) == ("low", "info")
    assert any(e.fact.startswith("not known: the held-out loss") for e in alone.evidence)


def test_a_leak_only_in_the_training_batches():
    step = np.arange(5, 401, 5)
    steps = table(series(step, loss=0.3 + 2.5 * np.exp(-step / 60)))
    evals = scores(loss=[(10, 2.6), (200, 2.2), (400, 2.1)])
    (found,) = find_label_leak(steps, evals)
    assert (found.sub_cause, found.confidence) == ("only_in_training", "medium")
    assert find_label_leak(steps.assign(epoch=2), evals) == []  # over-fitting


def test_what_is_no_leak():
    memorised = table(leaking(), epoch=3)
    assert find_label_leak(memorised, scores(loss=[(0, 2.4), (400, 2.9)])) == []  # over-fitting
    assert find_label_leak(memorised) == []
    solved = scores(loss=[(0, 2.3), (400, 0.03)], accuracy=[(0, 0.1), (400, 0.99)])
    assert find_label_leak(table(leaking()), solved) == []
    step = np.arange(5, 401, 5)
    healthy = table(series(step, loss=1.5 + 6 * np.exp(-step / 60)))
    assert find_label_leak(healthy, scores(loss=[(10, 7.0), (200, 2.0), (400, 1.7)])) == []
    assert find_label_leak(table(series(step, loss=0.0))) == []  # a stage that has no loss
    filtered = table(series(step, loss=0.0)).assign(gradient_norm=np.nan)
    assert find_label_leak(filtered) == []


def test_a_loss_that_was_never_one_of_text_is_a_question_only():
    noise_prediction = table(leaking(first=0.6, floor=0.04))  # squared error: 0.6 at first, 0.04 at last, below 0.1
    (found,) = find_label_leak(noise_prediction, scores(loss=[(0, 0.6), (400, 0.045)]))
    assert (found.severity, found.confidence) == ("info", "low")
    assert "check whether" in found.title
    (found,) = find_label_leak(noise_prediction, scores(**COLLAPSED))
    assert (found.severity, found.confidence) == ("critical", "high")  # generated text collapsed: it is text
