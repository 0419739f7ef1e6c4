"""Write the run directory from inside a training process, without MindSpore.

Records are appended and flushed one by one, so a kill loses at most the one being written. A full disk or a lost mount
must not end a training of days: the records that cannot be written are counted and reported, training goes on.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

import msgspec

from workbench.files import RUN_SCHEMA, RunFiles, append_json_lines, write_json_atomic

log = logging.getLogger(__name__)


class RunWriter:
    """Appends the metrics and events of one rank to `root`; rank 0 also describes the run in run.json."""

    def __init__(self, root: str | os.PathLike[str], *, rank_id: int = 0, world_size: int = 1) -> None:
        self.files = RunFiles(Path(root).absolute())
        self.rank_id = rank_id
        self.world_size = world_size
        self.lost_records = 0
        self._open: dict[Path, IO[bytes]] = {}
        self._attempt = {"start_ns": time.time_ns(), "launch": sys.argv, "process_id": os.getpid()}

    def describe(self, info: Mapping[str, object]) -> None:
        """Write run.json (rank 0 only). A run that exists keeps its id and start, and gains an attempt."""
        if self.rank_id != 0:
            return
        path = self.files.run_json
        old = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
        description = {
            "schema": RUN_SCHEMA,
            "run_id": self.files.root.name,
            "start_ns": self._attempt["start_ns"],
            **{k: old[k] for k in ("run_id", "start_ns") if k in old},
            "world_size": self.world_size,
            "host": socket.gethostname(),
            "versions": versions(),
            "launch": sys.argv,
            "attempts": [*(a for a in old.get("attempts", []) if a != self._attempt), self._attempt],
            **info,
        }
        self._guard(lambda: write_json_atomic(path, description))

    def step(self, record: Mapping[str, object]) -> None:
        """Append one step's record to the rank's metrics."""
        self._append(self.files.metrics(self.rank_id), record)

    def event(
        self,
        kind: str,
        *,
        start_ns: int,
        duration_us: float | None = 0.0,
        step: int | None = None,
        name: str = "",
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Append an interval (or a mark, with duration 0) to the rank's events."""
        record = {
            "kind": kind,
            "start_ns": start_ns,
            "duration_us": duration_us,
            "step": step,
            "name": name,
            "detail": dict(detail or {}),
        }
        self._append(self.files.events(self.rank_id), record)

    def close(self) -> None:
        """Close the files; a later record opens them again."""
        for f in self._open.values():
            f.close()
        self._open.clear()

    def _append(self, path: Path, record: Mapping[str, object]) -> None:
        self._guard(lambda: self._write_line(path, record))

    def _write_line(self, path: Path, record: Mapping[str, object]) -> None:
        if path not in self._open:
            append_json_lines(path, [finite(record)])
            self._open[path] = path.open("ab", buffering=0)
        else:
            self._open[path].write(msgspec.json.encode(finite(record)) + b"\n")

    def _guard(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.lost_records += 1
            if self.lost_records in (1, 10, 100, 1000) or self.lost_records % 10000 == 0:
                log.warning(
                    "The Recorder could not write to %s (%s); %d record(s) lost so far, training goes on. "
                    "Fix: free space on that disk or give the Recorder another directory.",
                    self.files.root,
                    error,
                    self.lost_records,
                )


def finite(record: Mapping[str, object]) -> dict[str, object]:
    """The record with non-finite numbers as the words NaN, Infinity, -Infinity, which JSON numbers cannot say."""
    return {k: _word(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def versions() -> dict[str, str]:
    """Versions of what decides a run's numbers and speed; packages that are not installed are left out."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in ("mindspore", "mindformers", "numpy", "mindspore-workbench"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested configuration as one level with dotted keys; values other than scalars become text."""
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str | int | float | bool | None) else str(value)
    return flat
