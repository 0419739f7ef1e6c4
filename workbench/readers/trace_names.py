"""Names of the processes and threads of a trace, and dictionary-encoded text columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from workbench.readers.trace_events import NamingEvent, decode


class Codes(dict[Any, int]):
    """Numbers values in the order of their first appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number

    def of(self, values: list[Any]) -> np.ndarray:
        """Number of each value."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def encode(self, values: list[Any]) -> pa.DictionaryArray:
        """Values as text, dictionary-encoded."""
        codes = self.of(values)
        absent = codes == self[None] if None in self else None  # Parquet takes no null inside a dictionary
        texts = pa.array(["" if v is None else str(v) for v in self], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=absent), texts)


@dataclass
class Threads:
    """Processes and threads of a trace, and the names that metadata events give them, wherever these stand."""

    pids: Codes = field(default_factory=Codes)
    tids: Codes = field(default_factory=Codes)
    process_names: dict[str, str] = field(default_factory=dict)
    process_labels: dict[str, str] = field(default_factory=dict)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)

    def learn(self, text: bytes) -> None:
        """Take the names out of the events of a chunk."""
        for event in decode(text, NamingEvent) or []:
            if event.ph == "M":
                self._learn_one(event)

    def _learn_one(self, event: NamingEvent) -> None:
        arguments = _arguments(event.args)
        pid, tid = str(event.pid), str(event.tid)
        named, labels = arguments.get("name"), arguments.get("labels")
        if event.name == "process_name" and named:
            self.process_names[pid] = str(named)
        elif event.name == "process_labels" and labels:
            self.process_labels[pid] = str(labels)
        elif event.name == "thread_name" and named:
            self.thread_names[pid, tid] = str(named)

    def layer(self, pid: Any) -> str:
        """Name of a process; its labels or number where it has none."""
        key = str(pid)
        return self.process_names.get(key) or self.process_labels.get(key) or key

    def track(self, pid: Any, tid: Any) -> str:
        """Name of a thread; its number where it has none."""
        return self.thread_names.get((str(pid), str(tid))) or str(tid)


def _arguments(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw) if len(raw) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def named(codes: np.ndarray, names: list[str]) -> pa.DictionaryArray:
    """Dictionary of `names`, each name once even if several codes have it."""
    unique = Codes()
    renumbered = unique.of(names)
    return pa.DictionaryArray.from_arrays(renumbered[codes], pa.array(list(unique), pa.string()))
