import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.pipeline_tables import chain, service
from workbench.analyses.pipeline_rates import (
    Machine,
    Setting,
    batch_time,
    fused_maps,
    operator_times,
    prefetch_bytes,
    services_table,
    with_interval,
)
from workbench.errors import UnknownParameterError

SLEEPS = service("Map", 2000.0, many_workers=2, many_us=1000.0)
LOCKED = service("Map", 2000.0, cpu_us=2000.0, lock_us=2000.0, many_workers=2, many_us=2000.0, process_us=2200.0,
                 process_cpu_us=2300.0)  # fmt: skip
SOURCE = service("Generator", 50.0, cpu_us=40.0, can_have_workers=False)
BATCH = service("Batch", 100.0, cpu_us=100.0, input_rows=8.0, can_have_workers=False)


def predicted(services, setting=None, **machine):
    return batch_time(operator_times(services, setting or Setting()), Machine(cores=2, **machine))


def test_rows_per_batch_go_up_at_the_batch():
    assert chain(SOURCE, SLEEPS, BATCH).rows_per_batch.tolist() == [8, 8, 1]


def test_both_branches_of_a_zip_give_a_row_each():
    rows = [service("Generator#1", 1.0), service("Generator#2", 2.0)]
    zipped = service("Zip", 0.0) | {"inputs": ("Generator#1", "Generator#2")}
    table = services_table([*rows, zipped, BATCH | {"inputs": ("Zip",)}])
    assert table.set_index("name").rows_per_batch.to_dict() == {
        "Generator#1": 8, "Generator#2": 8, "Zip": 8, "Batch": 1,
    }  # fmt: skip


def test_the_slowest_operator_sets_the_time_and_workers_share_it():
    services = chain(SOURCE, SLEEPS, BATCH)
    assert predicted(services) == {"batch_us": 16_000, "bound": "Map", "error_share": 0.0}
    assert predicted(services, Setting(workers={"Map": 2}))["batch_us"] == 8000
    assert predicted(services, Setting(workers={"Map": 4}))["batch_us"] == 4000


def test_threads_that_hold_the_lock_gain_nothing_and_processes_do():
    services = chain(SOURCE, LOCKED, BATCH)
    assert predicted(services, Setting(workers={"Map": 2}))["batch_us"] == 16_000
    there = predicted(services, Setting(workers={"Map": 2}, processes={"Map": True}))
    # two processes give 8 x 2200 / 2; two cores must do 8 x (40 + 2300) + 100
    assert there["batch_us"] == pytest.approx((8 * 2340 + 100) / 2)
    assert there["bound"] == "cores"


def test_operators_that_hold_the_lock_add_up():
    busy = service("Generator", 1500.0, cpu_us=1500.0, lock_us=1500.0, can_have_workers=False)
    found = predicted(chain(busy, LOCKED, BATCH))
    assert found["bound"] == "lock"
    assert found["batch_us"] == 8 * 3500


def test_training_takes_cores_and_sets_the_pace():
    services = chain(SOURCE, SLEEPS, BATCH)
    assert predicted(services, step_us=50_000)["bound"] == "step"
    assert predicted(services, step_us=10_000, step_cpu_us=40_000)["bound"] == "cores"


def test_threads_that_hinder_each_other_are_slower():
    worse = service("Generator", 1000.0, many_workers=2, many_us=1500.0)
    services = chain(worse, BATCH)
    assert predicted(services, Setting(workers={"Generator": 2}))["batch_us"] == pytest.approx(8 * 1500)


def test_joined_maps_take_both_times():
    services = chain(SOURCE, service("Map#1", 300.0), service("Map#2", 500.0), BATCH)
    fused = fused_maps(services)
    assert fused.name.tolist() == ["Generator", "Map#2", "Batch"]
    assert predicted(services, Setting(fuse_maps=True))["batch_us"] == 8 * 800


def test_a_name_that_is_no_operator_is_an_error():
    with pytest.raises(UnknownParameterError, match="Fix: use one of"):
        operator_times(chain(SOURCE, BATCH), Setting(workers={"Map": 2}))


def test_full_queues_hold_rows_and_a_shuffle_its_buffer():
    services = chain(SOURCE, service("Shuffle", 1.0, buffer_rows=64), BATCH | {"row_bytes": 8000.0})
    memory = prefetch_bytes(services, prefetch_size=16).set_index("name")
    assert memory.queue_bytes.to_dict() == {"Generator": 16_000, "Shuffle": 16_000, "Batch": 128_000}
    assert memory.buffer_bytes["Shuffle"] == 64_000


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=5), st.integers(1, 8), st.floats(0, 1))
def test_more_workers_never_slow_what_scales(times, workers, serial):
    rows = [
        service(f"Map#{i}", t, many_workers=2, many_us=t * (serial + (1 - serial) / 2)) for i, t in enumerate(times)
    ]
    services = chain(SOURCE, *rows)
    one = predicted(services)["batch_us"]
    many = predicted(services, Setting(workers={row["name"]: workers for row in rows}))["batch_us"]
    assert many <= one * (1 + 1e-9)
    low, high = with_interval(one, 0.05)
    assert low < one < high


def test_inputs_are_not_changed():
    services = chain(SOURCE, service("Map#1", 1.0), service("Map#2", 2.0))
    before = services.copy()
    fused_maps(services)
    operator_times(services)
    pd.testing.assert_frame_equal(services, before)
    assert np.isfinite(services.rows_per_batch).all()
