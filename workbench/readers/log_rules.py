r"""Recognising messages: a cheap token, a pattern, and the facts that its named groups give. Units stand in the names.

A group that ends in `_share` is printed in percent. Sources: message strings of MindSpore, CANN (HCCL), NCCL,
MindFormers, DeepSpeed, torch_npu.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from workbench.readers.log_values import NUMBER, number, whole

Facts = dict[str, object]
UNITS = {"GiB": 1024.0**3, "MiB": 1024.0**2, "KiB": 1024.0, "GB": 1024.0**3, "MB": 1024.0**2}

TRANSPORT_WORDS = (
    ("IB_DISABLE", "setting"), ("Bootstrap", "bootstrap"), ("nranks", "communicator"), ("libibverbs", "no_ib_library"),
    ("Socket", "socket"), ("No device", "no_ib_device"), ("IB", "ib"),
)  # fmt: skip


def named_facts(match: re.Match[str]) -> Facts:
    """Every named group that took part: a number where it is one; a number beyond all counters is left out."""
    facts = {name: _typed(name, text) for name, text in match.groupdict().items() if text is not None}
    return {name: value for name, value in facts.items() if value is not None}


def _typed(name: str, text: str) -> object:
    if text.isdigit() and not name.endswith("_share"):
        return whole(text)
    value = number(text) if text[:1].isdigit() or text[:1] in "+-." else None
    if value is None:
        return text.strip()
    return value / 100 if name.endswith("_share") else value


class Rule(NamedTuple):
    """A kind of message: `token` is a cheap test, `pattern` the real one."""

    kind: str
    token: str
    pattern: re.Pattern[str]
    facts: Callable[[re.Match[str]], Facts]


def _rule(kind: str, token: str, pattern: str = "", facts: Callable[[re.Match[str]], Facts] = named_facts) -> Rule:
    return Rule(kind, token, re.compile(pattern or re.escape(token)), facts)


def _notify_wait(match: re.Match[str]) -> Facts:
    facts = named_facts(match)
    if tag := re.search(r"tag\[([^\]]+)\]", match.string):
        facts["tag"] = tag[1]
    return facts


def _slow(match: re.Match[str]) -> Facts:
    what = match["what"]
    parts = {"first": "first_batch", "__next__": "generator", "send": "batch_to_device", "fetch a batch": "batch"}
    return {"limit_s": whole(match["limit_s"]), "what": next((v for k, v in parts.items() if k in what), "other")}


def _amounts(match: re.Match[str]) -> Facts:
    """All sizes of an out-of-memory text of torch or torch_npu."""
    words = "total capacity|already allocated|current active|free|reserved"
    found = re.findall(rf"({NUMBER}) ([GMK]iB) ({words})", match.string)
    facts: Facts = {f"{name.replace(' ', '_')}_bytes": float(size) * UNITS[unit] for size, unit, name in found}
    return {"request_bytes": float(match["size"]) * UNITS[match["unit"]], **facts, **_sentences(match.string)}


def _sentences(text: str) -> Facts:
    """Sizes as torch words them from 2.1 on (c10/cuda/CUDACachingAllocator.cpp); the pool is what it has given out."""
    size = rf"({NUMBER}) (bytes|[GMK]iB)"
    forms = {
        "total_capacity_bytes": rf"total capaci?ty of {size}",
        "free_bytes": rf"of which {size} is free",
        "process_bytes": rf"this process has {size} memory in use",
        "already_allocated_bytes": rf"Of the allocated memory {size} is allocated by",
        "unallocated_bytes": rf"{size} is reserved by \w+ but unallocated",
    }
    found = {name: match for name, form in forms.items() if (match := re.search(form, text))}
    facts: dict[str, float] = {name: float(m[1]) * UNITS.get(m[2], 1.0) for name, m in found.items()}
    if "unallocated_bytes" in facts and "already_allocated_bytes" in facts:
        facts["reserved_bytes"] = facts["already_allocated_bytes"] + facts["unallocated_bytes"]
    facts.pop("unallocated_bytes", None)
    device = re.search(r"\. GPU (\d+) has a total", text)
    return {**facts, **({"device_id": whole(device[1])} if device else {})}


def _pool(match: re.Match[str]) -> Facts:
    parts = re.findall(r"([a-zA-Z ]+):(\d+)M", match[0])
    return {f"{name.strip().lower().replace(' ', '_')}_bytes": float(size) * 1024**2 for name, size in parts}


def _rows(match: re.Match[str]) -> Facts:
    scale = UNITS.get(match["unit"] or "", 1.0)
    return {"limit_bytes": float(match["limit"]) * scale, "row_bytes": float(match["row"]) * scale}


def _watchdog(match: re.Match[str]) -> Facts:
    facts = named_facts(match)
    return {k.replace("_ms", "_s"): float(str(v)) / 1e3 if k.endswith("_ms") else v for k, v in facts.items()}


def _transport(match: re.Match[str]) -> Facts:
    text = match["how"]
    facts: Facts = {"transport": next((word for mark, word in TRANSPORT_WORDS if mark in text), text.strip())}
    if ranks := re.search(r"nranks (\d+)", text):
        facts["ranks"] = whole(ranks[1])
    if value := re.search(r"_DISABLE set(?: by environment)? to (\d+)", text):
        facts["disabled"] = whole(value[1])
    if host := re.match(r"\s*([\w.-]+):\d+:\d+ \[", match.string):
        facts["host"] = host[1]
    return facts


RULES: tuple[Rule, ...] = (
    _rule(
        "timeout_collective",
        "EI0002",
        r"(?P<code>EI0002)(?:.*?remote rank:? ?\[?(?P<remote_rank>\d+|local)?)?",
        _notify_wait,
    ),
    _rule("timeout_collective", "stuck notify", r"stuck notify num(?:\D{0,3}(?P<notifies>\d+))?"),
    _rule("timeout_collective", "NOTIFY WAIT", r"NOTIFY WAIT(?:.*?localRank:\D{0,3}(?P<local_rank>\d+))?"),
    _rule(
        "timeout_collective",
        "WorkNCCL",
        r"caught collective operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d+)(?:, OpType=(?P<op>\w+))?"
        r"(?:.*?Timeout\(ms\)=(?P<limit_ms>\d+))?.*?\) ran for (?P<ran_ms>\d+) milliseconds",
        _watchdog,
    ),
    _rule("timeout_link", "EI0006", r"(?P<code>EI0006)"),
    _rule(
        "timeout_link",
        "socket establish timeout",
        r"role\[(?P<role>\d+)\] rank\[(?P<rank_in_line>\d+)\] timeout\[(?P<limit_s>\d+)",
    ),
    _rule("timeout_stream", "EE1002", r"(?P<code>EE1002)"),
    _rule("timeout_stream", "EE9999", r"(?P<code>EE9999)(?=.*(?:wait|time ?out))"),
    _rule("link_memory", "EI0011", r"(?P<code>EI0011)"),
    _rule("task_failed", "Distribute Task Failed"),
    _rule("task_failed", "Run task for graph", r"Run task for graph:? ?(?P<graph>\w+) error"),
    _rule("task_failed", "run failed, base info"),
    _rule("oom", "Out of Memory!!!", r"Out of Memory!!! Request memory size: (?P<request_bytes>\d+)"),
    _rule(
        "oom",
        "current free memory size",
        r"current free memory size\[(?P<free_bytes>\d+)\] is smaller than required size\[(?P<request_bytes>\d+)\]",
    ),
    _rule(
        "oom",
        "alloc failed",
        r"Device\(id:(?P<device_id>\d+)\) memory isn't enough and alloc failed, kernel name: (?P<kernel>.+?), "
        r"alloc size: (?P<request_bytes>\d+)B",
    ),
    _rule(
        "oom",
        "out of memory. Tried",
        rf"out of memory\. Tried to allocate (?P<size>{NUMBER}) (?P<unit>[GMK]iB)",
        _amounts,
    ),
    _rule("oom_warning", "collapse due to out of memory"),
    _rule("oom_warning", "Memory consumption is more", r"Memory consumption is more than (?P<host_used_share>\d+)%"),
    _rule("memory_pool", "pool info:", r"pool info: .*", _pool),
    _rule(
        "device_in_use",
        "less than half of total",
        r"free memory size is less than half of total memory size\.? ?Device (?P<device_id>\d+) Device (?:MOC|HBM) "
        r"total size: ?(?P<total_bytes>\d+) Device (?:MOC|HBM) free size: ?(?P<free_bytes>\d+)",
    ),
    _rule(
        "slow_data",
        "Bad performance attention",
        r"it (?:takes|waits) more than (?P<limit_s>\d+) seconds (?P<what>.*)",
        _slow,
    ),
    _rule("data_hang", "is hanging", rf"waiting for (?P<waited_s>{NUMBER}) ?s because the sub-process"),
    _rule("data_timeout", "GetNext", r"'GetNext', get data timeout|GetNext error may be caused"),
    _rule(
        "data_autotune",
        "Connector Capacity",
        rf"Device Connector Size: (?P<size>{NUMBER}), Connector Capacity: (?P<capacity>{NUMBER}), "
        rf"Utilization: (?P<utilization_share>{NUMBER})%, Empty Freq: (?P<empty_share>{NUMBER})%",
    ),
    _rule(
        "data_autotune",
        "Added request to change",
        r'change "(?P<setting>\w+)" of Operator: (?P<op>.*?)From old value: \[(?P<old>\d+)\] '
        r"to new value: \[(?P<new>\d+)\]",
    ),
    _rule("data_autotune", "Dataset Pipeline is not the bottleneck"),
    _rule(
        "shared_memory",
        "larger than allocated memory",
        r"max_rowsize:? (?P<limit>[\d.]+)(?:MB)?,? current rowsize:? (?P<row>\d+(?:\.\d+)?)(?P<unit>MB)?",
        _rows,
    ),
    _rule(
        "recompile",
        "has been compiled again",
        r'function "(?P<function>[^"]+)" at the file "(?P<file>[^"]+)", line (?P<line>\d+) has been compiled again'
        r"|has been compiled again",
    ),
    _rule("recompile", "might cause recompiling"),
    _rule(
        "overflow",
        "OVERFLOW!",
        rf"OVERFLOW! .*?Attempted loss scale: (?P<old_scale>{NUMBER}), reducing to (?P<new_scale>{NUMBER})",
    ),
    _rule("overflow", "loss scale already at minimum"),
    _rule("overflow", "overflow, ", rf"loss scale adjust to (?P<new_scale>{NUMBER})"),
    _rule(
        "norm_guard",
        "skip_data_grad_norm",
        rf"opt_global_step: (?P<guard_step>\d+), skip_data_grad_norm_threshold: (?P<threshold>{NUMBER}), "
        r"is_skip: \[? ?(?P<skipped>\w+)",
    ),
    _rule(
        "norm_guard",
        "Current global norm",
        rf"global norm \[(?P<norm>{NUMBER})\](?: of step (?P<guard_step>\d+) has been (?P<times>\d+) consec)?"
        rf".*?threshold:? (?P<threshold>{NUMBER})",
    ),
    _rule("nan_stop", "value of loss is NaN"),
    _rule("nan_stop", "loss is NAN or INF", r"epoch: (?P<epoch>\d+) step: (?P<step_in_epoch>\d+), loss is NAN"),
    _rule("hardware_check", "tress detection failed", r"tress detection failed(?: with error code: (?P<code>\S+))?"),
    _rule("hardware_check", "SilentCheck", r"SilentCheck(?:.*?step: (?P<check_step>\d+))?"),
    _rule(
        "network_transport",
        "NCCL INFO",
        r"NCCL INFO (?P<how>NET/IB : .*|NET/Socket : .*|Using network .*|NCCL_IB_DISABLE set.*|Bootstrap : Using .*"
        r"|Channel [\d/]+ ?: .* via NET/.*|(?:ncclCommInitRank )?comm 0x\w+ rank \d+ nranks \d+.*)",
        _transport,
    ),
    _rule("network_transport", "libibverbs", r"(?P<how>Failed to open libibverbs\S*)", _transport),
    _rule("pipeline_loss", "loss on the last card", r"pipeline stages: (?P<pipeline_stages>\d+)"),
    _rule("stage", "Model Compiling", r"(?P<stage>Model Compiling), Please Wait"),
)
