"""The checkpoints of a run: which files are complete by name, and which training step each holds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from workbench.errors import CheckpointError, UnknownContentError, UnreadableFileError
from workbench.files import RunFiles
from workbench.readers.records import read_bytes
from workbench.readers.run_directory import read_run_info

SUFFIXES = (".ckpt", ".safetensors")  # MindSpore renames the finished temporary file to one of these
NOT_COMPLETE = ("_breakpoint.ckpt",)  # written while training crashes (CheckpointConfig exception_save)
_KINDS = (b'"start"', b'"end"', b'"checkpoint"')
_EPOCH_AND_STEP = re.compile(r"-(\d+)_(\d+)$")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint file under its final name."""

    path: Path
    size_bytes: int
    mtime_ns: int
    step: int | None  # global training step; None where nothing tells

    @property
    def name(self) -> str:
        """File stem: the name of the checkpoint in tables and reports."""
        return self.path.stem

    @property
    def fingerprint(self) -> tuple[int, int]:
        """Changes when the file does."""
        return self.size_bytes, self.mtime_ns


def checkpoint_directory(run: Path) -> Path:
    """Where the checkpoints of a run lie: `checkpoint_dir` of run.json (relative to the run), else `checkpoints/`."""
    configured = read_info(run).get("checkpoint_dir")
    return run / configured if isinstance(configured, str) and configured else RunFiles(run).checkpoints


def find_checkpoints(run: Path) -> list[Checkpoint]:
    """All checkpoints of a run that carry a final name, in step order (by time of writing where a step is unknown).

    Ignored: `*.tmp`, hidden files, `*-graph.meta`, `*_breakpoint.ckpt`. Of one stem in both formats, the .ckpt counts.
    Where the folder has no checkpoint itself, its `rank_0` is used: data-parallel ranks save the same model.
    An absent folder, or one without checkpoints, is an empty list: training may not have come that far.

    Raises:
        UnknownContentError: the run directory does not exist.
    """
    if not run.is_dir():
        raise UnknownContentError(f"{run} is not a directory.", fix="give the run directory, e.g. runs/<run id>")
    directory = checkpoint_directory(run)
    steps = _recorded_steps(run)
    steps_per_epoch = read_info(run).get("steps_per_epoch")
    per_epoch = steps_per_epoch if isinstance(steps_per_epoch, int) else None
    found: dict[str, Checkpoint] = {}
    for path in _files(directory) or _files(directory / "rank_0"):
        try:
            stat = path.stat()
        except OSError:  # removed by the retention of the training between listing and looking
            continue
        step = steps.get(path.name, steps.get(path.stem, step_from_name(path.stem, per_epoch)))
        found.setdefault(
            path.stem, Checkpoint(path=path, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, step=step)
        )
    checkpoints = list(found.values())
    if any(c.step is None for c in checkpoints):
        return sorted(checkpoints, key=lambda c: (c.mtime_ns, c.name))
    return sorted(checkpoints, key=lambda c: (c.step or 0, c.mtime_ns, c.name))


def choose_checkpoint(checkpoints: list[Checkpoint], name: str | None) -> Checkpoint:
    """The checkpoint of that file name, stem, path or step; the last one for None.

    Raises:
        CheckpointError: there is none.
    """
    if not checkpoints:
        raise CheckpointError(
            "The run has no complete checkpoint.", fix="wait for the first one, or set checkpoint_dir in run.json"
        )
    if name is None:
        return checkpoints[-1]
    asked = Path(name).name
    for checkpoint in checkpoints:
        if asked in (checkpoint.path.name, checkpoint.name, str(checkpoint.step)):
            return checkpoint
    known = ", ".join(c.name for c in checkpoints)
    raise CheckpointError(f"The run has no checkpoint {name!r}.", fix=f"use one of: {known}")


def step_from_name(stem: str, steps_per_epoch: int | None) -> int | None:
    """Global step of `<prefix>-<epoch>_<step in epoch>`; None where the name or the epoch length does not tell.

    Source: MindSpore, mindspore.train.ModelCheckpoint.
    """
    match = _EPOCH_AND_STEP.search(stem)
    if not match:
        return None
    epoch, step = int(match[1]), int(match[2])
    if epoch == 1:
        return step
    return None if steps_per_epoch is None or epoch < 1 else (epoch - 1) * steps_per_epoch + step


def training_ended(run: Path) -> bool:
    """Whether the run recorded its end, and was not started again after it."""
    marks = [r["kind"] for r in _event_records(run) if r.get("kind") in ("start", "end")]
    return marks[-1:] == ["end"]


def read_info(run: Path) -> dict[str, Any]:
    """The object in run.json; empty where there is none (a run of others) or it is not readable."""
    try:
        return read_run_info(RunFiles(run).run_json)
    except UnreadableFileError:
        return {}


def file_sha256(path: Path, *, tick: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of a file's content, hexadecimal. `tick` is called after each MiB: large files take minutes."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
            tick()
    return digest.hexdigest()


def _files(directory: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:  # ValueError: a name no folder can have
        raise UnreadableFileError(
            f"{directory} cannot be listed: {getattr(error, 'strerror', None) or error}.",
            fix="check checkpoint_dir in run.json, and the permissions of the checkpoint folder",
        ) from None
    named = [n for n in names if n.endswith(SUFFIXES) and not n.startswith(".") and _is_complete(n)]
    return [directory / n for n in named if os.path.isfile(directory / n)]


def _is_complete(name: str) -> bool:
    return not name.endswith(NOT_COMPLETE)


def _recorded_steps(run: Path) -> dict[str, int]:
    """Step by file name, as the Recorder saw it."""
    return {
        Path(str(r["name"])).name: r["step"]
        for r in _event_records(run)
        if r.get("kind") == "checkpoint" and isinstance(r.get("step"), int) and r.get("name")
    }


def _event_records(run: Path) -> list[dict[str, Any]]:
    """Starts, ends and checkpoints of rank 0; a watcher asks every few seconds, so other events are not decoded."""
    try:
        content = read_bytes(RunFiles(run).events(0))
    except UnreadableFileError:
        return []
    records = []
    for line in content.split(b"\n"):
        if any(kind in line for kind in _KINDS):
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):  # torn by a kill, or garbled
                records.append(msgspec.json.decode(line, type=dict[str, Any]))
    return records
