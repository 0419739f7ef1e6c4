import numpy as np
import pandas as pd

import workbench as wb
from workbench.analyses.telemetry import physical_reasons, rank_levels
from workbench.tables import TELEMETRY


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
    assert found[["reason", "value", "usual"]].values.tolist() == [["fragmentation", 61, 0]]
    assert all(physical_reasons(run.table("telemetry"), r).empty for r in range(12))
