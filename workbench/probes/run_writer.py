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
from typing import IO, Any

import msgspec

from workbench.errors import UnknownParameterError
from workbench.files import RUN_SCHEMA, RunFiles, append_json_lines, write_json_atomic

log = logging.getLogger(__name__)


class RunWriter:
    """Appends the metrics and events of one rank to `root`; rank 0 also describes the run in run.json."""

    def __init__(self, root: str | os.PathLike[str], *, rank_id: int = 0, world_size: int = 1) -> None:
        self.files = RunFiles(Path(root).absolute())
        if self.files.root.exists() and not self.files.root.is_dir():
            raise UnknownParameterError(f"{self.files.root} is a file.", fix="name a directory for the run")
        self.rank_id = rank_id
        self.world_size = world_size
        self.lost_records = 0
        self._open: dict[Path, IO[bytes]] = {}
        self._attempt = {"start_ns": time.time_ns(), "launch": sys.argv, "process_id": os.getpid()}

    def describe(self, info: Mapping[str, object]) -> None:
        """Write run.json (rank 0 only). A run that exists keeps its id and start, and gains an attempt."""
        if self.rank_id == 0:
            self._guard(lambda: self._describe(info))

    def _describe(self, info: Mapping[str, object]) -> None:
        old = self._earlier()
        past = old.get("attempts")
        description: dict[str, object] = {
            "schema": RUN_SCHEMA,
            "run_id": self.files.root.name,
            "start_ns": self._attempt["start_ns"],
            **{k: old[k] for k in ("run_id", "start_ns") if k in old},
            "world_size": self.world_size,
            "host": socket.gethostname(),
            "versions": versions(),
            "launch": sys.argv,
            "attempts": [*(a for a in (past if isinstance(past, list) else []) if a != self._attempt), self._attempt],
            **info,
        }
        write_json_atomic(self.files.run_json, plain(description))

    def _earlier(self) -> dict[str, Any]:
        """The run.json of an earlier attempt; one that is damaged is put aside, so that the training can start."""
        path = self.files.run_json
        if not path.exists():
            return {}
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            aside = path.with_name("run.json.damaged")
            path.replace(aside)
            log.warning("%s was damaged: it is now %s, and a new one is written.", path, aside)
            return {}

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

    def extra(self, folder: str, record: Mapping[str, object]) -> None:
        """Append to `<folder>/rank_<r>.jsonl`, the file of an optional probe."""
        self._append(self.files.root / folder / self.files.metrics(self.rank_id).name, record)

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


def finite(record: Mapping[str, object]) -> dict[str, Any]:
    """The record in values that JSON knows; non-finite numbers become the words NaN, Infinity, -Infinity."""
    values: dict[str, Any] = plain(record)
    return {k: _word(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def plain(value: object) -> Any:
    """`value` in types that JSON knows: numbers of NumPy and one-element tensors as numbers, anything else as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    try:
        number = value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):  # more than one element
        return str(value)
    return number if isinstance(number, bool | int | float) else str(value)


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
