import math

import numpy as np
import pandas as pd
import pytest

from tests.made_run import made_steps
from workbench.findings.training import (
    find_fp16_overflow,
    find_loss_not_finite,
    find_loss_spike,
    find_memory_leak,
    find_memory_leak_in_telemetry,
    find_overflow_lines,
)
from workbench.tables import LOG_MESSAGES, TELEMETRY, TRAINING_STEPS

RULES = (find_loss_not_finite, find_loss_spike, find_fp16_overflow, find_memory_leak)


def test_healthy_and_empty_runs_find_nothing():
    for seed in range(10):
        steps = pd.concat([made_steps(400, rank_id=r, seed=seed) for r in range(2)])
        assert [f for rule in RULES for f in rule(steps)] == []
    assert [f for rule in RULES for f in rule(TRAINING_STEPS.empty())] == []


def test_a_loss_that_is_lost_and_never_comes_back():
    steps = made_steps(100)
    steps.loc[60:, "loss"] = np.nan
    found = find_loss_not_finite(steps.assign(loss_finite=steps.loss.notna()))[0]
    assert (found.severity, found.steps.first, found.steps.last) == ("critical", 61, 100)
    assert "from step 61 on, at 40 step(s), up to the last recorded loss" in found.title


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_never_was_finite_is_lost_from_the_first_step(value):
    steps = made_steps(100).assign(loss=value, loss_finite=False)
    found = find_loss_not_finite(steps)[0]
    assert (found.steps.first, found.steps.last, len(found.steps.list)) == (1, 100, 20)
    assert find_loss_spike(steps) == []


@pytest.mark.parametrize(("last", "words"), [(2.5, "and came back"), (np.nan, "up to the last recorded loss")])
def test_a_loss_came_back_only_if_a_finite_one_follows(last, words):
    steps = made_steps(100).assign(loss_finite=True)
    steps.loc[60:80, ["loss", "loss_finite"]] = [np.nan, False]
    steps["loss_finite"] = steps["loss_finite"].astype("boolean")
    steps.loc[81:, "loss"], steps.loc[81:, "loss_finite"] = last, (pd.NA if np.isnan(last) else True)
    assert words in find_loss_not_finite(steps)[0].title


def test_a_loss_that_was_not_recorded_is_not_lost():
    steps = made_steps(100)
    steps.loc[60:, "loss"] = np.nan
    assert find_loss_not_finite(steps) == []


def test_a_batch_without_tokens_is_no_lost_loss():
    steps = made_steps(60)
    hit = steps["step"].isin([20, 31])
    steps = TRAINING_STEPS.check(steps.assign(loss=steps.loss.where(~hit), tokens=steps.tokens.where(~hit, 0.0)))
    (found,) = find_loss_not_finite(steps.assign(loss_finite=~hit))
    assert (found.cause, found.severity, found.steps.list) == ("empty_data", "warning", (20, 31))
    after = steps["step"] >= 20
    (found,) = find_loss_not_finite(steps.assign(loss=steps.loss.where(~after), loss_finite=~after))
    assert (found.cause, found.severity, found.steps.list) == ("empty_data", "critical", (20, 31))
    assert "before step 20" in found.fix
    before = hit | (steps["step"] == 10)
    (found,) = find_loss_not_finite(steps.assign(loss=steps.loss.where(~before), loss_finite=~before))
    assert (found.cause, found.steps.first) == ("loss_not_finite", 10)


def test_spikes_that_stay_warn_and_a_small_one_informs():
    steps = made_steps(300)
    lasting, single = steps.copy(), steps.copy()
    lasting.loc[200:206, "loss"] += 2.0
    single.loc[200, "loss"] *= 1.4
    found = find_loss_spike(lasting)[0]
    assert (found.severity, found.steps.first) == ("warning", 201)
    assert {e.fact: e.value for e in found.evidence}["gradient norm jumped with it"] == "no"
    assert find_loss_spike(single)[0].severity == "info"


def test_overflow_beyond_what_loss_scaling_makes():
    steps = made_steps(500)
    sometimes = steps.assign(overflow=steps.step % 400 == 0)
    searching = steps.assign(overflow=steps.step < 20)
    often = steps.assign(overflow=steps.step % 20 == 0)
    assert find_fp16_overflow(sometimes) == []
    assert find_fp16_overflow(searching) == []
    found = find_fp16_overflow(often)[0]
    assert found.severity == "warning"
    assert found.title.startswith("Gradients overflowed at 20 of 399 steps (5.0%)")


def test_a_leak_names_rank_and_rate():
    slow, leaking = made_steps(300), made_steps(300, rank_id=1)
    leaking["host_memory_bytes"] += 2**20 * leaking["step"]
    found = find_memory_leak(pd.concat([slow, leaking]))[0]
    assert found.culprit.rank == 1
    assert math.isclose(found.evidence[0].value, 2**20, rel_tol=0.02)
    assert "1.00 MiB per step" in found.title


def test_a_leak_in_a_memory_series_beside_the_log():
    step = np.arange(10, 3001, 10)
    rows = pd.DataFrame({"step": step, "value": 20e9 + 6 * 2**20 * step, "metric": "device_allocated_bytes"})
    (found,) = find_memory_leak_in_telemetry(TELEMETRY.check(rows.assign(host="", rank_id=3)))
    assert (found.sub_cause, found.culprit.rank, found.confidence) == ("device", 3, "high")
    assert found.evidence[0].value == pytest.approx(6 * 2**20)
    assert "over 2391 steps" in found.title  # 300 values every 10 steps, the first fifth left out: 610 to 3,000
    settling = rows.assign(value=20e9 + 5e9 * (1 - np.exp(-step / 200)), host="", rank_id=pd.NA)
    assert find_memory_leak_in_telemetry(TELEMETRY.check(settling)) == []
    assert find_memory_leak_in_telemetry(TELEMETRY.empty()) == []
    nobodys = TELEMETRY.check(rows.assign(host="", rank_id=pd.NA))
    (found,) = find_memory_leak_in_telemetry(nobodys, made_steps(50, rank_id=5))
    assert found.culprit.rank == 5  # the only rank whose steps are there
    both = pd.concat([made_steps(50, rank_id=r) for r in (5, 6)])
    assert find_memory_leak_in_telemetry(nobodys, both) == []


def test_overflow_that_only_lines_tell():
    steps = made_steps(400).assign(overflow=pd.NA)

    def lines(at, scale=2.0):
        rows = pd.DataFrame({"step": at, "kind": "overflow", "fields": f'{{"new_scale": {scale}}}', "rank_id": 0})
        return LOG_MESSAGES.check(rows.assign(line=1, text="OVERFLOW!", file="x.log").reindex(
            columns=list(LOG_MESSAGES.column_names)))  # fmt: skip

    (found,) = find_overflow_lines(steps, lines(range(102, 400, 3)))  # 100 lines in the 299 steps after the search
    assert found.evidence[0].value == pytest.approx(100 / 299)
    assert (found.cause, found.severity, found.evidence[1].value) == ("fp16_overflow", "critical", 2.0)
    assert find_overflow_lines(steps, lines(range(1, 17))) == []  # the scale comes down from 65,536
    assert find_overflow_lines(steps, lines([150, 380])) == []  # now and then the scale is tried higher
    assert find_overflow_lines(made_steps(400), lines(range(102, 400, 3))) == []  # the steps tell
