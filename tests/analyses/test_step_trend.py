import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses.device_tables import kernels
from tests.made_run import made_steps
from workbench.analyses.device_steps import device_steps
from workbench.analyses.step_trend import grown_part, job_device_times, job_step_times, step_levels, step_trend


def series(times) -> pd.DataFrame:
    return pd.DataFrame({"step": np.arange(1, len(times) + 1), "wall_us": np.asarray(times, dtype=float)})


def noisy(levels, seed=0, sigma=0.01):
    return np.concatenate([np.full(n, v) for v, n in levels]) * np.random.default_rng(seed).normal(
        1, sigma, sum(n for _, n in levels)
    )


def test_onset_and_recovery_of_a_slow_phase():
    levels = step_levels(series(noisy([(100, 60), (110, 20), (100, 40)])))
    assert levels["first_step"].tolist() == pytest.approx([1, 61, 81], abs=1)
    assert levels["level_us"].tolist() == pytest.approx([100, 110, 100], rel=0.01)
    assert levels["excess_share"].tolist() == pytest.approx([0, 0.1, 0], abs=0.015)
    assert levels["steps"].sum() == 120


def test_a_long_run_is_looked_at_in_blocks():
    levels = step_levels(series(noisy([(100, 6000), (107, 4000)])))
    assert levels["last_step"].tolist() == pytest.approx([6000, 10000], abs=84)  # 120 blocks of 84 steps
    assert levels["excess_share"].iloc[1] == pytest.approx(0.07, abs=0.005)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(30, 400), st.integers(0, 10**6), st.sampled_from([0.001, 0.01, 0.05]), st.sampled_from(["normal", "t2"])
)
def test_noise_and_single_stalls_make_no_level(count, seed, sigma, kind):
    random = np.random.default_rng(seed)
    noise = random.normal(0, 1, count) if kind == "normal" else random.standard_t(2, count).clip(-8, 8)
    times = 100 * (1 + sigma * noise)
    times[random.integers(count, size=2)] += 500
    assert len(step_levels(series(times))) == 1
    trend = step_trend(series(times))
    assert not (trend["change_share"] >= 0.05 and trend["sigmas"] >= 4)


def test_levels_do_not_depend_on_row_order_and_the_unit():
    times = series(noisy([(100, 50), (120, 50)]))
    mixed = step_levels(times.sample(frac=1, random_state=3))
    pd.testing.assert_frame_equal(mixed, step_levels(times))
    assert step_levels(times.assign(wall_us=times["wall_us"] * 1e3))["steps"].tolist() == mixed["steps"].tolist()


def test_too_few_steps_show_no_course():
    assert step_levels(series([100] * 29)).empty
    assert np.isnan(step_trend(series([100] * 29))["change_share"])
    assert step_levels(series([])).empty


def test_a_creep_by_hand():
    trend = step_trend(series(np.linspace(100, 130, 100)))  # one block a step
    assert trend["first_us"] == pytest.approx(100 + 4.5 * 30 / 99)  # ten steps, the middle of the fifth and the sixth
    assert trend["last_us"] == pytest.approx(130 - 4.5 * 30 / 99)
    assert trend["mean_us"] == pytest.approx(115)
    assert trend["change_share"] == pytest.approx(0.3)
    flat = step_trend(series([100.0] * 100))
    assert (flat["change_share"], flat["sigmas"], flat["p_value"]) == (0, 0, 1)


def test_the_part_that_grew():
    times = series([100] * 20 + [150] * 20).assign(data_wait_us=[10] * 20 + [55] * 20, run_us=[90] * 20 + [95] * 20)
    assert grown_part(times, 21, 40) == ("data_wait_us", 45)
    assert grown_part(times[["step", "wall_us"]], 21, 40) == ("wall_us", 50)


def test_longer_batches_are_no_slowdown():
    steps = made_steps(60, step_us=[1000.0] * 30 + [2000.0] * 30, tokens=[512.0] * 30 + [1024.0] * 30, compiled=False)
    times = job_step_times(steps)
    assert len(step_levels(times)) == 1
    assert len(step_levels(job_step_times(steps.assign(tokens=512.0)))) == 2


def test_device_steps_give_the_same_kind_of_series():
    rows = [(r, s, 1000 * s, 400 + 100 * (s > 20)) for r in (0, 1) for s in range(1, 41)]
    times = job_device_times(device_steps(kernels=kernels(rows)))
    assert len(times) == 39  # the first step of a window holds what came before it
    assert step_levels(times)["steps"].sum() == 39
    assert times["computing_us"].iloc[-1] == 500
