r"""Blocks of several lines -> one message each: memory summary, channel summary, compiler pass times, printed settings.

A block ends at the first line that does not belong to it, when one of its figures comes again, or with the log.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from workbench.readers.log_prefix import time_ns
from workbench.readers.log_rows import LogRows, Now
from workbench.readers.log_values import NUMBER, dotted, literal, whole

WANTED = (
    r"([Mm]emory size|memory size of this graph|memory usage \([a-z ]+\)|memory base address): \d+",
    r"\bstage\D{0,3}\d+.*\brank\D{0,3}\d+|\brank\D{0,3}\d+.*\bstage\D{0,3}\d+|^\W*rank\D{0,3}\d+\W*$",
    r"DataQueueOp\] ?$",
    r"channel_name|have_sent|host_queue:|device_queue:|batch_queue:|preprocess_batch:|push_(first_)?(start|end)_time",
    r"^\s*\d{4}-\d\d-\d\d-[\d:.]+ -> \d{4}",
    r"TotalTime = ",
    r"^\s*\[[\w.]+\]: [\d.]+",
    r"^\{'\w+':.*,\s*$",
)

MEBI = 1024**2
MEMORY_FIGURES = {
    "Device MOC memory size": "device_memory_bytes",
    "Device HBM memory size": "device_memory_bytes",
    "MindSpore Used memory size": "budget_bytes",
    "Used peak memory usage (without fragments)": "used_peak_bytes",
    "Actual peak memory usage (with fragments)": "actual_peak_bytes",
    "Total Static Memory size": "static_bytes",
    "Total Dynamic memory size": "dynamic_bytes",
    "Dynamic memory size of this graph": "graph_dynamic_bytes",
}
HEADER_REACH = 3  # lines between a heading that names the rank and its block
LONGEST_SETTINGS = 5000  # lines
MAX_TRIES = 20  # a dictionary is tried at each line that may be its last; each try reads it from its beginning

_FIGURE = re.compile(
    r"(?P<name>"
    + "|".join(re.escape(n) for n in MEMORY_FIGURES)
    + r"|MindSpore memory base address): (?P<mb>\d+)(?P<unit>M?)"
)
_RANK = re.compile(r"\brank\D{0,3}(\d{1,6})\b", re.IGNORECASE)
_STAGE = re.compile(r"\bstage\D{0,3}(\d{1,5})\b", re.IGNORECASE)
_COUNTS = re.compile(r"(have_sent|host_queue|device_queue|preprocess_batch|batch_queue): ?([\d, ]+)")
_CHANNEL = re.compile(r"channel_name: ?([\w-]+)")
_PUSH = re.compile(r"(\d{4}-\d\d-\d\d-[\d:.]+) -> (\d{4}-\d\d-\d\d-[\d:.]+)")
_OLD_TIMES = re.compile(r"push_(start|end)_time: ([\d:., -]+)")
_TOTAL = re.compile(rf"TotalTime = ({NUMBER})")
_PASS = re.compile(rf"^\s*\[([\w.]+)\]: ({NUMBER})")


_ONE_SETTING = re.compile(r"[ {]'([^']+)': ([^{\[(].*?),?\s*$")


class Block:
    """The block that is open, if any."""

    def __init__(self) -> None:
        self.kind = ""
        self.text = ""
        self.first = Now()
        self.facts: dict[str, object] = {}
        self.push_starts: list[int | None] = []
        self.push_ends: list[int | None] = []
        self.lines: list[str] = []
        self.tries = 0
        self.heading = (-HEADER_REACH - 1, "")

    def begin(self, kind: str, text: str, rows: LogRows) -> None:
        """Open a block at this line."""
        self.close(rows)
        self.kind, self.text = kind, text
        self.first = replace(rows.now)

    def close(self, rows: LogRows) -> None:
        """Turn the open block into its message."""
        kind, facts = self.kind, self.facts
        if kind == "data_queue":
            facts |= _push_figures(self.push_starts, self.push_ends)
        if kind and kind != "setting":
            self.say(kind, facts, rows)
        self.kind, self.facts, self.lines, self.tries = "", {}, [], 0
        self.push_starts, self.push_ends = [], []

    def say(self, kind: str, facts: dict[str, object], rows: LogRows) -> None:
        """Add the message with the place and time of the block's first line."""
        later, rows.now = rows.now, self.first
        rows.add_message(kind, self.text, facts)
        rows.now = later


def read_line(text: str, block: Block, rows: LogRows) -> bool:
    """Take in a line of a block; False if it belongs to none."""
    if block.kind == "setting":
        return _settings_line(text, block, rows)
    taken = any(reader(text, block, rows) for token, reader in _READERS if token in text)
    if not taken and block.kind and text.strip():
        block.close(rows)
    if not taken and "ank" in text and _RANK.search(text):
        block.heading = (rows.now.number, text)
    return taken


