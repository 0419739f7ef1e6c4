"""Claims on shared storage: of all processes on all hosts one works on a thing, and a dead one's work is taken over.

A claim is a file that appears complete and only once (hard link; exclusive creation where links are not supported), so
neither a lock service nor notifications are needed, which network file systems lack. Its holder touches it. A claim is
stale when its holder is dead on this host, or when it was not touched for a lease. Who creates the one successor of a
stale claim, `.<token of the stale claim>.next`, renames itself over it; a successor that died before that has a
successor of its own. Successors are kept for a day, so a process that read a claim long ago cannot succeed it again.
A holder that slept through its lease still works on: whoever publishes first has done it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workbench.processes import Owner, this_process

LEASE_S = 120.0  # well above the pauses of a busy network file system; a dead process on the same host is seen at once
HEARTBEAT_S = 10.0
KEPT_S = 86_400.0
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


@dataclass(kw_only=True)
class Claim:
    """A claim that this process holds. Touch it with `heartbeat`, give it back with `release`."""

    path: Path
    token: str
    _touched_s: float

    def heartbeat(self) -> None:
        """Show that the holder lives; cheap enough to call often."""
        if time.monotonic() - self._touched_s >= HEARTBEAT_S:
            self._touched_s = time.monotonic()
            with contextlib.suppress(OSError):  # taken over after a long pause: publishing decides who was first
                os.utime(self.path)

    def release(self) -> None:
        """Give the claim back, unless it was taken over meanwhile."""
        record = _read(self.path)
        if record is not None and record.token == self.token:
            self.path.unlink(missing_ok=True)


class _Record(msgspec.Struct):
    token: str
    host: str
    pid: int
    started_s: float

    @property
    def owner(self) -> Owner:
        return Owner(host=self.host, pid=self.pid, started_s=self.started_s)


def take_claim(folder: Path, name: str, *, lease_s: float = LEASE_S) -> Claim | None:
    """Claim `name`; None when another process holds it.

    Raises:
        OSError: the folder cannot be written (permission, no space).
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    owner = this_process()
    record = _Record(token=uuid.uuid4().hex, host=owner.host, pid=owner.pid, started_s=owner.started_s)
    scratch = folder / f".{record.token}.tmp"
    try:
        scratch.write_bytes(msgspec.json.encode(record))
        now_s = scratch.stat().st_mtime  # the storage's clock, not this host's
        if not _create(path, scratch):
            if not _succeed(path, scratch, expired_before_s=now_s - lease_s):
                return None
            scratch.replace(path)
        return Claim(path=path, token=record.token, _touched_s=time.monotonic())
    finally:
        scratch.unlink(missing_ok=True)


def clean_claims(folder: Path, *, older_than_s: float = KEPT_S) -> None:
    """Remove old successors, and what processes that were killed while claiming left behind."""
    for leftover in folder.glob(".*"):
        with contextlib.suppress(OSError):
            record = _read(leftover) if leftover.suffix == ".tmp" else None
            dead = record is not None and record.owner.is_gone()
            if dead or time.time() - leftover.stat().st_mtime > older_than_s:
                leftover.unlink()


def _create(path: Path, scratch: Path) -> bool:
    """Let `path` appear with the content of `scratch`, if it does not exist."""
    try:
        os.link(scratch, path)
        return True
    except FileExistsError:
        # A repeated request on a network file system reports failure after success: the link count knows.
        return scratch.stat().st_nlink == 2
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    try:
        with path.open("xb") as f:
            f.write(scratch.read_bytes())
        return True
    except FileExistsError:
        return False


def _succeed(path: Path, scratch: Path, *, expired_before_s: float) -> bool:
    """Become the successor of a stale claim, or of a successor that died; False while any of them lives."""
    link = path
    while True:
        try:
            with link.open("rb") as f:  # time and content of one file: a successor may replace it in between
                stat, content = os.fstat(f.fileno()), f.read()
        except FileNotFoundError:  # released just now; the next look will see
            return False
        record = _decode(content)
        if stat.st_mtime >= expired_before_s and (record is None or not record.owner.is_gone()):
            return False
        token = record.token if record is not None else f"inode{stat.st_ino}"
        successor = path.with_name(f".{token}.next")
        if successor == link:  # it carries its own token once it has renamed itself
            return False
        if _create(successor, scratch):
            return True
        link = successor


def _read(path: Path) -> _Record | None:
    try:
        return _decode(path.read_bytes())
    except OSError:
        return None


def _decode(content: bytes) -> _Record | None:
    try:
        return msgspec.json.decode(content, type=_Record)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
