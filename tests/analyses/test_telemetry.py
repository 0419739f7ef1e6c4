import numpy as np
import pandas as pd

import workbench as wb
from workbench.analyses.telemetry import during_steps, physical_reasons, rank_levels, step_times
from workbench.tables import KERNELS, TELEMETRY, TRAINING_STEPS


def made(values, *, host="h0", seed=0) -> pd.DataFrame:
    """Rows of metric -> rank -> level, or list of samples; 1 % noise around a level, 30 samples."""
    random = np.random.default_rng(seed)
    frames = []
    for metric, ranks in values.items():
        for rank_id, level in ranks.items():
            samples = level if isinstance(level, list) else level * random.normal(1, 0.01, 30)
            frames.append(pd.DataFrame({"rank_id": rank_id, "time_ns": range(len(samples)), "metric": metric,
                                        "value": samples, "host": host}))  # fmt: skip
    rows = pd.concat(frames, ignore_index=True)
    return TELEMETRY.check(rows.astype({"rank_id": "Int64", "time_ns": "Int64"}))


CLOCKS = {
    "device_clock_mhz": {0: 1800.0, 1: 1800.0, 2: 1800.0, 3: 1300.0},
    "device_temperature_celsius": {0: 60.0, 1: 61.0, 2: 60.0, 3: [81.0] * 30},
}


def test_a_throttled_card_against_its_peers():
    found = physical_reasons(made(CLOCKS), 3)
    assert found["reason"].tolist() == ["device_throttled", "context"]
    clock = found.iloc[0]
    assert 1280 < clock["value"] < 1320
    assert 1780 < clock["usual"] < 1820
    assert (clock["compared_with"], found["value"].iloc[1]) == ("other ranks", 81)
    assert physical_reasons(made(CLOCKS), 1).empty


def test_row_order_and_rank_numbers_do_not_matter():
    rows = made(CLOCKS)
    found = physical_reasons(rows.sample(frac=1, random_state=3), 3)
    pd.testing.assert_frame_equal(found, physical_reasons(rows, 3))
    renumbered = physical_reasons(rows.assign(rank_id=17 - rows["rank_id"]), 14)
    pd.testing.assert_frame_equal(renumbered.drop(columns="rank_id"), found.drop(columns="rank_id"))


def test_a_clock_that_fell_on_the_only_rank():
    falling = made({"device_clock_mhz": {0: [1800.0] * 12 + [1600.0] * 4 + [1300.0] * 12}})
    found = physical_reasons(falling, 0).iloc[0]
    assert (found["value"], found["usual"], found["compared_with"]) == (1300, 1800, "its beginning")
    assert physical_reasons(made({"device_clock_mhz": {0: [1800.0, 1300.0]}}), 0).empty  # too few


def test_healthy_ranks_have_no_reason():
    metrics = {"device_clock_mhz": 1800.0, "host_cpu_share": 0.5, "tcp_retransmits_per_s": 0.3,
               "process_involuntary_switches_per_s": 40.0, "host_cpu_io_wait_share": 0.02}  # fmt: skip
    for seed in range(10):
        rows = made({m: dict.fromkeys(range(8), level) for m, level in metrics.items()}, seed=seed)
        assert all(physical_reasons(rows, r).empty for r in range(8))
    assert physical_reasons(TELEMETRY.empty(), 0).empty
    assert rank_levels(TELEMETRY.empty()).empty


def test_host_metrics_without_a_rank_count_for_its_ranks():
    busy = made({"host_cpu_share": {0: [0.98] * 9}}, host="a").assign(rank_id=pd.NA)
    calm = [made({"host_cpu_share": {0: [0.4 + i / 100] * 9}}, host=f"c{i}").assign(rank_id=pd.NA) for i in range(3)]
    marks = [made({"x": {r: 1.0}}, host=h) for r, h in enumerate(["c0", "a", "c1", "c2"])]
    rows = pd.concat([busy, *calm, *marks], ignore_index=True)
    found = physical_reasons(rows, 1)
    assert found[["reason", "metric"]].values.tolist() == [["host_busy", "host_cpu_share"]]
    assert physical_reasons(rows, 0).empty


def test_retries_of_the_allocator_in_a_real_case(shared_dir):
    run = wb.open_run(shared_dir / "cases" / "07-slow-card-fragmentation", quiet=True)
    found = physical_reasons(run.table("telemetry"), 12)
    assert found[["reason", "value", "usual"]].values.tolist()[0] == ["fragmentation", 61, 0]
    held = found.set_index("metric").loc[["device_reserved_bytes", "device_max_reserved_bytes"], "value"] / 2**20
    assert held.tolist() == [58930, 58960]  # at its ceiling
    assert all(physical_reasons(run.table("telemetry"), r).empty for r in range(12))


