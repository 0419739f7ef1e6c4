import json
from dataclasses import replace

import pandas as pd

import workbench as wb
from tests.analyses.test_telemetry import CLOCKS, made
from tests.made_run import BASE_NS, made_steps, write_run
from workbench.findings.finding import Culprit, Finding, Steps
from workbench.findings.telemetry import telemetry_evidence, with_physical_reasons


def slow(rank, cause="slow_rank"):
    return Finding(cause=cause, playbook="T4", severity="warning", confidence="high", title=f"Rank {rank} is slow.",
                   fix="Look.", source="test", culprit=Culprit(rank=rank))  # fmt: skip


def test_the_reason_in_words_and_numbers():
    steady = {"device_clock_mhz": {r: [mhz] * 9 for r, mhz in enumerate((1800.0, 1800.0, 1800.0, 1300.0))}}
    telemetry = made({**CLOCKS, **steady})
    reason, facts, sentence = telemetry_evidence(telemetry, 3)
    assert (reason, sentence) == (
        "device_throttled",
        "card clock of rank 3 1.3 GHz (other ranks: 1.8) at 81 °C",
    )
    assert [(f.value, f.unit) for f in facts] == [(1.3, "GHz"), (81.0, "°C")]


def test_a_clock_that_fell():
    falling = {"device_clock_mhz": {0: [1800.0] * 9 + [1300.0] * 9}, "device_temperature_celsius": {0: [81.0] * 18}}
    sentence = telemetry_evidence(made(falling), 0)[2]
    assert sentence == "card clock of rank 0 fell from 1.8 to 1.3 GHz at 81 °C"


def test_findings_on_slow_ranks_gain_the_reason():
    told, other, fine = with_physical_reasons([slow(3), slow(3, "slow_op"), slow(1)], made(CLOCKS))
    assert told.sub_cause == "device_throttled"
    assert told.title.startswith("Rank 3 is slow: card clock of rank 3 1.3 GHz")
    assert "cooling" in told.fix
    assert len(told.evidence) == 2
    assert (other, fine) == (slow(3, "slow_op"), slow(1))
    assert with_physical_reasons([slow(3)], None) == [slow(3)]


def test_a_finding_on_a_range_of_steps_takes_the_samples_of_those_steps():
    levels = [1800.0] * 40 + [1300.0] * 10 + [1800.0] * 50
    rows = made({"device_clock_mhz": {0: [1800.0] * 100, 1: [1801.0] * 100, 2: levels}})
    times = pd.DataFrame({"step": [1, 2, 3], "start_ns": [0, 40, 50], "end_ns": [40, 50, 100]})
    there, elsewhere = (replace(slow(2), steps=Steps(first=s, last=s)) for s in (2, 3))
    told = with_physical_reasons([there, elsewhere], rows, times)
    assert [f.sub_cause for f in told] == ["device_throttled", None]
    assert told[0].evidence[0].where.endswith("steps 2 to 2")


def test_a_diagnosis_joins_them(tmp_path):
    steps = pd.concat([made_steps(80, rank_id=r) for r in range(4)])
    slow = steps["rank_id"] == 3
    steps.loc[slow, "step_us"] *= 1.3
    steps.loc[slow, "time_ns"] = BASE_NS + (steps.loc[slow, "step_us"].cumsum() * 1000).astype("int64")  # nobody waits
    run = write_run(tmp_path / "run", steps)
    (run / "telemetry").mkdir()
    records = made(CLOCKS)[["host", "rank_id", "time_ns", "metric", "value"]].to_dict("records")
    (run / "telemetry" / "h0_0.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    found = next(f for f in wb.diagnose(run).causes if f.cause == "slow_rank")
    assert (found.culprit.rank, found.sub_cause) == (3, "device_throttled")
    assert "°C" in found.title
