"""Failed allocations in logs -> why: phase first, then size (another process, limit, one request, fragments)."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.analyses.log_memory import memory_failures, stage_peaks_of_logs
from workbench.findings.finding import Confidence, Culprit, Evidence, Finding, RuledOut, Steps
from workbench.findings.rule import Rule
from workbench.findings.stage_memory import find_stage_imbalance_in_logs

GIB = 2**30
OTHERS_SHARE = 0.2  # of the card, held by nobody that the message counts: driver and links take a few percent
OTHERS_SHARE_HIGH = 0.5
LIMIT_SHARE = 0.9  # a limit below this share of the card leaves more than driver and links need
SYSTEM_BYTES = 3 * GIB  # what driver, runtime and links of a card take
IDLE_SHARE = 0.05  # of the pool, free in pieces: less is the usual rest
FRAGMENT_SHARE = 0.15  # of the peak, as for recorded pools
REQUEST_SHARE = 0.15  # of what there is: the largest activations of a layer stay below it
REQUEST_SHARE_HIGH = 0.25
REQUEST_BYTES = 16 * GIB  # a quarter of the largest common card, where no line tells the size of this one
IN_USE_SHARE = 0.5  # MindSpore refuses a card with less than half of its memory free
WORDS = {
    "init": "while the job starts, before any network is built or run",
    "load": "while a checkpoint is loaded",
    "first_step": "while compiling or running the first step",
    "late": "after steps that went well",
    "unknown": "at a time that the log does not tell",
}
SOURCE = "messages of MindSpore, torch and torch_npu, read by phase and size; thresholds ours"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a failure is: cause, how sure, one sentence on why, and what to do."""

    cause: str
    confidence: Confidence
    because: str
    fix: str
    sub_cause: str | None = None


def find_memory_failures(
    log_messages: pd.DataFrame, settings: pd.DataFrame | None = None, telemetry: pd.DataFrame | None = None
) -> list[Finding]:
    """One finding per cause of failed allocations, on the first rank that failed so.

    Where stages hold uneven memory and the fullest is beyond the limit, its failure is told there.

    Args:
        log_messages: table `log_messages`.
        settings: table `settings`.
        telemetry: table `telemetry`: memory and processes of the cards, where a usage table lies beside the logs.
    """
    failures = _with_card_sizes(memory_failures(log_messages, settings), log_messages, telemetry)
    stages = find_stage_imbalance_in_logs(stage_peaks_of_logs(log_messages, settings), settings, failures)
    explained = any(f.severity == "critical" for f in stages)
    judged = [(row, judge(row)) for _, row in failures.sort_values(["time_ns", "rank_id"]).iterrows()]
    ranks = int(log_messages["rank_id"].nunique())
    found: dict[str, Finding] = {}
    for row, what in judged:
        if what.cause in found or (explained and what.cause == "out_of_memory"):
            continue
        alike = [other for other, its in judged if its.cause == what.cause]
        found[what.cause] = _finding(row, what, alike, ranks, _usage(telemetry))
    return [*stages, *found.values()]


def judge(row: pd.Series) -> Judged:
    """The cause of one failure, a row of `memory_failures`; the first of the ordered checks that holds."""
    checks = (_held_by_others, _no_memory_for_links, _limited, _in_pieces, _one_request)
    return next((found for check in checks if (found := check(row)) is not None), _filled(row))


def _held_by_others(row: pd.Series) -> Judged | None:
    if row["kind"] != "device_in_use":
        others = row["total_bytes"] - row["free_bytes"] - row[["process_bytes", "reserved_bytes"]].max()
        if not others >= OTHERS_SHARE * row["total_bytes"]:
            return None
        sure = others >= OTHERS_SHARE_HIGH * row["total_bytes"] or row["phase"] in ("init", "load")
        because = f"{_gib(others)} of the card's {_gib(row['total_bytes'])} are held by other processes"
    else:
        sure, because = True, f"only {_gib(row['free_bytes'])} of {_gib(row['total_bytes'])} are free at start"
    card = f"card {row['device_id']}" if not pd.isna(row["device_id"]) else "that card"
    return Judged(
        cause="device_shared_with_other_process",
        confidence="high" if sure else "medium",
        because=because,
        fix=f"End the left-over process on {card} (npu-smi info or nvidia-smi lists it) or choose a free card; where "
        "data workers of the job itself use the device, cap their memory or use threads. Leave batch size and "
        "parallel settings as they are.",
    )


def _no_memory_for_links(row: pd.Series) -> Judged | None:
    if row["kind"] != "link_memory":
        return None
    return Judged(
        cause="out_of_memory",
        sub_cause="link_memory",
        confidence="medium",
        because="no memory was left outside the pool for the buffers of a communication link",
        fix="Lower the pool's limit (max_device_memory) by a few GiB, or the buffers of the links (HCCL_BUFFSIZE).",
    )