def times_of(steps, step_ns=10):
    """Step s runs from 10 (s - 1) to 10 s ns."""
    return pd.DataFrame({"step": range(1, steps + 1), "start_ns": range(0, step_ns * steps, step_ns),
                         "end_ns": range(step_ns, step_ns * (steps + 1), step_ns)})  # fmt: skip


def test_a_clock_that_was_low_only_for_a_while_is_seen_in_those_steps():
    levels = [1800.0] * 40 + [1300.0] * 10 + [1800.0] * 50
    rows = made({"device_clock_mhz": {0: [1800.0] * 100, 1: [1801.0] * 100, 2: levels}})
    assert physical_reasons(rows, 2).empty  # the median of the whole run is as the others'
    slow = physical_reasons(rows, 2, steps=(5, 5), times=times_of(10))
    assert slow[["reason", "value", "samples", "during"]].values.tolist() == [
        ["device_throttled", 1300, 11, "steps 5 to 5"]
    ]
    assert physical_reasons(rows, 2, steps=(7, 8), times=times_of(10)).empty


def test_a_rank_alone_is_compared_with_the_time_before_the_steps():
    rows = made({"device_clock_mhz": {0: [1800.0] * 20 + [1300.0] * 10 + [1800.0] * 20}})
    found = physical_reasons(rows, 0, steps=(3, 3), times=times_of(5)).iloc[0]
    assert (found["value"], found["usual"], found["compared_with"]) == (1300, 1800, "its beginning")


def test_steps_shorter_than_the_sampling_take_the_samples_beside_them():
    rows = made({"host_cpu_share": {0: [0.4, 0.4, 0.9], 1: [0.4, 0.4, 0.4]}})
    rows = rows.assign(time_ns=rows["time_ns"] * 1000)  # at 0, 1000, 2000
    times = pd.DataFrame({"step": [1], "start_ns": [1900], "end_ns": [1950]})
    assert sorted(during_steps(rows, (1, 1), times)["time_ns"].unique()) == [1000, 2000]
    assert physical_reasons(rows, 0, steps=(99, 99), times=times)["during"].isin(["whole run"]).all()


def test_samples_that_have_a_step_instead_of_a_time():
    rows = made({"device_clock_mhz": {0: [1800.0] * 9, 1: [1300.0] * 9}}).assign(time_ns=pd.NA)
    rows = TELEMETRY.check(rows.assign(step=list(range(9)) * 2))
    assert during_steps(rows, (2, 3), times_of(0))["step"].tolist() == [2, 3, 2, 3]
    assert physical_reasons(rows, 1, steps=(2, 3))["during"].tolist() == ["steps 2 to 3"]


def test_when_steps_ran():
    steps = TRAINING_STEPS.check(pd.DataFrame({
        "rank_id": [0, 1, 0], "step": [1, 1, 2], "time_ns": [5_000, 6_000, 9_000], "step_us": [3.0, 5.0, 2.0],
    }))  # fmt: skip
    assert step_times(steps).values.tolist() == [[1, 1_000, 6_000], [2, 7_000, 9_000]]
    tasks = KERNELS.check(pd.DataFrame({"rank_id": 0, "step": [1, 2, 3], "name": "a", "duration_us": 1.0,
                                        "start_ns": [10, 20, 30]}))  # fmt: skip
    assert step_times(None, tasks).values.tolist() == [[1, 10, 20], [2, 20, 30]]
    assert step_times(None).empty


def test_a_card_that_idles_is_not_throttled():
    idle = {**CLOCKS, "device_utilization_share": {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.1}}
    assert physical_reasons(made(idle), 3).empty
    busy = {**CLOCKS, "device_utilization_share": dict.fromkeys(range(4), 0.9)}
    assert physical_reasons(made(busy), 3)["reason"].iloc[0] == "device_throttled"


def test_on_a_lone_host_the_card_is_the_rank():
    rows = made(CLOCKS).assign(device_id=lambda f: f["rank_id"], rank_id=pd.NA)
    assert physical_reasons(TELEMETRY.check(rows), 3)["reason"].iloc[0] == "device_throttled"
    hosts = pd.concat([rows, rows.assign(host="h1")])
    assert physical_reasons(TELEMETRY.check(hosts), 3).empty  # two cards 3: nothing tells the rank
