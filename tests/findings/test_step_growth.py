import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.made_run import made_steps
from tests.rendered_logs import megatron, mindformers, series, slow_data
from workbench.findings.step_growth import find_host_side_accumulation
from workbench.tables import TELEMETRY, TRAINING_STEPS

STEP = np.arange(1, 301)


def steps(step_us, *, noise=0.02, seed=0, **columns):
    """Recorded steps of this time."""
    random = np.random.default_rng(seed)
    frame = made_steps(len(step_us), seed=seed)
    frame["step_us"] = np.asarray(step_us) * random.normal(1, noise, len(frame))
    return TRAINING_STEPS.check(frame.assign(host_memory_bytes=np.nan, **columns))


def memory(rank_id=None, **values):
    parts = [pd.DataFrame({"metric": m, "step": STEP, "value": v}) for m, v in values.items()]
    return TELEMETRY.check(pd.concat(parts).assign(host="", rank_id=rank_id))


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


def test_callbacks_that_take_longer_each_time_beside_steps_that_do_not():
    flat = steps(np.full(300, 1e5)).assign(host_memory_bytes=3e9 + 1e6 * STEP)
    (found,) = find_host_side_accumulation(flat.assign(callbacks_us=500.0 + 200.0 * STEP))
    assert (found.confidence, found.severity) == ("high", "critical")  # from 0.5 to 60 ms beside 100 ms
    assert found.saves_us_per_step == pytest.approx(200 * 297 / 2, rel=0.02)
    assert "callbacks" in found.title
    assert find_host_side_accumulation(flat.assign(callbacks_us=500.0 + 20.0 * STEP)) == []  # 6 % of a step
    pauses = np.where(STEP % 50 == 0, 2e6, 50.0)
    assert find_host_side_accumulation(flat.assign(callbacks_us=pauses)) == []


