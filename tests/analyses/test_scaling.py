"""Scaling: values by hand, the law that parts sum, and the coverage of the forecast."""

import numpy as np
import pandas as pd
import pytest

from tests.made_cluster import make_cluster, profile_tables
from workbench.analyses.scaling import PART_COLUMNS, scaling_efficiency, scaling_forecast, scaling_point
from workbench.errors import MissingColumnsError, UnknownParameterError


def points(devices, step_us, **columns):
    return pd.DataFrame({"devices": devices, "work_per_step": devices, "step_us": step_us, **columns})


def test_where_it_bends_and_what_the_loss_is_made_of():
    found = scaling_efficiency(
        points([64, 8, 128], [125.0, 100.0, 200.0], computing_us=[90.0, 90, 90], communication_us=[35.0, 10, 110])
    )
    assert list(found["devices"]) == [8, 64, 128]
    # 64 devices: 64 / 125 against 8 / 100 is 6.4 times; 128: 128 / 200 against 8 / 100 is 8 times
    assert found["speed_up"].tolist() == pytest.approx([1, 6.4, 8])
    assert found["efficiency_share"].tolist() == pytest.approx([1, 0.8, 0.5])
    # from 64 to 128 devices the throughput grows by 8 / 6.4 = 1.25: log2(1.25) = 0.32; to 64: log8(6.4) = 0.893
    assert found["exponent"].tolist()[1:] == pytest.approx([0.8927, 0.3219], abs=1e-3)
    assert found["is_bend"].tolist() == [False, False, True]
    # communication: (110 - 10) / 200
    assert found["lost_communication_share"].tolist() == pytest.approx([0, 0.2, 0.5])
    assert found["lost_unknown_share"].abs().max() < 1e-12


def test_strong_and_weak_scaling_measure_the_same():
    weak = points([2, 4], [100.0, 125.0])
    strong = weak.assign(work_per_step=2.0, step_us=[100.0, 62.5])  # half the work per device takes half the time
    assert scaling_efficiency(strong)["efficiency_share"].tolist() == pytest.approx([1, 0.8])
    assert scaling_efficiency(weak)["efficiency_share"].tolist() == pytest.approx([1, 0.8])


def test_efficiency_and_losses_sum_to_one_whatever_is_known():
    rng = np.random.default_rng(5)
    frame = points([4, 8, 16, 16], rng.uniform(90, 200, 4), input_us=rng.uniform(0, 9, 4))
    found = scaling_efficiency(frame)
    lost = found.filter(like="lost_").fillna(0.0).sum(axis=1)
    assert (found["efficiency_share"] + lost).tolist() == pytest.approx([1, 1, 1])
    assert found["lost_communication_share"].isna().all()


def test_the_parts_of_a_step_sum_to_it_and_name_the_cause(shared_dir, tmp_path):
    run, truth = make_cluster(shared_dir, tmp_path / "late", "slow_rank:3:1.4", layers=4, seed=2)
    late = scaling_point(profile_tables(run), work_per_step=32).iloc[0]
    assert late[PART_COLUMNS].sum() == pytest.approx(late["step_us"], rel=1e-9)
    saved_us = truth["faults"][0]["saved_ms_per_step"] * 1000
    assert late["late_ranks_us"] == pytest.approx(saved_us, rel=0.02)
    assert (late["devices"], late["work_per_step"]) == (8, 32)
    run, truth = make_cluster(shared_dir, tmp_path / "starved", "data_starved:60", layers=4, seed=2)
    starved = scaling_point(profile_tables(run)).iloc[0]
    assert starved["input_us"] == pytest.approx(60_800, rel=0.02)  # 60 ms and the usual 0.8 ms


def test_a_pipeline_has_its_bubble(shared_dir, tmp_path):
    run, _ = make_cluster(shared_dir, tmp_path / "run", "pipeline_bubble:4", pp=4, layers=4)
    point = scaling_point(profile_tables(run)).iloc[0]
    # 1F1B, 4 stages, 4 micro-batches: (4 - 1) / (4 + 3) of the time is idle if stages are equal; the last is longer
    assert point["bubble_us"] / (point["bubble_us"] + point["computing_us"]) > 3 / 7


def test_the_forecast_knows_the_law_and_its_own_uncertainty():
    n = np.array([1, 2, 4, 8, 16])
    made = points(8 * n, 1000 * (1 + 0.02 * (n - 1) + 0.0005 * n * (n - 1)))
    found = scaling_forecast(made, [256]).iloc[0]
    # n = 32: 1 + 0.02 * 31 + 0.0005 * 32 * 31 = 2.116
    assert found["speed_up"] == pytest.approx(32 / 2.116, rel=1e-6)
    assert (found["contention"], found["coherency"]) == pytest.approx((0.02, 0.0005), rel=1e-6)
    rng, inside = np.random.default_rng(1), 0
    for _ in range(200):
        noisy = made.assign(step_us=made["step_us"] * np.exp(rng.normal(0, 0.01, 5)))
        one = scaling_forecast(noisy, [256]).iloc[0]
        measured = 256 / (2116 * np.exp(rng.normal(0, 0.01))) * 1e6
        inside += one["low_per_s"] <= measured <= one["high_per_s"]
    assert inside >= 180  # nominal 190; 200 draws of 0.95 are below 180 once in 500 times


def test_too_few_runs_give_no_interval():
    found = scaling_forecast(points([8, 16], [100.0, 110.0]), [32]).iloc[0]
    assert np.isnan(found["low_per_s"])
    assert found["throughput_per_s"] > 0


def test_errors():
    with pytest.raises(MissingColumnsError, match="lack"):
        scaling_efficiency(pd.DataFrame({"devices": [1]}))
    with pytest.raises(UnknownParameterError, match="above 0"):
        scaling_efficiency(points([0, 8], [1.0, 2.0]))
    with pytest.raises(UnknownParameterError, match="same device count"):
        scaling_forecast(points([8, 8], [1.0, 2.0]), [16])