def _limited(row: pd.Series) -> Judged | None:
    budget, total, request = row["budget_bytes"], row["total_bytes"], row["request_bytes"]
    more = total - SYSTEM_BYTES - budget
    missing = request - (row["free_bytes"] if row["free_bytes"] < request else 0.0)
    if not (budget < LIMIT_SHARE * total and more >= missing):
        return None
    return Judged(
        cause="memory_limit_too_low",
        confidence="high",
        because=f"the limit is {_gib(budget)}, the card has {_gib(total)}, and {_gib(missing)} more were needed",
        fix=f"Raise max_device_memory to {(total - SYSTEM_BYTES) / GIB:.0f}GB (the card's memory less what driver and "
        "links take), or leave it unset.",
    )


def _in_pieces(row: pd.Series) -> Judged | None:
    idle = row["idle_bytes"] if row["idle_bytes"] > 0 else row["reserved_bytes"] - row["allocated_bytes"]
    pieces = row["actual_peak_bytes"] - row["used_peak_bytes"]
    in_pool = idle >= row["request_bytes"] and idle >= IDLE_SHARE * max(row["reserved_bytes"], idle)
    at_peak = pieces >= row["request_bytes"] and pieces >= FRAGMENT_SHARE * row["actual_peak_bytes"]
    if not (in_pool or at_peak):
        return None
    return Judged(
        cause="fragmentation",
        confidence="high" if in_pool else "medium",
        because=f"{_gib(idle if in_pool else pieces)} of the pool are free, but in pieces smaller than the request",
        fix="Let the pool map pieces together (MS_ALLOC_CONF=enable_vmm:True, or expandable_segments:True), and pad "
        "sequences to few lengths.",
    )


def _one_request(row: pd.Series) -> Judged | None:
    request, kernel = row["request_bytes"], row["kernel"]
    of_a_graph = not pd.isna(kernel) and str(kernel).startswith("kernel_graph")  # all tensors of a graph at once
    whole_graph = of_a_graph or bool(request == row["graph_dynamic_bytes"])
    there = next((row[c] for c in ("budget_bytes", "total_bytes") if row[c] > 0), float("nan"))
    large = request >= REQUEST_SHARE * there if there > 0 else request >= REQUEST_BYTES
    if whole_graph or not large:
        return None
    by = f" by {kernel}" if not pd.isna(kernel) else ""
    share = f", {request / there:.0%} of the {_gib(there)} that there are" if there > 0 else ""
    return Judged(
        cause="single_request_too_large",
        confidence="high" if there > 0 and request >= REQUEST_SHARE_HIGH * there else "medium",
        because=f"one request{by} asks for {_gib(request)}{share}",
        fix="Make that one tensor smaller: split the batch or the sequence into micro-batches, cut the vocabulary "
        "dimension of logits over ranks or chunks, use flash attention in place of full score matrices, and look for a "
        "wrong shape (a broadcast, padding to the longest sample).",
    )


def _filled(row: pd.Series) -> Judged:
    fixes = {
        "init": "Load or initialise weights on the host, shard optimizer state, and see what else holds the card.",
        "load": "Load the checkpoint on the host or in shards, so that weights are not on the card twice.",
        "first_step": "Recompute activations, shard optimizer state, or use smaller micro-batches; a dry run "
        "(MS_SIMULATION_LEVEL=1) tells the peak of each stage beforehand.",
        "late": "Look at what changed at that step: longer samples, an evaluation, a checkpoint, memory that grows; "
        "record device memory per step to see which.",
    }
    return Judged(
        cause="out_of_memory",
        confidence="medium",
        because="the memory is filled by many allocations, none of which stands out",
        fix=fixes.get(row["phase"], fixes["first_step"]),
    )


def _finding(row: pd.Series, what: Judged, alike: list[pd.Series], ranks: int, usage: pd.DataFrame) -> Finding:
    who = f"Rank {row['rank_id']}" if not pd.isna(row["rank_id"]) else "A rank"
    failed = sorted({int(r["rank_id"]) for r in alike if not pd.isna(r["rank_id"])})
    return Finding(
        cause=what.cause,
        sub_cause=what.sub_cause,
        playbook="T9" if what.cause == "fragmentation" else "T3",
        severity="critical",
        confidence=what.confidence,
        title=f"{who} lacks device memory {WORDS[row['phase']]}: {what.because}.",
        fix=what.fix,
        source=SOURCE,
        culprit=Culprit(
            rank=failed[0] if len(failed) == 1 else None,
            op=None if pd.isna(row["kernel"]) or what.cause != "single_request_too_large" else str(row["kernel"]),
        ),
        steps=Steps() if pd.isna(row["last_step"]) else Steps(first=int(row["last_step"]) + 1),
        evidence=(*_phase_facts(row), *_size_facts(row), *_spread_facts(row, failed, ranks, usage)),
        rules_out=_ruled_out(row, what.cause),
    )


