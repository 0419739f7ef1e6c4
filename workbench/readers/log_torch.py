r"""Lines of DeepSpeed and torchtitan -> steps, timers, checkpoints, pauses. Source: their loggers."""

from __future__ import annotations

import re

from workbench.readers.log_rows import MISSING, LogRows
from workbench.readers.log_values import NUMBER, number

WANTED = (
    r"time \(ms\) \|",
    r"global_step=\d+",
    r"\] step=\d+, skipped=",
    r"step:\s+\d+\s+loss:",
    r"aving the checkpoint",
    r"\[GC\] ",
)

_TIMES = re.compile(r"time \(ms\) \|(.*)", re.DOTALL)
_THROUGHPUT = re.compile(r"epoch=(\d+)/micro_step=(\d+)/global_step=(\d+), (.*)")
_STEP = re.compile(rf"step=(\d+), skipped=(\d+), lr=\[({NUMBER})")
_TITAN = re.compile(r"step:\s+(\d+)\s+(loss:.*)")
_PAIR = re.compile(r"([a-z_]+):\s+([\d.,a-zA-Z+-]+)(?:\(|(?=\s|$))")
_SAVED = re.compile(rf"Finished saving the checkpoint.*?in ({NUMBER}) seconds")
_GC = re.compile(rf"\[GC\] (.*?)[.:]? ({NUMBER}) seconds")

GIBI = 1024.0**3
UNIT = {"gib": GIBI, "gb": GIBI, "mib": 1024.0**2, "mb": 1024.0**2}  # both print GB for 1024^3 bytes
TITAN = {
    "loss": ("loss", 1.0),
    "grad_norm": ("gradient_norm", 1.0),
    "lr": ("learning_rate", 1.0),
    "tps": ("tokens_per_s", 1.0),
    "tflops": ("flops_per_s", 1e12),
}


def read_line(text: str, rows: LogRows) -> bool:
    """Take in such a line; False if it is none."""
    return any(reader(text, rows) for token, reader in _READERS if token in text)


def _times(text: str, rows: LogRows) -> bool:
    match = _TIMES.search(text)
    if not match:
        return False
    for part in match[1].split("|"):
        name, _, value = part.partition(":")
        milliseconds = number(value)
        if milliseconds is not None:
            rows.add_extra(f"{name.strip()}_ms", milliseconds)
    return True


def _throughput(text: str, rows: LogRows) -> bool:
    match = _THROUGHPUT.search(text)
    if not match:
        return False
    pairs = dict(part.split("=", 1) for part in match[4].split(", ") if "=" in part)
    values: dict[str, float] = {}
    rate = number(pairs.get("CurrSamplesPerSec", ""))
    if rate is not None:
        rows.add_extra("CurrSamplesPerSec", rate)
    allocated = _bytes(pairs.get("MemAllocated", ""))
    if allocated is not None:
        values["device_allocated_bytes"] = allocated
    rows.add_step(("step",), {"step": float(match[3]), **values})
    peak = _bytes(pairs.get("MaxMemAllocated", ""))
    if peak is not None:
        rows.add_extra("max_allocated_bytes", peak)
    return True


def _bytes(text: str) -> float | None:
    match = re.match(rf"({NUMBER})\s*([A-Za-z]+)", text)
    return float(match[1]) * UNIT[match[2].lower()] if match and match[2].lower() in UNIT else None


def _step(text: str, rows: LogRows) -> bool:
    match = _STEP.search(text)
    if match:
        rows.add_step(("step",), {"step": float(match[1]), "learning_rate": float(match[3])})
        rows.add_extra("skipped", float(match[2]))
    return match is not None


def _titan(text: str, rows: LogRows) -> bool:
    match = _TITAN.search(text)
    if not match:
        return False
    values: dict[str, float] = {"step": float(match[1])}
    extras: dict[str, float] = {}
    for name, value in _PAIR.findall(match[2] if rows.now.complete else match[2].rpartition(" ")[0]):
        amount = number(value.replace(",", "")) if name != "memory" else _bytes(value)
        if amount is None:
            continue
        if name == "memory":
            values["device_reserved_bytes"] = amount
        elif name in TITAN:
            column, factor = TITAN[name]
            values[column] = amount * factor
        else:
            extras[name] = amount
    if mfu := re.search(rf"mfu:\s+({NUMBER})%", match[2]):
        extras["mfu_share"] = float(mfu[1]) / 100
    rows.add_step(("step",), values)
    for name, value in extras.items():
        rows.add_extra(name, value)
    return True


def _saving(text: str, rows: LogRows) -> bool:
    if match := _SAVED.search(text):
        seconds = float(match[1])
        rows.add_message("checkpoint_save", text, {"seconds": seconds})
        open_ = [e for e in rows.events if e.kind == "checkpoint" and e.duration_us != e.duration_us]
        if open_:
            open_[-1].duration_us = seconds * 1e6
        else:
            rows.add_ended_event("checkpoint", seconds, "checkpoint")
        return True
    rows.add_message("checkpoint_start", text)
    rows.add_event("checkpoint", rows.now.time_ns, MISSING, "checkpoint")
    return True


def _pause(text: str, rows: LogRows) -> bool:
    match = _GC.search(text)
    if match:
        seconds = float(match[2])
        rows.add_message("gc_pause", text, {"seconds": seconds})
        rows.add_ended_event("gc", seconds, match[1])
    return match is not None


_READERS = (
    ("time (ms) |", _times),
    ("global_step=", _throughput),
    ("skipped=", _step),
    ("loss:", _titan),
    ("aving the checkpoint", _saving),
    ("[GC]", _pause),
)