def _memory(text: str, block: Block, rows: LogRows) -> bool:
    match = _FIGURE.search(text)
    if not match:
        return False
    name = MEMORY_FIGURES.get(match["name"])
    if block.kind != "memory_summary" or name in block.facts:
        block.begin("memory_summary", text[match.start() :], rows)
        _take_heading(block, rows)
    size = whole(match["mb"])
    if name and size is not None and (rows.now.complete or match["unit"]):
        block.facts[name] = size * MEBI
    return True


def _take_heading(block: Block, rows: LogRows) -> None:
    number, heading = block.heading
    if rows.now.number - number <= HEADER_REACH:
        if rank := _RANK.search(heading):
            block.first.rank_id = int(rank[1])
        if stage := _STAGE.search(heading):
            block.facts["stage"] = int(stage[1])


def _channel(text: str, block: Block, rows: LogRows) -> bool:
    name, counts = _CHANNEL.search(text), _COUNTS.findall(text)
    times = _OLD_TIMES.findall(text)
    if not (name or counts or times or "push_" in text):
        return False
    again = (name and "channel" in block.facts) or any(key in block.facts for key, _ in counts)
    if block.kind != "data_queue" or again:
        block.begin("data_queue", text.strip(), rows)
    if name:
        block.facts["channel"] = name[1]
    for key, values in counts:
        numbers = [whole(v) for v in values.split(",") if v.strip()]
        if numbers:
            block.facts[key] = numbers[0] if key in ("have_sent", "preprocess_batch") else numbers
    for side, stamps in times:
        found = [time_ns(t.strip().replace(" ", "-")) for t in stamps.split(",") if t.strip()]
        (block.push_starts if side == "start" else block.push_ends).extend(found)
    return True


def _push(text: str, block: Block, rows: LogRows) -> bool:
    match = _PUSH.search(text)
    if not match or block.kind != "data_queue":
        return False
    block.push_starts.append(time_ns(match[1]))
    block.push_ends.append(time_ns(match[2]))
    return True


def _push_figures(starts: list[int | None], ends: list[int | None]) -> dict[str, object]:
    """How long pushes took, how far apart they began, and when the last one ended."""
    pushes = sorted({(s, e) for s, e in zip(starts, ends, strict=False) if s is not None and e is not None})
    if not pushes:
        return {}
    recent = pushes[-10:]
    figures: dict[str, object] = {
        "push_us": [(end - start) / 1e3 for start, end in recent],
        "first_push_start_ns": pushes[0][0],
        "last_push_end_ns": pushes[-1][1],
    }
    if len(recent) > 1:
        figures["between_pushes_us"] = [(b[0] - a[1]) / 1e3 for a, b in pairwise(recent)]
    return figures


def _passes(text: str, block: Block, rows: LogRows) -> bool:
    if match := _TOTAL.search(text):
        block.begin("pass_time", text, rows)
        block.facts["total_s"] = float(match[1])
        return True
    match = _PASS.match(text)
    if not match or block.kind != "pass_time":
        return False
    block.facts[f"{match[1]}_s"] = float(match[2])
    return True


def _settings_start(text: str, block: Block, rows: LogRows) -> bool:
    """A dictionary printed over several lines, as scripts show their configuration."""
    if not text.startswith("{'") or not text.rstrip().endswith(","):
        return False
    block.begin("setting", text, rows)
    block.lines = [text]
    return True


def _settings_line(text: str, block: Block, rows: LogRows) -> bool:
    if not text.startswith(" ") or len(block.lines) > LONGEST_SETTINGS:
        _settings_by_line(block, rows)
        block.close(rows)
        return False
    block.lines.append(text)
    if not text.rstrip().endswith("}") or block.tries >= MAX_TRIES:
        return True
    block.tries += 1
    if isinstance(values := literal("\n".join(block.lines)), dict):
        rows.settings.update(dotted(values))
        block.say("setting", {"settings": len(values)}, rows)
        block.close(rows)
    return True


def _settings_by_line(block: Block, rows: LogRows) -> None:
    """Of a dictionary that is torn or holds what is no literal, the outer values that stand on one line."""
    found = {}
    for line in block.lines:
        if match := _ONE_SETTING.match(line):
            value = literal(match[2])
            found[match[1]] = match[2].strip("'\"") if value is None else str(value)
    rows.settings.update(found)
    rows.notes.add("a printed dictionary is torn", block.first.number, "its nested settings", "look at the line")
    if found:
        block.say("setting", {"settings": len(found)}, rows)


_READERS = (
    ("emory", _memory),
    (" -> ", _push),
    ("_queue:", _channel),
    ("channel_name", _channel),
    ("have_sent", _channel),
    ("preprocess_batch:", _channel),
    ("push_", _channel),
    ("TotalTime", _passes),
    ("]: ", _passes),
    ("{'", _settings_start),
)