def _phase_facts(row: pd.Series) -> list[Evidence]:
    where = f"{row['file']}, line {row['line']}"
    phase = str(row["phase"]).replace("_", " ")
    facts = [Evidence(fact="phase of the failure", value=phase, table="log_messages", where=where)]
    if row["phase"] in ("init", "load", "first_step"):
        facts.append(Evidence(fact="steps finished before the failure", value=0, unit="steps", where=where))
    elif not pd.isna(row["last_step"]):
        facts.append(Evidence(fact="last step before the failure", value=int(row["last_step"]), where=where))
    return facts


def _size_facts(row: pd.Series) -> list[Evidence]:
    names = {
        "request_bytes": "requested",
        "free_bytes": "free at that time",
        "allocated_bytes": "in use by tensors",
        "reserved_bytes": "held by the pool",
        "process_bytes": "held by this process",
        "idle_bytes": "free inside the pool, in pieces",
        "budget_bytes": "limit of the pool",
        "total_bytes": "memory of the card",
    }
    where = f"{row['file']}, line {row['line']}"
    facts = [
        Evidence(fact=fact, value=float(row[c]) / GIB, unit="GiB", table="log_messages", where=where)
        for c, fact in names.items()
        if row[c] == row[c]
    ]
    if row["free_bytes"] >= 0 and row["total_bytes"] > 0:
        share = float(row["free_bytes"] / row["total_bytes"])
        facts.append(Evidence(fact="free share of the card", value=share, unit="share", where=where))
    return facts


def _spread_facts(row: pd.Series, failed: list[int], ranks: int, usage: pd.DataFrame) -> list[Evidence]:
    facts = [Evidence(fact="ranks that fail so", value=len(failed), unit=f"of {ranks} ranks with a log")]
    if usage.empty:
        return facts
    held = usage["used"] > IN_USE_SHARE * usage["total"]
    facts.append(Evidence(fact="cards more than half in use", value=int(held.sum()), unit=f"of {len(usage)} cards",
                          table="telemetry"))  # fmt: skip
    own = usage[usage["device_id"] == row["device_id"]]
    others = usage[usage["device_id"] != row["device_id"]]
    if len(own):
        facts.append(Evidence(fact=f"in use on card {row['device_id']}", value=float(own["used"].iloc[0]) / GIB,
                              unit="GiB", table="telemetry"))  # fmt: skip
    if len(others):
        facts.append(Evidence(fact="in use on the other cards, median", value=float(others["used"].median()) / GIB,
                              unit="GiB", table="telemetry"))  # fmt: skip
    return facts


def _ruled_out(row: pd.Series, cause: str) -> tuple[RuledOut, ...]:
    if cause != "device_shared_with_other_process":
        return ()
    because = f"it fails {WORDS[row['phase']]}, for lack of free memory on the card and not for what this job holds"
    return tuple(RuledOut(cause=c, because=because) for c in ("out_of_memory", "stage_imbalance", "fragmentation"))


def _usage(telemetry: pd.DataFrame | None) -> pd.DataFrame:
    """Memory of the cards where it was looked at: host, device_id, used, total (bytes), highest of each."""
    names = {"device_memory_used_bytes": "used", "device_memory_total_bytes": "total"}
    rows = pd.DataFrame() if telemetry is None else telemetry[telemetry["metric"].isin(names)]
    if rows.empty or rows["metric"].nunique() < len(names):
        return pd.DataFrame(columns=["host", "device_id", "used", "total"])
    wide = rows.assign(metric=rows["metric"].map(names)).pivot_table(
        index=["host", "device_id"], columns="metric", values="value", aggfunc="max", dropna=False
    )
    return wide.dropna().reset_index()


def _with_card_sizes(
    failures: pd.DataFrame, log_messages: pd.DataFrame, telemetry: pd.DataFrame | None
) -> pd.DataFrame:
    """The failures, with the size of the cards from other lines or the usage table where their own tell none."""
    peaks = log_messages.loc[log_messages["kind"] == "memory_summary", "fields"].dropna()
    stated = peaks.str.extract(r'"device_memory_bytes":(\d+)')[0].dropna().astype("float64")
    usage = _usage(telemetry)["total"].astype("float64")
    known = pd.concat([stated, usage])
    return failures if known.empty else failures.assign(total_bytes=failures["total_bytes"].fillna(known.median()))


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"


RULES: tuple[Rule, ...] = (
    Rule(
        causes=(
            "out_of_memory",
            "stage_imbalance",
            "device_shared_with_other_process",
            "single_request_too_large",
            "memory_limit_too_low",
            "fragmentation",
        ),
        needs=("log_messages",),
        uses=("settings", "telemetry"),
        find=lambda t: find_memory_failures(t["log_messages"], t.get("settings"), t.get("telemetry")),
    ),
)
