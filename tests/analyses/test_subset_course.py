import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.analyses.subset_course import paired_drops, scatter, score_drops
from workbench.tables import EVAL_SAMPLES, EVALS

STEPS = [100, 200, 300, 400, 500, 600]


def scores(*, metric="score", n=1000, **subsets):
    rows = [
        {"kind": "imported", "step": step, "subset": subset, "metric": metric, "value": value, "n": n}
        for subset, values in subsets.items()
        for step, value in zip(STEPS, values, strict=False)
    ]
    return pd.DataFrame(rows)


def test_a_drop_of_two_evaluations_by_hand():
    found = score_drops(scores(code=[0.6, 0.5])).iloc[0]
    drawn = [(600 + 2) / 1004, (500 + 2) / 1004]
    error = math.sqrt(sum(p * (1 - p) / 1000 for p in drawn))
    assert found.change == pytest.approx(-0.1)
    assert found.high == pytest.approx(-0.1 + 1.959964 * error)
    assert found.p_value == pytest.approx(stats.norm.sf(0.1 / error))
    assert (found.last_good_step, found.first_bad_step) == (100, 200)


def test_a_ramp_is_found_with_its_onset():
    found = score_drops(scores(code=[0.62, 0.618, 0.63, 0.555, 0.486, 0.414], n=2850)).iloc[0]
    assert (found.last_good_step, found.first_bad_step) == (300, 400)
    assert found.p_holm < 1e-20
    assert found.latest == pytest.approx(0.414)


def test_a_small_probe_that_swings_inside_its_error_is_no_drop():
    assert score_drops(scores(probe=[0.521, 0.593, 0.526, 0.573, 0.542, 0.50], n=100)).p_holm.iloc[0] > 0.5


def test_losses_fall_when_they_get_better_and_metrics_without_direction_are_left_out():
    better = score_drops(scores(metric="loss", code=[3.0, 2.9, 2.8, 2.71, 2.6, 2.5]))
    assert better.p_holm.iloc[0] == 1
    assert score_drops(scores(metric="answer_length", code=[30.0, 29.0, 31.0])).empty


def test_scores_without_an_error_need_a_course_that_shows_it():
    few = scores(metric="loss", n=None, code=[2.0, 2.5])
    assert score_drops(few).empty
    many = score_drops(scores(metric="loss", n=None, code=[2.0, 2.01, 1.99, 2.0, 2.01, 2.5]))
    assert many.p_holm.iloc[0] < 0.05


def test_empty_in_empty_out():
    assert score_drops(EVALS.empty()).empty
    assert paired_drops(EVAL_SAMPLES.empty()).empty


def test_scatter_of_a_straight_course_is_zero_and_of_noise_its_deviation():
    assert scatter(np.arange(9.0)) == pytest.approx(0)
    assert scatter(np.random.default_rng(1).normal(0, 2, 4000)) == pytest.approx(2, rel=0.05)
    assert math.isnan(scatter(np.zeros(4)))


def brute_force(values, n):
    """The largest drop in standard errors over every pair of windows, one by one, and their number."""
    best, tries = -math.inf, 0
    drawn = [(v * n + 2) / (n + 4) for v in values]
    variance = [p * (1 - p) / n for p in drawn]
    for end in range(1, len(values)):
        for start in range(max(end, len(values) - 3), len(values)):
            tries += 1
            first, last = list(range(max(0, end - 3), end)), list(range(start, len(values)))
            drop = sum(values[i] for i in first) / len(first) - sum(values[i] for i in last) / len(last)
            error = math.sqrt(sum(sum(variance[i] for i in part) / len(part) ** 2 for part in (first, last)))
            best = max(best, drop / error)
    return best, tries


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.1, 0.9), min_size=2, max_size=4), st.integers(50, 5000))
def test_the_largest_drop_is_that_of_all_windows(values, n):  # with more evaluations their scatter takes part
    found = score_drops(scores(code=values, n=n)).iloc[0]
    best, tries = brute_force(values, n)
    assert -found.change / ((found.high - found.low) / 2 / 1.959963985) == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert found.p_value == pytest.approx(min(1, stats.norm.sf(best) * tries), abs=1e-9)
    shuffled = score_drops(scores(code=values, n=n).sample(frac=1, random_state=0))
    assert shuffled.change.iloc[0] == found.change


def documents(states, *, shift=None, seed=0, noise=0.02, count=20):
    """Losses of `count` documents x 2 samples in two subsets; `shift` is added to `code` per state."""
    random = np.random.default_rng(seed)
    level = {(s, d): random.normal(2.5, 0.5) for s in ("code", "prose") for d in range(count)}
    rows = []
    for k in range(states):
        for (subset, d), base in level.items():
            for i in range(2):
                loss = base - 0.05 * k + random.normal(0, noise)
                loss += shift[k] if shift is not None and subset == "code" else 0.0
                rows.append((None, 50 * (k + 1), subset, f"{subset}{d}#{i}", f"{subset}{d}", 32.0, 32.0 * loss))
    columns = ["checkpoint", "step", "subset", "sample_id", "document_id", "scored_tokens", "loss_nats"]
    return pd.DataFrame(rows, columns=columns)


def test_paired_courses_see_what_the_spread_of_documents_hides():
    shift = [0, 0, 0, 0, 0, 0.15, 0.3, 0.45]
    found = paired_drops(documents(8, shift=shift)).set_index("subset")
    assert found.p_holm["code"] < 1e-6
    assert found.p_holm["prose"] == 1
    assert (found.last_good_step["code"], found.first_bad_step["code"]) == (250, 300)
    assert set(found.kind) == {"inline"}


def test_healthy_paired_courses_stay_silent():
    alarms = sum((paired_drops(documents(8, seed=s)).p_holm < 0.05).any() for s in range(20))
    assert alarms == 0


def test_an_evaluation_of_another_sample_set_is_left_out():
    frame = documents(6)
    other = frame[frame.step == 100].assign(sample_id=lambda f: "other" + f.sample_id)
    mixed = pd.concat([frame[frame.step != 100], other])
    assert set(paired_drops(mixed).evaluations) == {5}


def test_the_input_is_untouched():
    frame = documents(3)
    copy = frame.copy()
    paired_drops(frame)
    pd.testing.assert_frame_equal(frame, copy)
