"""Sample the host, this process and its card beside a training -> `<run>/telemetry/<host>_<rank>.jsonl`.

Needs no MindSpore: `Recorder(telemetry=True)` uses it, and so can any process.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from workbench.files import append_json_lines
from workbench.probes.device_telemetry import Cards, read_devices

log = logging.getLogger(__name__)

EVERY_S = 5.0
SAMPLES_PER_DEVICE_SAMPLE = 3  # asking a card starts a process; temperatures and clocks change slowly
DEVICE_FAILURES_MOST = 3
US_PER_NS = 1e-3
TCP_STATISTICS = Path("/proc/net/snmp")


class TelemetrySampler:
    """A thread that appends a sample every few seconds; `start` and `stop`, or `with`.

    Rates are means since the sample before. Each sample tells what it cost: `telemetry_sample_us` on the clock,
    `telemetry_cpu_us` of processor time in this process.

    Args:
        folder: `RunFiles.telemetry` of the run.
        rank_id: rank of this process.
        every_s: seconds between samples; 0 turns the sampler off.
        devices: how to ask the cards.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rank_id: int = 0,
        every_s: float = EVERY_S,
        devices: Callable[[], Cards] = read_devices,
    ) -> None:
        self.host = socket.gethostname()
        self.path = folder / f"{self.host}_{rank_id}.jsonl"
        self._rank_id = rank_id
        self._every_s = every_s
        self._devices = devices
        self._device_failures = 0
        self._samples = 0
        self._lost = 0
        self._process = psutil.Process()
        self._before: tuple[float, dict[str, float]] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start sampling; nothing happens if it runs, or is turned off."""
        if self._thread is None and self._every_s > 0:
            self._stop.clear()
            self._before = (time.monotonic(), counters(self._process))
            self._thread = threading.Thread(target=self._run, name="workbench-telemetry", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end the thread."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> TelemetrySampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._take()
        self._take()

    def _take(self) -> None:
        """One sample: what cannot be read is left out, what cannot be written is counted."""
        started, cpu = time.perf_counter_ns(), time.thread_time_ns()
        at_ns = time.time_ns()
        values = self._host_values()
        cards = self._ask_devices() if self._samples % SAMPLES_PER_DEVICE_SAMPLE == 0 else {}
        self._samples += 1
        values["telemetry_sample_us"] = (time.perf_counter_ns() - started) * US_PER_NS
        values["telemetry_cpu_us"] = (time.thread_time_ns() - cpu) * US_PER_NS
        place = {"host": self.host, "time_ns": at_ns}
        records: list[dict[str, object]] = [
            {**place, "rank_id": self._rank_id, "metric": m, "value": v} for m, v in values.items()
        ]
        rank_id = self._rank_id if len(cards) == 1 else None  # of several cards nothing tells which is this rank's
        for card, found in cards.items():
            on_card = {**place, "rank_id": rank_id, "device_id": card}
            records += [{**on_card, "metric": m, "value": v} for m, v in found.items()]
        try:
            append_json_lines(self.path, records)
        except OSError as error:
            self._lost += 1
            if self._lost == 1:
                log.warning("Telemetry cannot be written to %s (%s); training goes on without.", self.path, error)

    def _host_values(self) -> dict[str, float]:
        assert self._before is not None
        now = (time.monotonic(), counters(self._process))
        before, self._before = self._before, now
        return levels(self._process) | rates(before[1], now[1], now[0] - before[0])

    def _ask_devices(self) -> Cards:
        if self._device_failures >= DEVICE_FAILURES_MOST:
            return {}
        try:
            cards = self._devices()
        except (OSError, subprocess.SubprocessError) as error:
            self._device_failures += 1
            log.warning("The card's state could not be read (%s); host telemetry goes on.", error)
            return {}
        self._device_failures = 0
        return cards


def recorder_telemetry(folder: Path, rank_id: int, *, on: bool) -> TelemetrySampler:
    """The sampler of a Recorder: every `EVERY_S` seconds, or turned off."""
    return TelemetrySampler(folder, rank_id=rank_id, every_s=EVERY_S if on else 0.0)


def counters(process: psutil.Process) -> dict[str, float]:
    """Counters of the host and of this process that only grow, by the metric that their growth gives."""
    cpu = psutil.cpu_times()
    own = process.cpu_times()
    found = {
        "host_cpu_user_share": cpu.user + getattr(cpu, "nice", 0.0),
        "host_cpu_system_share": cpu.system,
        "host_cpu_idle_share": cpu.idle,
        "host_cpu_io_wait_share": getattr(cpu, "iowait", 0.0),
        "cpu_seconds": float(sum(cpu)) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0),
        "process_cpu_user_cores": own.user,
        "process_cpu_system_cores": own.system,
        "host_context_switches_per_s": float(psutil.cpu_stats().ctx_switches),
        "process_involuntary_switches_per_s": float(process.num_ctx_switches().involuntary),
    }
    disk, network = psutil.disk_io_counters(), psutil.net_io_counters()
    if disk is not None:
        found |= {"disk_read_bytes_per_s": disk.read_bytes, "disk_write_bytes_per_s": disk.write_bytes}
    if network is not None:
        found |= {"network_sent_bytes_per_s": network.bytes_sent, "network_received_bytes_per_s": network.bytes_recv}
    return found | tcp_counters(TCP_STATISTICS)


def tcp_counters(path: Path) -> dict[str, float]:
    """Segments sent and sent again, of Linux' table of two lines per protocol; empty where there is none."""
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.startswith("Tcp:")]
    except OSError:
        return {}
    if len(lines) != 2:
        return {}
    table = dict(zip(*lines, strict=False))
    names = {"RetransSegs": "tcp_retransmits_per_s", "OutSegs": "tcp_segments_sent_per_s"}
    return {metric: float(table[name]) for name, metric in names.items() if name in table}


def levels(process: psutil.Process) -> dict[str, float]:
    """Memory of the host and of this process, load and number of processors."""
    memory = psutil.virtual_memory()
    return {
        "host_memory_used_bytes": float(memory.total - memory.available),
        "host_memory_available_bytes": float(memory.available),
        "host_memory_total_bytes": float(memory.total),
        "host_runnable_processes": float(psutil.getloadavg()[0]),
        "host_processors": float(psutil.cpu_count() or 1),
        "process_rss_bytes": float(process.memory_info().rss),
        "process_threads": float(process.num_threads()),
    }


def rates(before: dict[str, float], after: dict[str, float], elapsed_s: float) -> dict[str, float]:
    """Growth per second of each counter in both; processor times of the host as shares of all cores' time.

    A counter that fell (it wrapped, or a disk was taken away) and a time of 0 give no rate.
    """
    cpu_s = after["cpu_seconds"] - before["cpu_seconds"]
    found = {}
    for name in after.keys() & before.keys() - {"cpu_seconds"}:
        grown = after[name] - before[name]
        whole = cpu_s if name.endswith("_share") else elapsed_s
        if grown >= 0 and whole > 0:
            found[name] = grown / whole
    if "host_cpu_idle_share" in found:
        idle = found["host_cpu_idle_share"] + found.get("host_cpu_io_wait_share", 0.0)
        found["host_cpu_share"] = max(0.0, 1.0 - idle)
    return found
