import math

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from workbench.analyses.training import (
    deviations,
    group_ratios,
    job_steps,
    level_at,
    memory_growth,
    spikes,
    until_step,
)
from workbench.errors import UnknownParameterError
from workbench.tables import PARAMETER_GROUPS, TRAINING_STEPS


def steps(loss, *, rank_id=0, **columns):
    frame = pd.DataFrame({"rank_id": rank_id, "loss": np.asarray(loss, dtype=float)}).assign(**columns)
    return frame.assign(step=range(1, len(frame) + 1), loss_finite=np.isfinite(frame.loss))


def test_loss_is_the_mean_over_ranks_and_tokens_their_sum():
    both = pd.concat(
        [steps([2.0, 1.0], tokens=10.0, step_us=5.0), steps([4.0, 2.0], rank_id=1, tokens=20.0, step_us=7.0)]
    )
    job = job_steps(both)
    assert job.loss.tolist() == [3.0, 1.5]
    assert job.loss_low.tolist() == [2.0, 1.0]
    assert job.tokens.tolist() == [30.0, 30.0]
    assert (job.step_us[0], job.step_us_low[0], job.ranks[0]) == (7.0, 5.0, 2)


def test_ranks_that_print_zero_report_no_loss():
    job = job_steps(pd.concat([steps([0.0, 0.0]), steps([4.0, 2.0], rank_id=1)]))
    assert job.loss.tolist() == [4.0, 2.0]


def test_a_nan_on_one_rank_marks_the_step():
    job = job_steps(pd.concat([steps([2.0, math.nan]), steps([2.0, 2.0], rank_id=1)]))
    assert job.loss_finite.tolist() == [True, False]


def test_empty_in_empty_out():
    assert job_steps(TRAINING_STEPS.empty()).empty
    assert memory_growth(TRAINING_STEPS.empty()).empty
    assert group_ratios(PARAMETER_GROUPS.empty()).empty
    assert spikes(job_steps(TRAINING_STEPS.empty()), "loss").empty


def test_deviation_by_hand():
    away = deviations(pd.Series([1.0, 3.0, 4.0, 8.0, 9.0]), window=2)
    # medians of two before: 2, 3.5, 6; distances of 4 and 8 from theirs: 4 - 2 = 2, 8 - 3.5 = 4.5, their median 3.25
    # MAD of them around the then drifts (2 around 2, 4.5 around 3.25): median of 0 and 1.25
    assert away.typical.iloc[4] == pytest.approx(6 + 3.25)
    assert away.sigmas.iloc[4] == pytest.approx((9 - 9.25) / (1.4826 * 0.625))
    assert math.isnan(away.typical.iloc[1])


NOISE = np.random.default_rng(3).normal(0, 0.05, 400)


def test_a_spike_is_one_episode_with_its_peak():
    loss = 3 * np.exp(-np.arange(400) / 300) + NOISE
    loss[200:204] += [1.0, 2.0, 1.5, 1.0]
    found = spikes(job_steps(steps(loss)), "loss").iloc[0]
    assert (found.first_step, found.last_step, found.steps, found.peak_step) == (201, 204, 4, 202)
    assert found.peak == pytest.approx(loss[201])
    assert found.typical == pytest.approx(3 * math.exp(-200 / 300), abs=0.1)


def test_a_noisy_falling_loss_has_no_spike():
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0, 0.08, 1500)
        assert spikes(job_steps(steps(1.5 + 4 * np.exp(-np.arange(1500) / 200) + noise)), "loss").empty


def test_an_infinite_gradient_norm_is_a_spike():
    job = job_steps(steps([1.0] * 30, gradient_norm=[1.0] * 20 + [math.inf] + [1.0] * 9))
    assert spikes(job, "gradient_norm").peak_step.tolist() == [21]


@given(st.floats(0.1, 100))
def test_spikes_do_not_depend_on_the_unit(factor):
    loss = 3 + NOISE
    loss[100] = 9
    ours, theirs = (spikes(job_steps(steps(v)), "loss") for v in (loss, loss * factor))
    assert ours.first_step.tolist() == theirs.first_step.tolist() == [101]


def test_level_is_the_median_of_the_last_finite_steps():
    job = job_steps(steps([9.0, 1.0, 2.0, math.nan, 3.0, 50.0]))
    assert level_at(job, "loss", 5, window=3) == 2.0
    assert math.isnan(level_at(job, "loss", 0))
    with pytest.raises(UnknownParameterError, match="gradient_norm"):
        level_at(job, "gradient")


def test_until_step_keeps_rows_without_a_step():
    frame = pd.DataFrame({"step": pd.array([1, 5, None], dtype="Int64")})
    assert until_step(frame, 4).step.isna().tolist() == [False, True]
    assert len(until_step(frame, None)) == 3


def test_group_ratios_are_medians_of_the_last_steps_largest_first():
    groups = pd.DataFrame({"rank_id": 0, "step": [1, 2, 3, 3], "group": ["a", "a", "a", "b"],
                           "gradient_norm": [9.0, 1.0, 3.0, 8.0], "parameter_norm": 4.0,
                           "gradient_parameter_ratio": [9 / 4, 1 / 4, 3 / 4, 2.0]})  # fmt: skip
    found = group_ratios(groups, window=2)
    assert found.group.tolist() == ["b", "a"]
    assert found.gradient_parameter_ratio[1] == pytest.approx((1 / 4 + 3 / 4) / 2)


def test_a_leak_grows_in_every_block_and_a_one_time_buffer_does_not():
    step = np.arange(200)
    noise = np.random.default_rng(1).normal(0, 1e5, 200)
    leak = memory_growth(steps(np.ones(200), host_memory_bytes=1e9 + 1e5 * step + noise)).iloc[0]
    jump = memory_growth(steps(np.ones(200), host_memory_bytes=1e9 + 2e7 * (step > 120) + noise)).iloc[0]
    assert leak.growth_bytes_per_step == pytest.approx(1e5, rel=0.05)
    assert leak.low_bytes_per_step < 1e5 < leak.high_bytes_per_step
    assert (leak.growing_blocks, leak.steps) == (4, 160)
    assert jump.growing_blocks < 4
    assert jump.peak_bytes == pytest.approx(1.02e9, rel=1e-3)
