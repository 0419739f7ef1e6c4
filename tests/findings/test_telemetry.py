from tests.analyses.test_telemetry import CLOCKS, made
from workbench.findings.finding import Culprit, Finding
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
        "rank 3's clock of the card is 1.3 GHz (other ranks: 1.8) at 81 °C",
    )
    assert [(f.value, f.unit) for f in facts] == [(1.3, "GHz"), (81.0, "°C")]


def test_findings_on_slow_ranks_gain_the_reason():
    told, other, fine = with_physical_reasons([slow(3), slow(3, "slow_op"), slow(1)], made(CLOCKS))
    assert told.sub_cause == "device_throttled"
    assert told.title.startswith("Rank 3 is slow: rank 3's clock of the card is 1.3 GHz")
    assert "cooling" in told.fix
    assert len(told.evidence) == 2
    assert (other, fine) == (slow(3, "slow_op"), slow(1))
    assert with_physical_reasons([slow(3)], None) == [slow(3)]
