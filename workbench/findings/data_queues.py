"""The rule on starvation that a log shows: queues in front of the device, data time, slow-data warnings."""

from __future__ import annotations

import pandas as pd

from workbench.analyses.data_queues import (
    EMPTY_SHARE_STARVED,
    SAMPLES_LEAST,
    channel_summaries,
    connector_fill,
    slow_data_lines,
)
from workbench.analyses.step_time import rank_step_times
from workbench.findings.finding import Confidence, Culprit, Evidence, Finding, RuledOut, Severity
from workbench.findings.rule import Rule, Tables

CONNECTOR_EMPTY_STARVED = 0.6  # MindSpore's own limit on the input of its device queue
WARNINGS_LEAST = 3  # slow batches: one or two are a cold start
WAIT_SHARE_LEAST = 0.10
WAIT_SHARE_CRITICAL = 0.30
IO_WAIT_SHARE = 0.15  # of the host's time: it waits for storage
FIXES = {
    "generator": "Move work out of the generator's __getitem__ or __next__, read from MindRecord or a local cache "
    "instead of single files, raise num_parallel_workers of GeneratorDataset and of the maps, and prefetch_size",
    "transfer": "Look at what slows the copy to the device: batch size in bytes, pinning of the process, load of the "
    "host's memory bus; smaller or packed columns (int32, no padding) help",
    None: "Time the pipeline alone (workbench data profile), convert its source to MindRecord or cache it locally, "
    "raise num_parallel_workers of generator and maps, and prefetch_size",
}


def find_starved_queue(tables: Tables) -> list[Finding]:
    """One finding if a log shows that the device waits for its batches; none if it shows a fed device queue.

    Args:
        tables: `log_messages`; uses `training_steps` (data time) and `telemetry` (device, processor, I/O wait).
    """
    messages = tables["log_messages"]
    summaries, lines = channel_summaries(messages), slow_data_lines(messages)
    told = summaries[(summaries["device_samples"] >= SAMPLES_LEAST) | (summaries["host_samples"] >= SAMPLES_LEAST)]
    queue = None if told.empty else told.iloc[-1]
    share, wait_us = _data_wait(tables.get("training_steps"))
    connector = connector_fill(messages)
    hung = (messages["kind"] == "timeout_collective").any()  # then data time-outs are what followed from it
    failed = lines["what"].isin(["data_hang", "data_timeout"]).any() and not hung
    starved = _is_starved(queue, connector, lines, has_failed=failed)
    if starved is False or (starved is None and not (share >= WAIT_SHARE_LEAST and _slow_lines(lines))):
        return []
    slow_transfer = queue is not None and queue["host_empty_share"] < EMPTY_SHARE_STARVED
    part = "transfer" if slow_transfer else "generator" if "generator" in set(lines["what"]) else None
    facts = (*_queue_facts(queue, connector), *_line_facts(lines), *_time_facts(share, wait_us))
    return [
        Finding(
            cause="data_starved",
            playbook="T6",
            severity="critical" if failed else _severity(share, starved),
            confidence=_confidence(queue, connector, share),
            title=_title(queue, connector, lines, share),
            fix=FIXES[part] + _storage_words(tables.get("telemetry")),
            source="MindSpore: channel summary of the data queue, slow-data warnings; limits ours",
            culprit=Culprit(data_op="Generator" if part == "generator" else None),
            saves_us_per_step=wait_us if wait_us > 0 else None,
            evidence=(*facts, *_host_facts(tables.get("telemetry"))),
            rules_out=_ruled_out(queue, slow_transfer),
        )
    ]


def _is_starved(
    queue: pd.Series | None, connector: dict[str, float], lines: pd.DataFrame, *, has_failed: bool
) -> bool | None:
    """What the queues say; None if they say nothing and warnings have to do."""
    if queue is not None and queue["device_samples"] >= SAMPLES_LEAST:
        return bool(queue["device_empty_share"] >= EMPTY_SHARE_STARVED)
    if "empty_share" in connector:
        return connector["empty_share"] >= CONNECTOR_EMPTY_STARVED
    if queue is not None:
        return bool(queue["host_empty_share"] >= EMPTY_SHARE_STARVED) and bool(_slow_lines(lines))
    return True if has_failed or _slow_lines(lines) >= WARNINGS_LEAST else None


def _slow_lines(lines: pd.DataFrame) -> int:
    """Warnings of slow batches; a slow first one is a cold start."""
    return int(lines.loc[lines["what"] != "first_batch", "lines"].sum())


def _data_wait(training_steps: pd.DataFrame | None) -> tuple[float, float]:
    """Share and microseconds of the typical step that pass in front of its batch."""
    if training_steps is None or not training_steps["data_wait_us"].notna().any():
        return float("nan"), float("nan")
    ranks = rank_step_times(training_steps)
    ranks = ranks[ranks["step_us"] > 0]
    if ranks.empty:
        return float("nan"), float("nan")
    wait, step = float(ranks["data_wait_us"].median()), float(ranks["step_us"].median())
    return min(wait / step, 1.0), wait


