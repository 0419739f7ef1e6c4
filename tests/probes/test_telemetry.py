"""The sampler on this machine, and what the tools of the cards print."""

import json
import subprocess
import sys
import time

import pytest

import workbench as wb
from workbench.probes.device_telemetry import parse_npu_cards, parse_npu_common, parse_nvidia, read_devices
from workbench.probes.telemetry import TelemetrySampler, rates, tcp_counters
from workbench.readers.kinds import FileContext
from workbench.readers.run_directory import read_telemetry

COMMON = """
        NPU ID                         : 1
        Chip Count                     : 1

        Chip ID                        : 0
        Memory Usage Rate(%)           : 0
        HBM Usage Rate(%)              : 91
        Aicore Usage Rate(%)           : 6
        Aicore Freq(MHZ)               : 1800
        Aicore curFreq(MHZ)            : 1300
        Aicore Count                   : 20
        Temperature(C)                 : 81
        NPU Real-time Power(W)         : 130.4

        Chip Name                      : mcu
        Temperature(C)                 : 40
"""
CARDS = """
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B4               | OK            | 176.3       36                0    / 0             |
| 0                         | 0000:95:00.0  | 0           0    / 0          3411 / 65536         |
| 5     Ascend910           | OK            | -           36                0    / 0             |
| 0     11                  | 0000:97:00.0  | 0           0    / 0          3208 / 65536         |
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 7       0                 | 4242          | python                   | 60000                   |
"""


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_of_this_machine(tmp_path):
    with TelemetrySampler(
        tmp_path, rank_id=3, every_s=0.05, devices=lambda: {2: {"device_clock_mhz": 1300.0}}
    ) as sampler:
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:  # one busy core
            pass
    written = rows(sampler.path)
    assert sampler.path.name == f"{sampler.host}_3.jsonl"
    assert {r["rank_id"] for r in written} == {3}
    shares = [r["value"] for r in written if r["metric"].endswith("_share")]
    assert shares
    assert all(0 <= s <= 1.001 for s in shares)
    busy = [r["value"] for r in written if r["metric"] == "process_cpu_user_cores"]
    assert max(busy) > 0.2
    clocks = [r for r in written if r["metric"] == "device_clock_mhz"]
    assert {(r["device_id"], r["value"]) for r in clocks} == {(2, 1300.0)}
    assert {r["rank_id"] for r in clocks} == {3}
    assert len(clocks) < len([r for r in written if r["metric"] == "telemetry_sample_us"])  # cards are asked less often
    table = read_telemetry(sampler.path, FileContext(root=tmp_path)).get("telemetry").table
    assert len(table) == len(written)


def test_a_short_run_has_a_sample_and_a_sampler_that_is_off_has_no_file(tmp_path):
    with TelemetrySampler(tmp_path / "on", every_s=60, devices=dict) as on:
        pass
    assert [r["value"] > 0 for r in rows(on.path) if r["metric"] == "host_memory_total_bytes"] == [True]
    with TelemetrySampler(tmp_path / "off", every_s=0, devices=dict) as off:
        pass
    assert not off.path.exists()


def test_of_several_cards_nothing_tells_the_ranks(tmp_path):
    cards = {0: {"device_clock_mhz": 1800.0}, 1: {"device_clock_mhz": 1300.0}}
    with TelemetrySampler(tmp_path, rank_id=3, every_s=60, devices=lambda: cards) as sampler:
        pass
    found = [(r["rank_id"], r["device_id"]) for r in rows(sampler.path) if "device_id" in r]
    assert found == [(None, 0), (None, 1)]


def test_failing_tools_and_disks_do_not_end_it(tmp_path, caplog):
    calls = []

    def broken():
        calls.append(1)
        raise subprocess.TimeoutExpired("npu-smi", 10)

    (tmp_path / "file").write_text("")
    sampler = TelemetrySampler(tmp_path / "file" / "folder", every_s=0.01, devices=broken)
    with sampler:
        time.sleep(0.4)
    assert len(calls) == 3  # then it gives up asking
    assert sum("cannot be written" in r.message for r in caplog.records) == 1


