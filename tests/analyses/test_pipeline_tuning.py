import numpy as np
import pytest

from tests.analyses.pipeline_tables import chain, service
from workbench.analyses.pipeline_rates import Machine, Setting, operator_times
from workbench.analyses.pipeline_simulation import simulate
from workbench.analyses.pipeline_tuning import candidates, predict, recommend

SOURCE = service("Generator", 50.0, cpu_us=40.0, can_have_workers=False)
SLEEPS = service("Map", 2000.0, many_workers=4, many_us=500.0)
LOCKED = service("Map", 2000.0, cpu_us=2000.0, lock_us=2000.0, many_workers=4, many_us=2000.0, process_us=2200.0,
                 process_cpu_us=2300.0)  # fmt: skip
BATCH = service("Batch", 10.0, cpu_us=10.0, input_rows=8.0, can_have_workers=False)


def replay(services, *, prefetch=16, step_us=0.0, intervals=None, batches=100):
    return simulate(
        services, operator_times(services), intervals or {}, prefetch_size=prefetch, step_us=step_us, batches=batches
    )


def test_even_services_give_the_bound():
    services = chain(SOURCE, SLEEPS, BATCH)
    assert replay(services)["batch_us"] == pytest.approx(16_000, rel=0.01)
    assert replay(services, step_us=30_000)["batch_us"] == pytest.approx(30_000, rel=0.01)
    assert replay(services, step_us=30_000)["wait_share"] == pytest.approx(0, abs=1e-6)


def test_a_stall_that_the_queues_do_not_cover_is_waited_for():
    uneven = np.array([*[10.0] * 79, 100_000.0])  # a batch takes 80 us; after each ten comes a stall of 100 ms
    services = chain(service("Generator", float(uneven.mean()), can_have_workers=False), BATCH)
    short = replay(services, prefetch=1, step_us=12_000, intervals={"Generator": uneven})
    long = replay(services, prefetch=16, step_us=12_000, intervals={"Generator": uneven})
    assert long["batch_us"] == pytest.approx(12_000, rel=0.01)
    # ten batches: of the stall, those few steps are covered for which a batch was ready
    assert 12_000 * 1.4 < short["batch_us"] < 12_000 + 100_000 / 10


def test_a_shuffle_that_holds_the_epoch_makes_training_wait_for_all_of_it():
    services = chain(
        service("Generator", 1000.0, can_have_workers=False, epoch_rows=128), service("Shuffle", 0.0, buffer_rows=128),
        BATCH,
    )  # fmt: skip
    # an epoch: 128 ms until the buffer is full, then 16 steps of 12 ms
    assert replay(services, step_us=12_000, batches=320)["batch_us"] == pytest.approx(
        (128 + 16 * 12) / 16 * 1e3, rel=0.03
    )
    small = chain(
        service("Generator", 1000.0, can_have_workers=False, epoch_rows=128), service("Shuffle", 0.0, buffer_rows=8),
        BATCH,
    )  # fmt: skip
    assert replay(small, step_us=12_000, batches=320)["batch_us"] < 14_000


def test_the_cheapest_setting_that_feeds_the_step_comes_first():
    services = chain(SOURCE, SLEEPS, BATCH)
    machine = Machine(cores=4, step_us=9_000)
    best = recommend(services, {}, machine)[0]
    assert best.workers == {"Map": 2}  # 16 / 2 = 8 ms; three and four feed it, too
    assert recommend(services, {}, Machine(cores=4))[0].workers == {"Map": 4}
    assert recommend(services, {}, Machine(cores=4, step_us=20_000))[0].workers == {"Map": 1}


def test_processes_are_chosen_only_where_threads_share_the_lock():
    assert recommend(chain(SOURCE, LOCKED, BATCH), {}, Machine(cores=4))[0].processes == {"Map": True}
    free = service(
        "Map", 2000.0, cpu_us=2000.0, many_workers=4, many_us=500.0, process_us=2200.0, process_cpu_us=2300.0
    )
    assert recommend(chain(SOURCE, free, BATCH), {}, Machine(cores=4))[0].processes == {"Map": False}


def test_longer_queues_are_asked_for_only_where_they_help():
    uneven = {"Generator": np.array([*[10.0] * 79, 100_000.0])}
    services = chain(service("Generator", 1260.0, can_have_workers=False), BATCH)
    machine = Machine(cores=2, step_us=12_000)
    assert recommend(services, uneven, machine, prefetch_size=1)[0].prefetch_size in (8, 16)
    assert recommend(chain(SOURCE, SLEEPS, BATCH), {}, machine, prefetch_size=1)[0].prefetch_size == 1


def test_predictions_stand_beside_their_bounds_interval_and_memory():
    services = chain(SOURCE, SLEEPS, BATCH)
    table = predict(services, {}, Machine(cores=2), [Setting(), Setting(workers={"Map": 2}, prefetch_size=32)])
    assert table.batch_us.tolist() == pytest.approx([16_000, 8_000])
    assert (table.low_us < table.batch_us).all()
    assert (table.high_us > table.batch_us).all()
    assert table.bound.tolist() == ["Map", "Map"]
    assert table.queue_bytes[1] == 2 * table.queue_bytes[0]
    assert table.cost.tolist() == [3, 4]


def test_operators_that_cannot_matter_keep_their_settings():
    light = service("Map#1", 100.0, many_workers=4, many_us=25.0)
    services = chain(SOURCE, light, SLEEPS | {"name": "Map#2", "op_type": "Map"}, BATCH)
    assert {name for s in candidates(services, Machine(cores=4)) for name in s.workers} == {"Map#2"}
    assert candidates(chain(SOURCE), Machine(cores=4)) == [Setting()]
