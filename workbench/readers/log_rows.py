"""What the lines of one log add up to: compact columns while reading, checked tables at the end."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from workbench.readers.log_notes import NoteBook

NO_INT = -(2**63)
PLANNED_STEPS = "log.planned_steps"  # setting: steps that the line says the training will have
MISSING = float("nan")
MAX_MESSAGES_PER_KIND = 20_000
MAX_TEXT = 2000
LONGEST_S = 1e9
# kinds that come as unstamped lines of a stamped report
_REPORTED = (
    "timeout_collective timeout_link timeout_stream link_memory task_failed oom device_in_use memory_summary "
    "exception hardware_check data_queue data_timeout pass_time"
)
REPORTED = frozenset(_REPORTED.split())
# a second one of these at the same step means a second print, not a completion
MEASURED = frozenset(
    ("loss", "step_us", "learning_rate", "gradient_norm", "flops_per_s", "device_allocated_bytes", "loss_finite")
)


class Columns:
    """Append-only numeric table; a column takes memory only from the first row that has it."""

    def __init__(self) -> None:
        self.length = 0
        self.data: dict[str, array[float]] = {}

    def add(self, values: Mapping[str, float]) -> int:
        """Append a row; returns its index."""
        row = self.length
        self.length += 1
        self.update(row, values)
        return row

    def update(self, row: int, values: Mapping[str, float]) -> None:
        """Set cells of a row."""
        for name, value in values.items():
            column = self.data.get(name)
            if column is None:
                column = self.data[name] = array("d")
            behind = row - len(column)
            if behind > 0:
                column.extend([MISSING] * behind)
            if behind >= 0:
                column.append(value)
            else:
                column[row] = value

    def get(self, row: int, name: str) -> float:
        """A cell; NaN where it was never set."""
        column = self.data.get(name)
        return column[row] if column is not None and row < len(column) else MISSING

    def column(self, name: str) -> array[float]:
        """A whole column, missing where it was never set."""
        column = self.data.get(name, array("d"))
        column.extend([MISSING] * (self.length - len(column)))
        return column


@dataclass(slots=True)
class Now:
    """The line that is being read: where it stands and what its prefix says."""

    number: int = 0
    complete: bool = True
    rank_id: int = -1  # -1: the rank of the file
    level: str | None = None
    module: str | None = None
    time_ns: int = NO_INT
    above_ns: int = NO_INT  # time of a line not far above, for the lines of a report that is stamped once at its head


@dataclass(slots=True)
class Message:
    """A row of `log_messages` before its step is known."""

    rank_id: int
    number: int
    time_ns: int
    level: str | None
    module: str | None
    kind: str
    step_row: int
    text: str
    fields: dict[str, object]


@dataclass(slots=True)
class Event:
    """A row of `events`; `duration_us` NaN while it is open."""

    rank_id: int
    kind: str
    start_ns: int
    duration_us: float
    step_row: int
    step: int | None
    name: str
    detail: dict[str, object]


@dataclass(slots=True)
class Score:
    """A row of `evals`."""

    step_row: int
    step: int | None
    subset: str
    metric: str
    value: float
    seconds: float
    time_ns: int


@dataclass
class LogRows:
    """Everything found in one log so far.

    `steps` has one row per training step and rank: `rank_id`, and `step`, or `epoch` and `step_in_epoch`, or what else
    the line says about its place; times do not fit into float64 and stand in `step_times_ns`.
    """

    notes: NoteBook
    now: Now = field(default_factory=Now)
    steps: Columns = field(default_factory=Columns)
    step_times_ns: array[int] = field(default_factory=lambda: array("q"))
    last_row: dict[int, int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    message_counts: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    extras: Columns = field(default_factory=Columns)  # numbers without a column: step_row, step, name, value
    extra_names: dict[str, int] = field(default_factory=dict)
    groups: Columns = field(default_factory=Columns)  # rank_id, step, group, gradient_norm, parameter_norm
    group_names: dict[str, int] = field(default_factory=dict)
    stated_rank: int | None = None  # "rank id: 3" in the text
    loss_digits: int = 0  # length of the last loss of LossMonitor
    epoch_rows: dict[int, int] = field(default_factory=dict)  # rank -> steps printed since its last epoch line
    epochs_done: dict[int, int] = field(default_factory=dict)  # rank -> epoch lines
    steps_per_epoch: list[tuple[float, float]] = field(default_factory=list)  # by epoch time / step time, and its error
    phases: dict[int, dict[str, object]] = field(default_factory=dict)  # rank -> phase that is about to be compiled
    open_compiles: list[Event] = field(default_factory=list)
    templates: dict[tuple[str, str], tuple[int, Message | None]] = field(default_factory=dict)  # other warnings
    hf_count: int = 0  # training dictionaries of the Hugging Face Trainer
    time_line: int = 0  # line that gave `now.time_ns`
    bar_total: int | None = None
    bar_step: int | None = None
    train_end: dict[str, float] = field(default_factory=dict)

    def add_step(self, key: tuple[str, ...], values: Mapping[str, float]) -> int:
        """Add a row for the step of this line, or complete the last row of the rank if `key` values are the same.

        `key` names the columns that identify the step (empty: always a new row); a value that is already there is
        never overwritten.
        """
        rank = self.now.rank_id
        if "loss" in values:
            values = {**values, "loss_finite": float(math.isfinite(values["loss"]))}
        last = self.last_row.get(rank, -1)
        if last >= 0 and self._continues(last, key, values):
            self.complete_step(values)
            return last
        row = self.steps.add({"rank_id": rank, **values})
        self.step_times_ns.append(self.now.time_ns)
        self.last_row[rank] = row
        return row

    def _continues(self, row: int, key: tuple[str, ...], values: Mapping[str, float]) -> bool:
        same = bool(key) and all(self.steps.get(row, name) == values.get(name) for name in key)
        return same and not any(name in MEASURED and not math.isnan(self.steps.get(row, name)) for name in values)

    def complete_step(self, values: Mapping[str, float]) -> None:
        """Add cells to the last step of the rank of this line."""
        row = self.step_row
        if row >= 0:
            self.steps.update(row, {k: v for k, v in values.items() if math.isnan(self.steps.get(row, k))})

    @property
    def step_row(self) -> int:
        """Row of the last step that the rank of this line printed; -1 before the first."""
        return self.last_row.get(self.now.rank_id, -1)

    def add_message(self, kind: str, text: str, fields: Mapping[str, object] | None = None) -> Message | None:
        """Add a message of this line."""
        count = self.message_counts[kind] = self.message_counts.get(kind, 0) + 1
        if count > MAX_MESSAGES_PER_KIND:
            self.notes.add(
                f"more than {MAX_MESSAGES_PER_KIND} messages of kind {kind}; the rest was only counted",
                self.now.number,
                "the later ones",
                "read the log in parts",
            )
            return None
        now = self.now
        facts, at = dict(fields or {}), now.time_ns
        if at == NO_INT and now.above_ns != NO_INT and kind in REPORTED:
            at = now.above_ns
            facts["time_from"] = "a line above"
        message = Message(
            now.rank_id, now.number, at, now.level, now.module, kind, self.step_row, text[:MAX_TEXT], facts
        )
        self.messages.append(message)
        return message

    def add_event(
        self, kind: str, start_ns: int, duration_us: float, name: str = "", detail: Mapping[str, object] | None = None
    ) -> Event:
        """Add an interval or mark at the last step of the rank."""
        event = Event(self.now.rank_id, kind, start_ns, duration_us, self.step_row, None, name, dict(detail or {}))
        self.events.append(event)
        return event

    def add_ended_event(
        self, kind: str, seconds: float, name: str = "", detail: Mapping[str, object] | None = None
    ) -> Event:
        """Add an interval of this length that ends with this line."""
        end = self.now.time_ns
        known = end != NO_INT and 0 <= seconds < LONGEST_S
        start = end - round(seconds * 1e9) if known else NO_INT
        return self.add_event(kind, start, seconds * 1e6, name, detail)

    def add_extra(self, name: str, value: float, step: float = MISSING) -> None:
        """Keep a number that has no column of its own; `step` where it is not the last step of the rank."""
        code = self.extra_names.setdefault(name, len(self.extra_names))
        self.extras.add(
            {"rank_id": self.now.rank_id, "step_row": self.step_row, "step": step, "name": code, "value": value}
        )

    def add_group(self, group: str, column: str, value: float, step: float) -> None:
        """Keep a norm of one parameter at a step."""
        code = self.group_names.setdefault(group, len(self.group_names))
        self.groups.add({"rank_id": self.now.rank_id, "step": step, "group": code, column: value})


def to_json(fields: Mapping[str, object]) -> str | None:
    """Fields as JSON text; None for no fields. NaN and infinities become null."""
    return msgspec.json.encode(fields).decode() if fields else None
