"""Lines of a log on the data pipeline -> fill of its queues, pushes to the device, warnings. Pure.

The channel summary of MindSpore lists the last fill levels of the host's and the device's queue, and when the last
batches were pushed: an empty device queue is a starved device. If the host's queue is empty, too, the producer is
slow; if it is not, the transfer is. Source: MindSpore's data processing FAQ and data_queue_op.cc.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from workbench.tables import LOG_MESSAGES

QUEUE_COLUMNS = (
    "file", "line", "rank_id", "have_sent", "host_samples", "host_empty_share", "device_samples", "device_empty_share",
    "push_us", "between_pushes_us",
)  # fmt: skip


EMPTY_SHARE_STARVED = 0.5  # of the samples of a queue: "mostly empty"
SAMPLES_LEAST = 3  # of a queue, to say anything


def channel_summaries(log_messages: pd.DataFrame) -> pd.DataFrame:
    """Queue fill and pushes of each channel summary.

    Args:
        log_messages: table `log_messages`.

    Returns:
        One row per summary, in the order of the log: QUEUE_COLUMNS. Shares are of the listed samples; push_us and
        between_pushes_us are medians. The old form knows one queue, which is the host's. Missing where not listed.
    """
    rows = LOG_MESSAGES.check(log_messages)
    rows = rows[(rows["kind"] == "data_queue") & rows["fields"].notna()]
    made = [
        {"file": row.file, "line": row.line, "rank_id": row.rank_id} | _figures(json.loads(row.fields))
        for row in rows.itertuples(index=False)
    ]
    return pd.DataFrame(made, columns=list(QUEUE_COLUMNS))


def device_queue_was_filled(log_messages: pd.DataFrame) -> bool:
    """Whether the last channel summary lists a device queue of which fewer than half of the samples are empty."""
    listed = channel_summaries(log_messages)
    listed = listed[listed["device_samples"] >= SAMPLES_LEAST]
    return len(listed) > 0 and float(listed["device_empty_share"].iloc[-1]) < EMPTY_SHARE_STARVED


def slow_data_lines(log_messages: pd.DataFrame) -> pd.DataFrame:
    """Warnings and failures of the data pipeline, counted.

    Args:
        log_messages: table `log_messages`.

    Returns:
        One row per what ("generator", "batch", "first_batch", "data_hang", "data_timeout", ...): lines, limit_s (the
        writer's limit, missing where it names none), first_line, file.
    """
    rows = LOG_MESSAGES.check(log_messages)
    rows = rows[rows["kind"].isin(["slow_data", "data_hang", "data_timeout"])]
    facts = [json.loads(text) if isinstance(text, str) else {} for text in rows["fields"]]
    named = rows.assign(
        what=[f.get("what") or kind for f, kind in zip(facts, rows["kind"], strict=True)],
        limit_s=np.array([f.get("limit_s", f.get("waited_s", np.nan)) for f in facts], dtype="float64"),
    )
    grouped = named.groupby("what", sort=False)
    return grouped.agg(
        lines=("line", "size"), limit_s=("limit_s", "median"), first_line=("line", "first"), file=("file", "first")
    ).reset_index()


def connector_fill(log_messages: pd.DataFrame) -> dict[str, float]:
    """What AutoTune says about the queue to the device: mean empty_share, utilization_share; {} if it says nothing."""
    rows = LOG_MESSAGES.check(log_messages)
    texts = rows.loc[(rows["kind"] == "data_autotune") & rows["fields"].notna(), "fields"]
    facts = pd.DataFrame([f for f in map(json.loads, texts) if "empty_share" in f])
    if facts.empty:
        return {}
    return {name: float(facts[name].mean()) for name in ("empty_share", "utilization_share") if name in facts}


def _figures(facts: dict[str, object]) -> dict[str, object]:
    host, device = (_listed(facts, *names) for names in (("host_queue", "batch_queue"), ("device_queue",)))
    return {
        "have_sent": facts.get("have_sent"),
        "host_samples": len(host),
        "host_empty_share": float((host == 0).mean()) if len(host) else np.nan,
        "device_samples": len(device),
        "device_empty_share": float((device == 0).mean()) if len(device) else np.nan,
        "push_us": _median(_listed(facts, "push_us")),
        "between_pushes_us": _median(_listed(facts, "between_pushes_us")),
    }


def _listed(facts: dict[str, object], *names: str) -> np.ndarray:
    values = next((facts[name] for name in names if isinstance(facts.get(name), list)), [])
    return np.array([v for v in values if v is not None], dtype="float64")  # type: ignore[attr-defined]


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else float("nan")
