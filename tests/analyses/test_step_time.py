import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from workbench.analyses.step_time import (
    job_outliers,
    rank_step_times,
    step_outliers,
    step_time_distribution,
    throughput,
    time_shares,
    timed_steps,
)
from workbench.errors import MissingColumnsError
from workbench.tables import TRAINING_STEPS

BASE_NS = 1_700_000_000_000_000_000


def recorded(step_us, *, rank_id=0, wait_us=10.0, callbacks_us=0.0, compiled=False, tokens=100.0):
    """Steps back to back, as the Recorder writes them."""
    frame = pd.DataFrame({"rank_id": rank_id, "step_us": np.asarray(step_us, dtype=float)})
    frame["step"] = range(1, len(frame) + 1)
    frame["data_wait_us"], frame["callbacks_us"], frame["compiled"] = wait_us, callbacks_us, compiled
    frame["tokens"] = tokens
    frame["time_ns"] = BASE_NS + ((frame.step_us + frame.callbacks_us).cumsum() * 1000).astype("int64")
    return frame


def test_compiled_and_warm_up_steps_are_left_out_and_counted():
    steps = recorded([9000, 500, 100, 110, 120, 8000, 90], compiled=[True, False, False, False, False, True, False])
    found = step_time_distribution(steps, warmup_steps=2).iloc[0]
    assert (found.steps, found.compiled_steps, found.warmup_steps) == (4, 2, 1)
    assert found.median_us == (100 + 110) / 2
    assert found.mean_us == (100 + 110 + 120 + 90) / 4
    assert found.mad_us == pytest.approx((5 + 15) / 2)  # deviations 5, 5, 15, 15
    assert found.p95_us == pytest.approx(110 + 0.85 * (120 - 110))  # position 0.95 * 3 = 2.85


def test_steps_without_a_time_are_counted_and_all_missing_is_nan():
    found = step_time_distribution(recorded([1.0, 1.0, 1.0]).assign(step_us=np.nan)).iloc[0]
    assert (found.steps, found.untimed_steps) == (0, 3)
    assert np.isnan(found.median_us)


def test_empty_in_empty_out():
    empty = TRAINING_STEPS.empty()
    for analysis in (timed_steps, step_time_distribution, step_outliers, time_shares, throughput, rank_step_times):
        assert analysis(empty).empty
    with pytest.raises(MissingColumnsError):
        step_time_distribution(pd.DataFrame({"step": [1]}))


def test_one_stall_in_a_hundred_is_found_although_the_mean_moves_by_two_percent():
    step_us = np.full(100, 100_000.0) + np.tile([0, 500, -300, 200], 25)
    step_us[60] += 200_000
    found = step_outliers(recorded(step_us))
    assert list(found.step) == [61]
    assert found.excess_us.iloc[0] == pytest.approx(200_000, abs=500)
    assert found.cause.iloc[0] == "unknown"


def test_causes_come_from_waits_events_and_compilation():
    steps = recorded(np.full(60, 1000.0) + np.tile([0, 10, 20], 20))
    steps.loc[20, ["step_us", "data_wait_us"]] = [5000.0, 4010.0]
    steps.loc[30, "callbacks_us"] = 9000.0
    steps.loc[40, ["step_us", "compiled"]] = [8000.0, True]
    steps.loc[50, "callbacks_us"] = 7000.0
    steps["time_ns"] = BASE_NS + ((steps.step_us + steps.callbacks_us).cumsum() * 1000).astype("int64")
    after_30 = int(steps.time_ns[29])
    events = pd.DataFrame(
        {"rank_id": 0, "kind": ["checkpoint"], "start_ns": [after_30 + 1000], "duration_us": [8900.0], "step": [30]}
    )
    found = step_outliers(steps, events).set_index("step")
    assert found.cause.to_dict() == {21: "data_wait", 31: "checkpoint", 41: "compile", 51: "callbacks"}
    assert found.cause_us[31] == pytest.approx(8900)
    assert found.excess_us[21] == pytest.approx(4000, abs=20)
    without_times = step_outliers(steps.assign(time_ns=None), events).set_index("step")
    assert without_times.cause[31] == "checkpoint"


def test_a_profile_window_explains_the_steps_in_it():
    step_us = np.full(40, 1000.0) + np.tile([0, 10], 20)
    step_us[20:23] = 4000.0
    steps = recorded(step_us)
    begin = int(steps.time_ns[19])
    events = pd.DataFrame({"rank_id": 0, "kind": "profile", "start_ns": [begin], "duration_us": [12_000.0]})
    found = step_outliers(steps, events)
    assert list(found.step) == [21, 22, 23]
    assert set(found.cause) == {"profile"}


