"""The sampler on this machine, and what the tools of the cards print."""

import json
import subprocess
import sys
import time

import pytest

import workbench as wb
from workbench.probes.device_telemetry import parse_npu_common, parse_npu_table, parse_nvidia, read_devices
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
TWO_CHIPS = """
NPU ID                         : 5
Chip Count                     : 2

Chip ID                        : 0
Aicore Usage Rate(%)           : 7
Aicore curFreq(MHZ)            : 1650
Temperature(C)                 : 45

Chip ID                        : 1
Aicore Usage Rate(%)           : 8
Aicore curFreq(MHZ)            : 1500
Temperature(C)                 : NA

Chip Name                      : mcu
Temperature(C)                 : 48
NPU Real-time Power(W)         : 42.8
"""
OLDER = "NPU ID                         : 0\nHBM Usage Rate(%)              : 3\nAicore curFreq(MHZ)            : 100\n"
CARDS = """
| npu-smi 24.1.rc2                Version: 24.1.rc2                                            |
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B4               | OK            | 176.3       36                0    / 0             |
| 0                         | 0000:95:00.0  | 60          0    / 0          3411 / 65536         |
+===========================+===============+====================================================+
| 5     910B4               | Warning       | -           36                0    / 0             |
| 0                         | NA            | 0           0    / 0          3208 / 65536         |
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
| 7       0                 | 4242          | python                   | 60000                   |
"""
CARDS_OF_TWO_CHIPS = """
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip  Phy-ID              | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
| 5     Ascend910           | OK            | 162.6                34                      0    / 0                |
| 0     10                  | 0000:9D:00.0  | 0                    0    / 0                3419 / 65536            |
| 5     Ascend910           | OK            | -                    35                      0    / 0                |
| 1     11                  | 0000:9F:00.0  | 12                   0    / 0                2874 / 65536            |
"""
INFERENCE_CARD = """
| NPU     Name              | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device            | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
| 1       310P3             | OK              | NA           43                0     / 0             |
| 0       0                 | 0000:01:00.0    | 3            1856 / 21527                            |
"""


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_of_this_machine(tmp_path):
    used = time.process_time()
    with TelemetrySampler(
        tmp_path, rank_id=3, every_s=0.05, devices=lambda: {2: {"device_clock_mhz": 1300.0}}
    ) as sampler:
        begin = time.perf_counter()
        while time.process_time() < used + 0.3:  # one busy core, or what other programs leave of it
            pass
        cores = 0.3 / (time.perf_counter() - begin)
    written = rows(sampler.path)
    assert sampler.path.name == f"{sampler.host}_3.jsonl"
    assert {r["rank_id"] for r in written} == {3}
    shares = [r["value"] for r in written if r["metric"].endswith("_share")]
    assert shares
    assert all(0 <= s <= 1.001 for s in shares)
    busy = [r["value"] for r in written if r["metric"] == "process_cpu_user_cores"]
    assert max(busy) > 0.2 * cores
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


def test_what_npu_smi_prints_of_a_card():
    assert parse_npu_common(COMMON) == {0: {
        "device_memory_used_share": pytest.approx(0.91), "device_utilization_share": pytest.approx(0.06),
        "device_rated_clock_mhz": 1800, "device_clock_mhz": 1300, "device_temperature_celsius": 81,
        "device_power_watts": 130.4,
    }}  # fmt: skip
    chips = parse_npu_common(TWO_CHIPS)
    assert [chips[n]["device_clock_mhz"] for n in (0, 1)] == [1650, 1500]
    assert "device_temperature_celsius" not in chips[1]  # NA, and 48 is the controller's
    assert "device_power_watts" not in chips[1]
    assert parse_npu_common(OLDER) == {0: {"device_memory_used_share": 0.03, "device_clock_mhz": 100}}
    assert parse_npu_common("") == {}


def test_the_table_that_npu_smi_prints():
    cards = parse_npu_table(CARDS)
    assert {n: c[:2] for n, c in cards.items()} == {2: (2, 0), 5: (5, 0)}
    assert cards[2][2] == {
        "device_power_watts": 176.3, "device_temperature_celsius": 36, "device_utilization_share": 0.6,
        "device_memory_used_bytes": 3411 * 2**20, "device_memory_total_bytes": 65536 * 2**20,
    }  # fmt: skip
    assert "device_power_watts" not in cards[5][2]
    chips = parse_npu_table(CARDS_OF_TWO_CHIPS)
    assert {n: c[:2] for n, c in chips.items()} == {10: (5, 0), 11: (5, 1)}
    assert chips[11][2]["device_temperature_celsius"] == 35
    inference = parse_npu_table(INFERENCE_CARD)
    assert inference[0][2]["device_memory_used_bytes"] == 1856 * 2**20
    assert parse_npu_table("no table") == {}


def test_the_card_of_this_process_or_all_cards(monkeypatch):
    def run(command):
        asked.append(command[-1])
        return table if command == ["npu-smi", "info"] else common

    monkeypatch.setattr("shutil.which", lambda tool: tool if tool == "npu-smi" else None)
    asked, table, common = [], CARDS, COMMON
    monkeypatch.delenv("DEVICE_ID", raising=False)
    assert list(read_devices(run)) == [2, 5]
    asked = []
    monkeypatch.setenv("DEVICE_ID", "5")
    found = read_devices(run)
    assert (list(found), asked) == ([5], ["info", "5"])
    assert found[5]["device_clock_mhz"] == 1300
    assert found[5]["device_memory_used_bytes"] == 3208 * 2**20
    table, common = CARDS_OF_TWO_CHIPS, TWO_CHIPS
    monkeypatch.setenv("DEVICE_ID", "11")  # the second chip of card 5
    assert {n: m["device_clock_mhz"] for n, m in read_devices(run).items()} == {11: 1500}
    monkeypatch.setattr("shutil.which", lambda tool: None)
    assert read_devices(run) == {}


def test_nvidia_smi(monkeypatch):
    text = "0, 61, 250.5, 1410, 1980, 97, 40000, 81559\n1, 62, [N/A], 1300, 1980, 3, 10, 81559\nbad line\n"
    text += "2, [Unknown Error], [Not Supported], N/A, 1980, 0, 10, 81559\n"
    cards = parse_nvidia(text)
    assert cards[0]["device_memory_used_bytes"] == 40000 * 2**20
    assert cards[0]["device_utilization_share"] == pytest.approx(0.97)
    assert "device_power_watts" not in cards[1]
    assert set(cards[2]) >= {"device_rated_clock_mhz", "device_utilization_share"}
    assert not set(cards[2]) & {"device_clock_mhz", "device_power_watts", "device_temperature_celsius"}
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
