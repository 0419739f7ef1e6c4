"""The state of a conversion to MindRecord, as `conversion.json` in its output folder holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from workbench.errors import UnknownParameterError, UnreadableFileError
from workbench.probes.mindrecord_schema import Field

MANIFEST = "conversion.json"


class Shard(msgspec.Struct, kw_only=True):
    """One finished MindRecord file."""

    name: str
    rows: int


class Conversion(msgspec.Struct, kw_only=True):
    """What `conversion.json` holds: the job, what was done so far, and what became of the samples."""

    schema: int = 1
    job: dict[str, Any]  # source files, form, encoding, shard size: another job must not go on with these shards
    fields: list[Field]
    shards: list[Shard] = []
    file: int = 0  # index of the source file to go on with
    samples_of_file: int = 0  # samples of it that are done
    set_aside_bytes: int = 0  # length of set_aside.jsonl that belongs to what is done
    samples_read: int = 0
    samples_set_aside: int = 0
    samples_left_out: int = 0  # the transform returned None
    rows_written: int = 0
    unknown_keys: dict[str, int] = {}  # key that is no field -> samples that have it
    finished: bool = False


def read_conversion(output: str | os.PathLike[str]) -> Conversion | None:
    """The state of a conversion; None where there is none.

    Raises:
        UnreadableFileError: `conversion.json` is damaged.
    """
    path = Path(output) / MANIFEST
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Conversion)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableFileError(
            f"{path} is damaged: {error}.", fix="delete the output folder and convert again"
        ) from None


def job_of(source: Path, files: Sequence[Path], **options: object) -> dict[str, Any]:
    """What makes two conversions the same: the source files with size and time, and the options."""
    root = source if source.is_dir() else source.parent
    listed = [[str(f.relative_to(root)), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
    return {"files": listed, **options}


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold the folder's lock; the system gives it back when the process dies."""
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UnknownParameterError(
                f"Another process is converting into {root}.", fix="wait for it, or name another output folder"
            ) from None
        yield


def earlier_state(root: Path, job: Mapping[str, Any]) -> Conversion | None:
    """The state of an earlier attempt at the same job.

    Raises:
        UnknownParameterError: the folder holds another job's shards.
    """
    state = read_conversion(root)
    if state is None and list(root.glob("*.mindrecord")):
        raise UnknownParameterError(
            f"{root} holds MindRecord files of another origin.", fix="name an empty or new output folder"
        )
    if state is not None and state.job != msgspec.to_builtins(job):
        raise UnknownParameterError(
            f"{root} holds the conversion of other files or options (or the source changed since).",
            fix="name another output folder, or delete this one to convert anew",
        )
    return state