def _severity(share: float, starved: bool | None) -> Severity:
    if share >= WAIT_SHARE_CRITICAL:
        return "critical"
    return "warning" if starved or share >= WAIT_SHARE_LEAST else "info"


def _confidence(queue: pd.Series | None, connector: dict[str, float], share: float) -> Confidence:
    proofs = [
        queue is not None and queue["device_samples"] >= SAMPLES_LEAST,
        bool(connector),
        share >= WAIT_SHARE_LEAST,
    ]
    return "high" if any(proofs) else "medium"


def _title(queue: pd.Series | None, connector: dict[str, float], lines: pd.DataFrame, share: float) -> str:
    parts = []
    if queue is not None and queue["device_samples"] >= SAMPLES_LEAST:
        parts.append(f"the device queue was empty in {queue['device_empty_share']:.0%} of its last samples")
    elif "empty_share" in connector:
        parts.append(f"the queue to the device was empty {connector['empty_share']:.0%} of the time")
    if share == share:
        parts.append(f"{share:.0%} of the typical step passed waiting for data")
    if not parts:
        parts.append(f"the log has {int(lines['lines'].sum())} warnings of slow data")
    return f"The device waits for its data: {' and '.join(parts)}."


def _queue_facts(queue: pd.Series | None, connector: dict[str, float]) -> list[Evidence]:
    facts = []
    if queue is not None:
        where = f"{queue['file']} line {queue['line']}"
        for name in ("device", "host"):
            if queue[f"{name}_samples"] > 0:
                words = f"{name} queue empty, of {int(queue[f'{name}_samples'])} samples"
                facts.append(_share(words, queue[f"{name}_empty_share"], where))
        facts += [
            Evidence(fact=words, value=float(queue[column]), unit="us", table="log_messages", where=where)
            for words, column in (("push to the device, median", "push_us"),
                                  ("gap between pushes, median", "between_pushes_us"))
            if queue[column] == queue[column]
        ]  # fmt: skip
        if pd.notna(queue["have_sent"]):
            sent = int(queue["have_sent"])
            facts.append(Evidence(fact="batches sent", value=sent, unit="batches", table="log_messages", where=where))
    if "empty_share" in connector:
        facts.append(_share("queue to the device empty, by AutoTune", connector["empty_share"], "AutoTune lines"))
    return facts


def _share(fact: str, value: float, where: str) -> Evidence:
    return Evidence(fact=fact, value=float(value), unit="share", table="log_messages", where=where)


def _line_facts(lines: pd.DataFrame) -> list[Evidence]:
    return [
        Evidence(
            fact=f"slow-data warnings: {str(row.what).replace('_', ' ')}"
            + (f", above {row.limit_s:.0f} s" if row.limit_s == row.limit_s else ""),
            value=int(row.lines),
            unit="lines",
            table="log_messages",
            where=f"{row.file} from line {row.first_line}",
        )
        for row in lines.itertuples(index=False)
    ]


def _time_facts(share: float, wait_us: float) -> list[Evidence]:
    if share != share:
        return []
    return [
        Evidence(fact="data time share of the typical step", value=share, unit="share", table="training_steps"),
        Evidence(fact="data time of the typical step", value=wait_us, unit="us", table="training_steps"),
    ]


def _host_facts(telemetry: pd.DataFrame | None) -> list[Evidence]:
    words = {"device_utilization_share": "mean device utilisation", "host_cpu_share": "mean processor use of the host",
             "host_io_wait_share": "mean I/O wait of the host"}  # fmt: skip
    return [
        Evidence(fact=fact, value=_mean(telemetry, metric), unit="share", table="telemetry")
        for metric, fact in words.items()
        if _mean(telemetry, metric) == _mean(telemetry, metric)
    ]


def _mean(telemetry: pd.DataFrame | None, metric: str) -> float:
    if telemetry is None:
        return float("nan")
    return float(telemetry.loc[telemetry["metric"] == metric, "value"].mean())


def _storage_words(telemetry: pd.DataFrame | None) -> str:
    if _mean(telemetry, "host_io_wait_share") >= IO_WAIT_SHARE:
        return "; the host waits for storage, so more workers alone help less than a cache or a packed format."
    return "."


def _ruled_out(queue: pd.Series | None, slow_transfer: bool) -> tuple[RuledOut, ...]:
    if queue is None or not queue["device_empty_share"] >= EMPTY_SHARE_STARVED:
        return ()
    because = "the device queue was empty: the device had no batch to work on"
    out = [RuledOut(cause=c, because=because) for c in ("exposed_communication", "small_ops", "slow_op")]
    if not slow_transfer and queue["between_pushes_us"] > queue["push_us"]:
        push_ms, gap_ms = queue["push_us"] / 1e3, queue["between_pushes_us"] / 1e3
        words = f"a push takes {push_ms:.1f} ms, the gap between pushes {gap_ms:.0f} ms"
        out.append(RuledOut(cause="slow_transfer", because=words))
    return tuple(out)


RULES: tuple[Rule, ...] = (
    Rule(
        causes=("data_starved",), needs=("log_messages",), uses=("training_steps", "telemetry"), find=find_starved_queue
    ),
)
