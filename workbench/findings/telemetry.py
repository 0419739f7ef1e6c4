"""Telemetry -> evidence for findings on slow ranks: the physical reason, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from workbench.analyses.telemetry import physical_reasons
from workbench.findings.finding import Evidence, Finding

EXPLAINED = ("slow_rank", "rank_late")
# metric -> its words, factor to the shown unit, the unit
SHOWN = {
    "device_clock_mhz": ("card clock", 1e-3, "GHz"),
    "device_aicore_frequency_mhz": ("card clock", 1e-3, "GHz"),
    "device_temperature_celsius": ("temperature of the card", 1.0, "°C"),
    "device_power_watts": ("power of the card", 1.0, "W"),
    "allocation_retries": ("allocations that succeeded only after freeing caches", 1.0, "retries"),
    "host_cpu_share": ("use of the host's cores", 100.0, "%"),
    "host_io_wait_share": ("cores that wait for storage", 100.0, "%"),
    "host_cpu_io_wait_share": ("cores that wait for storage", 100.0, "%"),
    "process_involuntary_switches_per_s": ("times another process took the core", 1.0, "per s"),
    "tcp_retransmits_per_s": ("TCP segments sent again", 1.0, "per s"),
    "device_reserved_bytes": ("device memory held by the pool", 1 / 2**30, "GiB"),
    "device_max_reserved_bytes": ("most device memory that the pool has held, its ceiling", 1 / 2**30, "GiB"),
    "device_allocated_bytes": ("device memory in use by tensors", 1 / 2**30, "GiB"),
}
FIXES = {
    "device_throttled": "Look at cooling, power limit and health of that card; move the rank to another until then.",
    "host_busy": "Find what else runs on that host and stop it, or bind the ranks to cores of their own.",
    "storage_slow": "Move that host's data or checkpoints to a faster disk, or cache them.",
    "network_retransmits": "Check cable, port and switch of that host.",
    "fragmentation": "Reduce the fragments of that rank's memory pool (MS_ALLOC_CONF=enable_vmm:True, fewer shapes).",
}


def telemetry_evidence(
    telemetry: pd.DataFrame | None,
    rank_id: int,
    *,
    steps: tuple[int, int] | None = None,
    times: pd.DataFrame | None = None,
) -> tuple[str | None, tuple[Evidence, ...], str]:
    """Reason word (for `sub_cause`), evidence and one sentence on what about the rank's machine explains slowness.

    Samples during the steps count, where there are some (`steps` and `times` as `physical_reasons` takes them). The
    sentence reads "card clock of rank 3 1.3 GHz (other ranks: 1.8) at 81 °C", or "... fell from 1.8 to
    1.3 GHz at 81 °C"; all are empty where the telemetry explains nothing.
    """
    reasons = pd.DataFrame() if telemetry is None else physical_reasons(telemetry, rank_id, steps=steps, times=times)
    if reasons.empty:
        return None, (), ""
    facts = tuple(_fact(row) for row in reasons.to_dict("records"))
    first = reasons.iloc[0]
    words, factor, unit = SHOWN[str(first["metric"])]
    value, usual = f"{first['value'] * factor:.3g} {unit}", f"{first['usual'] * factor:.3g}"
    sentence = f"{words} of rank {rank_id} {value} (other ranks: {usual})"
    if first["compared_with"] == "its beginning":
        sentence = f"{words} of rank {rank_id} fell from {usual} to {value}"
    hot = reasons[reasons["metric"] == "device_temperature_celsius"]
    if len(hot):
        sentence += f" at {float(hot['value'].iloc[0]):.0f} °C"
    return str(first["reason"]), facts, sentence


def with_physical_reasons(
    findings: Sequence[Finding], telemetry: pd.DataFrame | None, times: pd.DataFrame | None = None
) -> list[Finding]:
    """The findings, those on slow ranks with the physical reason that the telemetry gives, if any.

    Args:
        findings: what was found.
        telemetry: table `telemetry`; a finding on a range of steps is compared with the samples taken then.
        times: as `workbench.analyses.telemetry.step_times` returns.
    """
    return [
        _explained(f, telemetry, times) if f.cause in EXPLAINED and f.culprit.rank is not None else f for f in findings
    ]


def _explained(finding: Finding, telemetry: pd.DataFrame | None, times: pd.DataFrame | None) -> Finding:
    assert finding.culprit.rank is not None
    first, last = finding.steps.first, finding.steps.last
    steps = None if first is None or last is None else (first, last)
    reason, facts, sentence = telemetry_evidence(telemetry, finding.culprit.rank, steps=steps, times=times)
    if reason is None:
        return finding
    return replace(
        finding,
        sub_cause=finding.sub_cause or reason,
        title=f"{finding.title.rstrip('.')}: {sentence}.",
        fix=f"{FIXES[reason]} {finding.fix}",
        evidence=finding.evidence + facts,
    )


def _fact(row: dict[str, object]) -> Evidence:
    words, factor, unit = SHOWN[str(row["metric"])]
    usual = float(str(row["usual"])) * factor
    return Evidence(
        fact=f"{words} ({row['compared_with']}: {usual:.4g} {unit})",
        value=float(str(row["value"])) * factor,
        unit=unit,
        table="telemetry",
        where=f"rank {row['rank_id']}, {row['metric']}, median of {row['samples']} samples, {row['during']}",
    )
