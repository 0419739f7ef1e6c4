r"""Lines of Megatron-LM, MindSpeed-LLM and MindSpeed-Core-MS -> steps, timers, memory, checkpoints, settings.

A step line is split at its bars into `key: value`, because forks add and leave out parts. Timers give the shortest and
the longest time over the ranks. Source: megatron/training/training.py and megatron/core/timers.py.
"""

from __future__ import annotations

import math
import re

from workbench.readers.log_rows import MISSING, NO_INT, PLANNED_STEPS, LogRows, Score
from workbench.readers.log_values import NUMBER, number, whole

WANTED = (
    r"iteration\s+\d+/\s*\d+",
    r"\.{2,}: \(?[\d.]+",
    r"^\s+[a-zA-Z]\w* \.{3,} ",
    r"memory \(MB\)",
    r"(?i)(saving|saved) checkpoint",
    r"(?i)validation loss at ",
    r"using world size: ",
)

_HEAD = re.compile(r"iteration\s+(?P<step>\d+)/\s*(?P<steps>\d+)\s*\|(?P<rest>.*)", re.DOTALL)
_UNIT = re.compile(r"\s*\(([^)]*)\)\s*$")
_TIMER = re.compile(rf"^\s*([\w-]+) \.{{2,}}: (?:\(({NUMBER}), ({NUMBER})\)|({NUMBER})\s*$)")
_ARGUMENT = re.compile(r"^\s+([a-zA-Z]\w*) \.{3,} (.*\S)\s*$")
_MEMORY = re.compile(r"\(after (\d+) iterations\) memory \(MB\) \|(.*)", re.DOTALL)
_WORLD = re.compile(r"([a-z][a-z -]*?)[ -]size: (\d+)")
_SAVING = re.compile(r"saving checkpoint at iteration\s+(\d+)", re.IGNORECASE)
_VALIDATION = re.compile(
    r"validation loss at (?:the end of training|iteration\s+(?P<step>\d+))(?: on (?P<set>[\w -]+?) set)?[^|]*\|"
    r"(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_VALUE = re.compile(rf"\s*(?P<name>.*?) (?P<what>value|PPL):\s*(?P<value>{NUMBER})\s*$")
_SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration\s+(\d+)", re.IGNORECASE)

MEBI = 1024.0**2
PARTS = {  # key in the line, unit aside -> (column, factor)
    "lm loss": ("loss", 1.0),
    "loss": ("loss", 1.0),
    "learning rate": ("learning_rate", 1.0),
    "grad norm": ("gradient_norm", 1.0),
    "params norm": ("parameter_norm", 1.0),
    "loss scale": ("loss_scale", 1.0),
    "throughput per gpu": ("flops_per_s", 1e12),
    "throughput per npu": ("flops_per_s", 1e12),
    "samples per second": ("samples_per_s", 1.0),
    "tokens per second per gpu": ("tokens_per_s", 1.0),
    "actual seqlen": ("sequence_length", 1.0),
}
BATCH_SIZE, BATCH_SIZE_SINCE = "global_batch_size", "global_batch_size_since_step"
TIME_FACTORS = {"ms": 1e3, "s": 1e6, "us": 1.0}


def read_line(text: str, rows: LogRows) -> bool:
    """Take in such a line; False if it is none."""
    if "iteration" in text and (match := _HEAD.search(text)):
        _step(match, rows)
        return True
    return any(reader(text, rows) for token, reader in _READERS if token in text)


def _step(match: re.Match[str], rows: LogRows) -> None:
    values: dict[str, float] = {}
    extras: dict[str, float] = {}
    parts = match["rest"].split("|")
    if not rows.now.complete:
        parts.pop()  # either blank or cut
    for part in parts:
        key, _, text = part.strip().rpartition(":")
        value = number(text.split("/")[0]) if key else None
        if value is not None:
            _place(key, value, values, extras)
        elif key:
            rows.notes.add(
                "a number in a step line cannot be read", rows.now.number, "that number; it is missing in its row",
                "look at the line",
            )  # fmt: skip
    if skipped := extras.get("number of skipped iterations"):
        values["overflow"] = float(skipped > 0)
    if batch := extras.pop("global batch size", 0.0):
        _batch_size(f"{batch:.0f}", match["step"], rows)
    rows.settings[PLANNED_STEPS] = match["steps"]
    rows.add_step(("step",), {"step": float(match["step"]), **values})
    for name, value in extras.items():
        rows.add_extra(name, value)


def _batch_size(size: str, step: str, rows: LogRows) -> None:
    """The batch size, and since when: it may be ramped up over the first steps."""
    if rows.settings.get(BATCH_SIZE, size) != size:
        rows.settings[BATCH_SIZE_SINCE] = step
    rows.settings[BATCH_SIZE] = size


def _place(key: str, value: float, values: dict[str, float], extras: dict[str, float]) -> None:
    unit = _UNIT.search(key)
    name = _UNIT.sub("", key).strip().lower()
    if name.startswith("elapsed time per iteration"):
        values["step_us"] = value * TIME_FACTORS.get(unit[1] if unit else "ms", 1e3)
    elif name in PARTS:
        column, factor = PARTS[name]
        values[column] = value * factor
    else:
        extras[key.strip()] = value


def _timer(text: str, rows: LogRows) -> bool:
    match = _TIMER.match(text)
    if not match:
        return False
    name, low, high, single = match.groups()
    if single is not None:
        rows.add_extra(f"{name}_ms", float(single))
    else:
        rows.add_extra(f"{name}_min_ms", float(low))
        rows.add_extra(f"{name}_max_ms", float(high))
    if name == "save-checkpoint":
        _timed_save(float(high or single) * 1e3, rows)
    if name == "batch-generator":
        _waits_since_last_report(float(high or single) * 1e3, rows)
    return True


def _waits_since_last_report(wait_us: float, rows: LogRows) -> None:
    """A timer is the mean over the steps since its last report, of which there may be more than one."""
    row = rows.step_row
    while row >= 0 and math.isnan(rows.steps.get(row, "data_wait_us")):
        if rows.steps.get(row, "rank_id") == rows.now.rank_id:
            rows.steps.update(row, {"data_wait_us": wait_us})
        row -= 1


def _timed_save(duration_us: float, rows: LogRows) -> None:
    open_ = [e for e in rows.events if e.kind == "checkpoint" and e.duration_us != e.duration_us]
    if open_:
        open_[-1].duration_us = duration_us
    else:
        rows.add_event("checkpoint", NO_INT, duration_us, "save-checkpoint timer")


def _argument(text: str, rows: LogRows) -> bool:
    match = _ARGUMENT.match(text)
    if match and rows.now.complete:
        rows.settings[match[1]] = match[2]
    return match is not None


def _memory(text: str, rows: LogRows) -> bool:
    match = _MEMORY.search(text)
    if not match:
        return False
    facts: dict[str, object] = {"iterations": whole(match[1])}
    for part in match[2].split("|"):
        key, _, value = part.partition(":")
        amount = number(value)
        if amount is not None:
            facts[f"{key.strip().replace(' ', '_').replace('-', '_')}_bytes"] = amount * MEBI
    rows.add_message("memory_report", text, facts)
    return True


def _checkpoint(text: str, rows: LogRows) -> bool:
    now = rows.now
    if match := _SAVED.search(text):
        name = f"iteration {match[1]}"
        open_ = [e for e in rows.events if e.name == name and e.rank_id == now.rank_id]
        facts: dict[str, object] = {"step_in_line": whole(match[1])}
        if open_ and NO_INT not in (now.time_ns, open_[-1].start_ns):
            open_[-1].duration_us = (now.time_ns - open_[-1].start_ns) / 1e3
            facts["seconds"] = open_[-1].duration_us / 1e6
        rows.add_message("checkpoint_save", text, facts)
    elif match := _SAVING.search(text):
        rows.add_message("checkpoint_start", text, {"step_in_line": whole(match[1])})
        start = now.time_ns if now.time_ns != NO_INT else now.above_ns  # saving begins right after the step's line
        rows.add_event("checkpoint", start, MISSING, f"iteration {match[1]}").step = whole(match[1])
    return match is not None


def _validation(text: str, rows: LogRows) -> bool:
    match = _VALIDATION.search(text)
    if not match:
        return False
    step = whole(match["step"]) if match["step"] else None
    for part in match["rest"].split("|"):
        value = _VALUE.match(part)
        if value is None:
            continue
        name = value["name"].strip().lower().replace(" ", "_").removeprefix("lm_")
        metric = name if value["what"] == "value" else "perplexity" if name == "loss" else f"{name}_perplexity"
        rows.scores.append(
            Score(
                rows.step_row, step, match["set"] or "validation", metric, float(value["value"]), MISSING,
                rows.now.time_ns,
            )
        )  # fmt: skip
    return True


def _world(text: str, rows: LogRows) -> bool:
    """Sizes of the parallel groups, by the names that the arguments have: tensor_model_parallel_size, ..."""
    for name, size in _WORLD.findall(text.rpartition("using ")[2]):
        rows.settings[f"{name.strip(' ').replace('-', '_')}_size"] = size
    return True


_READERS = (
    ("...", _timer),
    ("...", _argument),
    ("memory (MB)", _memory),
    ("checkpoint", _checkpoint),
    ("alidation loss at", _validation),
    ("using world size:", _world),
)
