import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses.pipeline_tables import batches, profiled
from workbench.analyses.data_pipeline import REASONS, batch_waits, bottleneck, operator_names, pipeline_operators

STARVED = batch_waits(batches([30_000] * 20, step_us=10_000))


def verdict(ops, waits=STARVED, **options):
    return bottleneck(pipeline_operators(ops), waits, **options).iloc[0]


def test_waits_leave_out_the_first_batch_and_are_a_share_of_the_time():
    waits = batch_waits(batches([500_000, 30_000, 0, 30_000, 0], step_us=20_000)).iloc[0]
    # after the first: taken at 30, 50, 100, 120 ms; of these 90 ms between first and last, 30 ms were waited for
    assert waits.wait_share == pytest.approx(30 / 90)
    assert waits.period_us == pytest.approx(30_000)
    assert waits.empty_share == pytest.approx(2 / 4)


def test_the_device_s_own_wait_stands_for_the_host_s():
    taken = batches([0, 0, 0], step_us=10_000).assign(device_wait_us=[0.0, 4000.0, 6000.0], device_queue_size=0.0)
    waits = batch_waits(taken).iloc[0]
    assert waits.mean_wait_us == 5000
    assert waits.empty_share == 1


def test_the_operator_between_a_full_and_an_empty_queue_is_found():
    ops = profiled((0, "Batch", None, 0.0, 0.02, 1), (1, "Map", 0, 0.0, 0.05, 1), (2, "Generator", 1, 1.0, 0.05, 1))
    found = verdict(ops)
    assert (found["name"], found.reason) == ("Map", "waiting")
    assert found.input_fill_share == 1.0


def test_a_source_with_an_empty_queue_is_found():
    ops = profiled((0, "Batch", None, 0.0, 0.02, 1), (1, "Generator", 0, 0.0, 0.95, 1))
    assert tuple(verdict(ops)[["name", "reason"]]) == ("Generator", "cpu")


def test_the_emptiest_branch_counts_and_operators_without_queue_are_looked_through():
    ops = profiled(
        (0, "EpochCtrl", None, None, 0.0, 1),
        (1, "Batch", 0, 0.0, 0.0, 1),
        (2, "Zip", 1, None, 0.0, 1),
        (3, "Generator", 2, 0.98, 0.0, 1),
        (4, "Generator", 2, 0.01, 0.05, 1),
    )
    found = verdict(ops)
    assert found["name"] == "Generator#2"
    assert found.op_id == 4


@pytest.mark.parametrize(
    ("cpu", "workers", "idle", "reason"),
    [(0.95, 1, 0.5, "cpu"), (1.0, 2, 0.45, "gil"), (1.0, 2, 0.02, "cpu"), (1.9, 2, 0.0, "cpu"),
     (0.1, 2, 0.9, "waiting"), (float("nan"), 1, 0.5, "unknown")],
)  # fmt: skip
def test_the_reason_follows_the_processor_time(cpu, workers, idle, reason):
    ops = profiled((0, "Batch", None, 0.0, 0.0, 1), (1, "Map", 0, 0.0, cpu, workers), (2, "Generator", 1, 1.0, 0.0, 1))
    assert verdict(ops, host_idle_share=idle).reason == reason


def test_a_source_that_holds_the_lock_is_named_instead_of_the_map_that_waits_for_it():
    ops = profiled((0, "Batch", None, 0.0, 0.0, 1), (1, "Map", 0, 0.0, 0.05, 1), (2, "Generator", 1, 0.95, 0.9, 1))
    assert tuple(verdict(ops)[["name", "reason"]]) == ("Generator", "gil")


@pytest.mark.parametrize("fill", [0.0, 0.4, 1.0])
def test_a_pipeline_that_is_not_waited_for_keeps_up_whatever_its_queues(fill):
    ops = profiled((0, "Batch", None, fill, 0.0, 1), (1, "Map", 0, 0.0, 0.9, 1), (2, "Generator", 1, 1.0, 0.0, 1))
    waits = batch_waits(batches([80_000, *[0] * 20], step_us=10_000))
    found = verdict(ops, waits)
    assert found.keeps_up
    assert found["name"] is None


def test_without_batches_the_queue_at_the_end_decides():
    fed = profiled((0, "Batch", None, 0.9, 0.0, 1), (1, "Generator", 0, 0.9, 0.0, 1))
    starved = profiled((0, "Batch", None, 0.1, 0.0, 1), (1, "Generator", 0, 0.1, 0.0, 1))
    assert verdict(fed, None).keeps_up
    assert verdict(starved, None)["name"] == "Generator"


def test_now_and_then_is_bursts_and_a_shuffle_that_refills_is_named():
    waits = batch_waits(batches([0, *([120_000] + [0] * 15) * 4], step_us=10_000))
    ops = [(0, "Batch", None, 0.4, 0.0, 1), (1, "Shuffle", 0, 0.0, 0.0, 1), (2, "Generator", 1, 0.0, 0.1, 1)]
    assert tuple(verdict(profiled(*ops), waits)[["name", "reason"]]) == ("Shuffle", "bursts")
    without = [ops[0], (2, "Generator", 0, 0.0, 0.1, 1)]
    assert tuple(verdict(profiled(*without), waits)[["name", "reason"]]) == ("Generator", "bursts")


def test_queues_count_while_training_waits():
    taken = batches([1000, *([0] * 9 + [50_000]) * 3], step_us=10_000)
    at = [t - 25_000 for t, w in zip(taken.time_us, taken.pipeline_us, strict=True) if w > 1000]
    samples = pd.DataFrame(
        [{"rank_id": 0, "op_id": op, "sample": i, "time_us": t, "queue_size": 0.0 if op == 0 else 16.0}
         for i, t in enumerate(at) for op in (0, 1)]
    )  # fmt: skip
    ops = profiled((0, "Batch", None, 0.9, 0.0, 1), (1, "Generator", 0, 0.5, 0.0, 1))
    rows = pipeline_operators(ops, samples, taken).set_index("name")
    assert rows.output_fill_share.to_dict() == {"Generator": 1.0, "Batch": 0.0}


def test_empty_tables_give_empty_tables():
    none = profiled((0, "Batch", None, 0.0, 0.0, 1)).iloc[:0]
    assert pipeline_operators(none).empty
    assert bottleneck(pipeline_operators(none)).empty
    assert batch_waits(batches([1, 1], step_us=1).iloc[:1]).empty  # the first batch alone tells nothing


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.permutations(range(6)))
def test_row_order_is_irrelevant_and_names_are_unique(fills, order):
    n = len(fills)
    ops = profiled(*[(i, "Map" if i < n - 1 else "Generator", i - 1 if i else None, f, 0.1, 1)
                     for i, f in enumerate(fills)])  # fmt: skip
    shuffled = ops.iloc[[i for i in order if i < n]]
    a, b = pipeline_operators(ops), pipeline_operators(shuffled)
    pd.testing.assert_frame_equal(a, b)
    assert a.name.is_unique
    assert bottleneck(a, STARVED).reason.iloc[0] in REASONS


def test_names_count_from_the_sources():
    assert operator_names(["Generator", "Map", "Batch", "Map"]) == ["Generator", "Map#1", "Batch", "Map#2"]