def test_slow_drift_and_spread_are_no_outliers():
    random = np.random.default_rng(5)
    drifting = recorded(np.linspace(1000, 3000, 400) * random.normal(1, 0.05, 400))
    assert step_outliers(drifting).empty


def test_the_job_blames_the_rank_that_has_a_reason():
    quiet = np.full(30, 1000.0) + np.tile([0, 5, 10], 10)
    waiting, loading = recorded(quiet, rank_id=0), recorded(quiet, rank_id=1)
    waiting.loc[15, "step_us"] = 6200.0  # waits in the collective
    loading.loc[15, ["step_us", "data_wait_us"]] = [6000.0, 5010.0]
    found = job_outliers(step_outliers(pd.concat([waiting, loading]))).iloc[0]
    assert (found.step, found.rank_id, found.cause, found.ranks) == (16, 1, "data_wait", 2)


def test_shares_by_hand():
    steps = recorded([900.0, 100.0, 100.0], wait_us=20.0, callbacks_us=[0.0, 0.0, 60.0], compiled=[True, False, False])
    events = pd.DataFrame(
        {"rank_id": 0, "kind": "checkpoint", "start_ns": [int(steps.time_ns[1]) + 1], "duration_us": [50.0]}
    )
    share = time_shares(steps, events).set_index("part").share
    whole = 900 + 100 + 100 + 60
    assert share["data_wait"] == pytest.approx(3 * 20 / whole)
    assert share["compile"] == pytest.approx((880 - 80) / whole)
    assert share["run"] == pytest.approx(3 * 80 / whole)
    assert share["checkpoint"] == pytest.approx(50 / whole, rel=1e-3)
    assert share["callbacks"] == pytest.approx(10 / whole, rel=1e-2)


@given(st.lists(st.tuples(st.floats(1e-3, 1e6), st.floats(0, 1), st.floats(0, 1e6), st.booleans()), min_size=1))
def test_shares_of_a_rank_sum_to_one(rows):
    step_us, wait, callbacks, compiled = (np.array(c) for c in zip(*rows, strict=True))
    shares = time_shares(recorded(step_us, wait_us=step_us * wait, callbacks_us=callbacks, compiled=compiled))
    assert shares.share.sum() == pytest.approx(1)
    assert (shares.share >= -1e-9).all()


def test_a_step_that_takes_no_time_was_not_measured():
    timed = timed_steps(recorded([100.0, 0.0, -5.0, 100.0]), warmup_steps=0)
    assert list(timed["excluded"]) == ["", "no time", "no time", ""]


def test_tokens_per_second_of_ranks_and_job():
    steps = pd.concat([recorded([5e5, 5e5, 1e5, 1e5], rank_id=r, callbacks_us=1e5, tokens=1000.0) for r in (0, 1)])
    rates = throughput(steps)
    assert rates.tokens_per_s.tolist() == pytest.approx([2000 / 0.2, 2000 / 0.2, 2 * 2000 / 0.2])
    assert rates.tokens_per_s_overall.iloc[0] == pytest.approx(4000 / (1.2 + 0.4))
    assert rates.rank_id.isna().tolist() == [False, False, True]


def test_unrecorded_tokens_give_no_rate():
    assert throughput(recorded([1e5] * 4, tokens=np.nan)).tokens_per_s.isna().all()


def test_rank_that_is_late_at_each_step():
    steps = pd.concat([recorded([100.0] * 6, rank_id=r) for r in (0, 1)] + [recorded([130.0] * 6, rank_id=2)])
    found = rank_step_times(steps).set_index("rank_id")
    assert found.excess_us.to_dict() == {0: 0.0, 1: 0.0, 2: 30.0}
    assert found.steps[2] == 4


def test_of_ranks_without_outliers_nothing_is_told_but_the_columns_stay():
    calm = recorded([100.0, 101.0] * 40)
    stalled = recorded([100.0, 101.0] * 39 + [100.0, 900.0]).assign(rank_id=1)
    both = step_outliers(pd.concat([calm, stalled]))
    alone = step_outliers(stalled)
    assert both[["rank_id", "step"]].to_numpy().tolist() == [[1, 80]]
    pd.testing.assert_frame_equal(both, alone)
    assert list(step_outliers(calm)) == list(alone)
    assert step_outliers(calm).dtypes["excess_us"] == alone.dtypes["excess_us"]
