"""Step times that grow with host memory while the device does not -> something accumulates on the host."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.step_growth import MEMORY, Growth, other_growths, step_time_growth
from workbench.analyses.step_records import of_last_batch_size
from workbench.analyses.training import job_steps, spikes
from workbench.findings.finding import Confidence, Culprit, Evidence, Finding, RuledOut, Severity, Steps
from workbench.findings.rule import Rule

GROWTH_WARNING = 0.10  # of the first step time, over the steps seen
GROWTH_CRITICAL = 0.50
LINE_LEAST = 0.5  # share of the spread that the line explains: below, something else moves the step time more
FLAT_SHARE = 0.01
DATA_SHARE = 0.5  # of the growth: then the data pipeline is what grows
SLOW_DATA = ("slow_data", "data_hang", "data_timeout")
PARTS = {"step_us": "Each step takes", "callbacks_us": "The callbacks of each step take"}
MIB = 2**20


def find_host_side_accumulation(
    training_steps: pd.DataFrame, telemetry: pd.DataFrame | None = None, log_messages: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding if each step, or what callbacks do after it, is a little slower than before, and host memory grows.

    Without a record of host memory it is told with less confidence; where host memory is flat, or the data wait or the
    device memory is what grows, it is something else.

    Args:
        training_steps: table `training_steps`.
        telemetry: table `telemetry` with steps, or None: memory of host and device.
        log_messages: table `log_messages`, or None: warnings of slow data.
    """
    growths = [step_time_growth(training_steps, part=part) for part in PARTS]
    growth = next((g for g in growths if g is not None and _is_line(g)), None)
    if growth is None:
        return []
    others = other_growths(training_steps, telemetry, growth.rank_id)
    host, device, wait = (others.get(n) for n in ("host_memory_bytes", "device_allocated_bytes", "data_wait_us"))
    if wait is not None and wait.slope >= DATA_SHARE * growth.slope:
        return []
    if host is not None and not host.slope_low > 0:
        return []
    fills = device is not None and device.slope_low > 0 and device.share > FLAT_SHARE
    if fills and (host is None or not host.is_steady):
        return []  # the device's memory is what grows
    sure: Confidence = "high" if host is not None and host.is_steady else "medium"
    return [_finding(growth, others, sure, training_steps, log_messages)]


def _is_line(growth: Growth) -> bool:
    return growth.share >= GROWTH_WARNING and growth.r2 >= LINE_LEAST and growth.is_steady


def _finding(
    growth: Growth,
    others: dict[str, Growth],
    sure: Confidence,
    training_steps: pd.DataFrame,
    log_messages: pd.DataFrame | None,
) -> Finding:
    severity: Severity = "critical" if growth.share >= GROWTH_CRITICAL else "warning"
    host = others.get("host_memory_bytes")
    with_it = f", and host memory by {host.slope / 1024:.0f} KiB with it" if host is not None else ""
    return Finding(
        cause="host_side_accumulation",
        playbook="T2",
        severity=severity,
        confidence=sure,
        title=f"{PARTS[growth.name]} {growth.slope / 1e3:.3g} ms longer than before{with_it}: from "
        f"{growth.first / 1e3:,.0f} to {growth.last / 1e3:,.0f} ms over {growth.last_step - growth.first_step} steps.",
        fix="Look for what is added at every step and never removed: hooks (keep the handle and remove it after "
        "backward, or register once), lists, callbacks, stored tensors; confirm with 200 steps whose time has no "
        "slope.",
        source="Theil-Sen line over the steps against one jump, growth in every fifth; thresholds ours",
        culprit=Culprit(rank=growth.rank_id),
        steps=Steps(first=growth.first_step, last=growth.last_step),
        saves_us_per_step=(growth.last - growth.first) / 2,
        evidence=(*_time_facts(growth), *_memory_facts(others), *_loss_facts(training_steps, log_messages)),
        rules_out=_ruled_out(growth, others, log_messages),
    )


def _time_facts(growth: Growth) -> tuple[Evidence, ...]:
    table = {"table": "training_steps", "where": f"rank {growth.rank_id}"}
    return (
        Evidence(fact="growth of the step time", value=growth.slope / 1e3, unit="ms per step", **table),
        Evidence(fact="lower end of its 95 % interval", value=growth.slope_low / 1e3, unit="ms per step"),
        Evidence(fact="share of the spread that a straight line explains (R2)", value=growth.r2, unit="share", **table),
        Evidence(fact="share that one jump explains", value=growth.jump_r2, unit="share", **table),
        Evidence(fact="step time at first", value=growth.first / 1e3, unit="ms", **table),
        Evidence(fact="step time at last", value=growth.last / 1e3, unit="ms", **table),
    )


def _memory_facts(others: dict[str, Growth]) -> tuple[Evidence, ...]:
    facts = []
    for name, words in MEMORY.items():
        growth = others.get(name)
        if growth is None:
            continue
        where = f"rank {growth.rank_id}, steps {growth.first_step} to {growth.last_step}"
        unit, scale = ("per step", 1.0) if name == "live_tensors" else ("MiB per step", MIB)
        facts.append(Evidence(fact=f"growth of {words}", value=growth.slope / scale, unit=unit,
                              where=where))  # fmt: skip
        facts.append(Evidence(fact=f"growth of {words}, of its first level", value=growth.share, unit="share"))
    if "host_memory_bytes" not in others:
        how = "record with Recorder(telemetry=True), or a CSV with step and rss"
        facts.append(Evidence(fact=f"not known: host memory per step; {how}"))
    return tuple(facts)


def _loss_facts(training_steps: pd.DataFrame, log_messages: pd.DataFrame | None) -> tuple[Evidence, ...]:
    job = job_steps(training_steps)
    loss = job["loss"].dropna()
    facts = []
    if len(loss):
        facts.append(Evidence(fact="jumps of the loss", value=len(spikes(job, "loss")), table="training_steps"))
        facts.append(Evidence(fact="last loss, of the first", value=float(loss.iloc[-1] / loss.iloc[0]), unit="share",
                              table="training_steps"))  # fmt: skip
    if log_messages is not None:
        slow = int(log_messages["kind"].isin(SLOW_DATA).sum())
        facts.append(Evidence(fact="warnings of slow data", value=slow, table="log_messages"))
    return tuple(facts)


def _ruled_out(growth: Growth, others: dict[str, Growth], log_messages: pd.DataFrame | None) -> tuple[RuledOut, ...]:
    ruled = [RuledOut(cause="thermal_throttling", because="the line goes on rising; a clock falls once and stays")]
    wait = others.get("data_wait_us")
    if wait is not None:
        because = f"the data wait grows by {wait.slope / 1e3:.3g} of {growth.slope / 1e3:.3g} ms per step"
        ruled.append(RuledOut(cause="data_starved", because=because))
    elif log_messages is not None and not log_messages["kind"].isin(SLOW_DATA).any():
        ruled.append(RuledOut(cause="data_starved", because="the log has no warning of slow data"))
    held = [others[n] for n in ("device_allocated_bytes", "device_reserved_bytes") if n in others]
    if held and all(abs(g.share) <= FLAT_SHARE for g in held):
        ruled += [RuledOut(cause=c, because="device memory is flat") for c in ("fragmentation", "memory_leak")]
    return tuple(ruled)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("host_side_accumulation",),
        needs=("training_steps",),
        uses=("telemetry", "log_messages", "settings"),
        find=lambda t: find_host_side_accumulation(
            of_last_batch_size(t["training_steps"], t.get("settings")), t.get("telemetry"), t.get("log_messages")
        ),
    ),
)