def test_rates_by_hand():
    before = {
        "cpu_seconds": 100.0,
        "host_cpu_idle_share": 50.0,
        "host_cpu_io_wait_share": 10.0,
        "a_per_s": 5.0,
        "b": 9.0,
    }
    after = {
        "cpu_seconds": 120.0,
        "host_cpu_idle_share": 55.0,
        "host_cpu_io_wait_share": 11.0,
        "a_per_s": 25.0,
        "b": 1.0,
    }
    # idle 5 of 20 core seconds, waiting 1 of 20, so in use 14 of 20; a: 20 in 10 s; b fell: it wrapped
    found = rates(before, after, 10.0)
    assert found == {
        "host_cpu_idle_share": 0.25, "host_cpu_io_wait_share": 0.05, "host_cpu_share": pytest.approx(0.7),
        "a_per_s": 2.0,
    }  # fmt: skip


def test_tcp_table(tmp_path):
    path = tmp_path / "snmp"
    path.write_text("Ip: A\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 1000 7\n")
    assert tcp_counters(path) == {"tcp_retransmits_per_s": 7.0, "tcp_segments_sent_per_s": 1000.0}
    path.write_text("Tcp: RtoMin\n")
    assert tcp_counters(path) == {}
    assert tcp_counters(tmp_path / "none") == {}


def test_npu_smi():
    assert parse_npu_cards(CARDS) == [2, 5]
    assert parse_npu_common(COMMON) == {
        "device_memory_used_share": pytest.approx(0.91), "device_utilization_share": pytest.approx(0.06),
        "device_rated_clock_mhz": 1800, "device_clock_mhz": 1300, "device_temperature_celsius": 81,
        "device_power_watts": 130.4,
    }  # fmt: skip


def test_the_card_of_this_process_or_all_cards(monkeypatch):
    def run(command):
        asked.append(command[-1])
        return CARDS if command == ["npu-smi", "info"] else COMMON

    monkeypatch.setattr("shutil.which", lambda tool: tool if tool == "npu-smi" else None)
    asked = []
    monkeypatch.delenv("DEVICE_ID", raising=False)
    assert list(read_devices(run)) == [2, 5]
    asked = []
    monkeypatch.setenv("DEVICE_ID", "5")
    assert list(read_devices(run)) == [5]
    assert asked == ["5"]
    monkeypatch.setattr("shutil.which", lambda tool: None)
    assert read_devices(run) == {}


def test_nvidia_smi(monkeypatch):
    text = "0, 61, 250.5, 1410, 1980, 97, 40000, 81559\n1, 62, [N/A], 1300, 1980, 3, 10, 81559\nbad line\n"
    cards = parse_nvidia(text)
    assert cards[0]["device_memory_used_bytes"] == 40000 * 2**20
    assert cards[0]["device_utilization_share"] == pytest.approx(0.97)
    assert "device_power_watts" not in cards[1]
    monkeypatch.setattr("shutil.which", lambda tool: tool if tool == "nvidia-smi" else None)
    monkeypatch.setenv("DEVICE_ID", "1")
    assert list(read_devices(lambda command: text)) == [1]


RECORDED = """
import sys
from workbench.probes.recorder import Recorder

for folder, telemetry in (("on", True), ("off", False)):
    with Recorder(f"{sys.argv[1]}/{folder}", telemetry=telemetry):
        pass
"""


@pytest.mark.mindspore
def test_the_recorder_samples_when_told_to(tmp_path):
    pytest.importorskip("mindspore")
    subprocess.run([sys.executable, "-c", RECORDED, str(tmp_path)], check=True, timeout=120)
    run = wb.open_run(tmp_path / "on", quiet=True)
    telemetry = run.table("telemetry")
    assert telemetry["rank_id"].unique().tolist() == [0]
    assert (telemetry.loc[telemetry["metric"] == "process_rss_bytes", "value"] > 1e7).all()
    assert not (tmp_path / "off" / "telemetry").exists()