@pytest.mark.parametrize(("first_us", "slope_us", "noise"), [(1e5, 100, 0.02), (2e6, 8000, 0.05), (5e4, 500, 0.1)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_line_with_growing_host_memory(first_us, slope_us, noise, seed):
    grown = memory(host_memory_bytes=3e9 + 2e5 * STEP, device_allocated_bytes=4e10 + 1e6 * (STEP % 2), live_tensors=99)
    (found,) = find_host_side_accumulation(steps(first_us + slope_us * STEP, noise=noise, seed=seed), grown)
    assert (found.cause, found.confidence) == ("host_side_accumulation", "high")
    assert fact(found, "growth of the step time") == pytest.approx(slope_us / 1e3, rel=0.1)
    assert fact(found, "growth of host memory") == pytest.approx(2e5 / 2**20, rel=0.01)
    assert fact(found, "growth of device memory in use, of its first level") == pytest.approx(0, abs=1e-4)
    assert fact(found, "growth of live tensors") == 0.0
    assert found.saves_us_per_step == pytest.approx(slope_us * 297 / 2, rel=0.1)
    assert {"fragmentation", "thermal_throttling", "data_starved"} <= {r.cause for r in found.rules_out}


def test_from_a_log_and_a_csv(tmp_path):
    step = np.arange(20, 1001, 20)
    text = mindformers(series(step, ms=400 + 0.8 * step, loss=2 + 8 * np.exp(-step / 200)), planned=9000)
    csv = "step,rss_mb,allocated_mb,reserved_mb\n" + "".join(f"{s},{3000 + 0.3 * s},41000,47000\n" for s in step)
    found = wb.diagnose(write_logs(tmp_path, {"worker_5.log": text, "memory.csv": csv})).causes
    assert [f.cause for f in found if f.severity != "info"] == ["host_side_accumulation"]
    assert (found[0].confidence, found[0].culprit.rank) == ("high", 5)
    assert fact(found[0], "growth of the step time") == pytest.approx(0.8, rel=0.02)
    assert fact(found[0], "warnings of slow data") == 0


def test_a_batch_that_is_ramped_up_is_no_accumulation(tmp_path):
    """Every 100 steps the batch grows by 64 and the step by as much; without that, the same times are a creep."""
    step = np.arange(5, 1501, 5)
    batch = 64 * (1 + np.minimum(step, 1000) // 100)
    random = np.random.default_rng(1)
    frame = series(step, ms=batch * 8.0 * random.normal(1, 0.005, len(step)), loss=2 + 8 * np.exp(-step / 200))
    ramped = "".join(megatron(frame[batch == b], planned=9000, batch=b) for b in np.unique(batch))
    assert [
        f for f in wb.diagnose(write_logs(tmp_path / "ramped", {"a.log": ramped})).causes if f.severity != "info"
    ] == []
    line = frame.assign(ms=(512 + 2.0 * step) * random.normal(1, 0.005, len(step)))
    (slower, *_) = wb.diagnose(write_logs(tmp_path / "same", {"a.log": megatron(line, planned=9000)})).causes
    assert slower.cause == "host_side_accumulation"


def test_without_host_memory_it_is_less_sure():
    (found,) = find_host_side_accumulation(steps(1e5 + 100 * STEP))
    assert found.confidence == "medium"
    assert any(e.fact.startswith("not known: host memory per step") for e in found.evidence)


GROWN = memory(host_memory_bytes=3e9 + 2e5 * STEP)
RANDOM = np.random.default_rng(5)
OTHERS = {
    "flat": 1e5 + 0 * STEP,
    "one jump": np.where(STEP < 150, 1e5, 1.5e5),
    "saw-tooth": 1e5 + 600 * (STEP % 75),
    "warm-up that settles": 1e5 * (1 + 0.5 * np.exp(-STEP / 30)),
    "slow start that ends": 1e5 * (1.5 - 0.5 * np.exp(-STEP / 20)),
    "random walk": 1e5 + np.cumsum(RANDOM.normal(0, 400, 300)),
    "a little": 1e5 + 10 * STEP,
    "faster": 2e5 - 200 * STEP,
}


@pytest.mark.parametrize("step_us", OTHERS.values(), ids=OTHERS)
def test_other_courses_are_no_accumulation(step_us):
    assert find_host_side_accumulation(steps(step_us), GROWN) == []


def test_what_else_may_grow():
    line = 1e5 + 300 * STEP
    flat = memory(host_memory_bytes=3e9 + 1e5 * RANDOM.normal(0, 1, 300))
    assert find_host_side_accumulation(steps(line), flat) == []
    waiting = steps(line, noise=0.001, data_wait_us=300.0 * STEP)
    assert find_host_side_accumulation(waiting, GROWN) == []
    assert find_host_side_accumulation(steps(line[:15]), GROWN) == []


def test_slow_data_lines_are_counted(tmp_path):
    step = np.arange(20, 1001, 20)
    text = mindformers(series(step, ms=400 + 0.8 * step), planned=9000) + slow_data(2000)
    found = wb.diagnose(write_logs(tmp_path, {"worker_0.log": text})).causes[0]
    assert fact(found, "warnings of slow data") == 1
    assert "data_starved" not in {r.cause for r in found.rules_out}


def test_longer_sequences_are_no_growth():
    longer = 512.0 + 128 * ((STEP - 1) // 50)  # 512 to 1,152 tokens, as much longer each step
    curriculum = steps(1e5 * longer / 512).assign(tokens=np.nan, sequence_length=longer)
    assert find_host_side_accumulation(curriculum) == []
    (found,) = find_host_side_accumulation(curriculum.assign(sequence_length=512.0))
    assert found.cause == "host_side_accumulation"


def test_without_stated_step_times_the_records_times_tell_the_growth():
    timed = steps(1e5 + 500.0 * STEP, noise=0.0)  # 0.1 to 0.25 s
    ends_ns = ((1e5 + 500.0 * STEP) * 1e3).cumsum()
    (found,) = find_host_side_accumulation(timed.assign(step_us=np.nan, time_ns=ends_ns.astype("int64")))
    assert fact(found, "growth of the step time") == pytest.approx(0.5, rel=0.01)
    assert fact(found, "step time at last") == pytest.approx(250.0, rel=0.01)
