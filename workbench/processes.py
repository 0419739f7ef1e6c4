"""Child processes that end with their parent, and the identity of a process across reuse of its number."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

PR_SET_PDEATHSIG = 1
POLL_S = 0.1
SAME_START_S = 5.0  # boot time, to which start times refer, moves with the clock
TERMINATE_S = 5.0  # from the polite to the hard end of a child
TAIL_LINES = 200
SPACE_MESSAGES = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A process, told apart from later ones with the same number by its start time."""

    host: str  # host name, boot and process number space: containers may share a name but not their process numbers
    pid: int
    started_s: float  # seconds since epoch

    def is_gone(self) -> bool:
        """True when the process lived on this host and is over; False where that cannot be known."""
        if self.host != this_host():
            return False
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started_s) < SAME_START_S
            return not same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


@functools.cache
def this_host() -> str:
    """This machine since its last start, as far as its process numbers are comparable."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text()[:8])
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return ".".join(parts)


def this_process() -> Owner:
    """The identity of the running process."""
    return Owner(host=this_host(), pid=os.getpid(), started_s=psutil.Process().create_time())


class Outcome(NamedTuple):
    """How a child ended: exit status (negative: signal) and the last lines that it wrote to stderr."""

    status: int
    lines: list[str]
    seconds: float

    @property
    def last_line(self) -> str:
        """The last line that is not empty."""
        return next((line for line in reversed(self.lines) if line.strip()), "").strip()

    @property
    def reason(self) -> str:
        """One sentence for a child that failed."""
        if self.status < 0:
            name = signal.Signals(-self.status).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"It was ended by {name}{hint}. {self.last_line}".strip()
        return self.last_line or f"It ended with exit status {self.status} and said nothing."

    @property
    def out_of_space(self) -> bool:
        """Whether the child failed for want of disk space."""
        return self.status != 0 and any(m in line for line in self.lines for m in SPACE_MESSAGES)


def run_child(
    command: Sequence[str | Path],
    *,
    tick: Callable[[], None] = lambda: None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `command` to its end; it and its process group end when the caller is interrupted or killed.

    Args:
        command: program and arguments.
        tick: called about ten times a second while the child runs (heartbeat, progress).
        cwd: working directory.
        environment: variables added to the caller's.
    """
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(c) for c in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        preexec_fn=functools.partial(die_with_parent, os.getpid()),
        start_new_session=True,
    )
    lines: deque[str] = deque(maxlen=TAIL_LINES)
    with _ended_in_any_case(process):
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        rest = b""
        while not _is_over(process):
            rest = _drain(process.stderr.fileno(), rest, lines)
            tick()
            time.sleep(POLL_S)
        rest = _drain(process.stderr.fileno(), rest, lines)
        if rest:
            lines.append(rest.decode(errors="replace"))
    return Outcome(process.returncode, list(lines), time.monotonic() - begin)


def die_with_parent(parent_pid: int) -> None:
    """In a child, before its program starts: ask the kernel to end it together with its parent (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # the parent ended before the request
            os._exit(1)


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


_LIBC = _libc()  # loaded before any fork: dlopen in a forked child can deadlock


def _drain(descriptor: int, rest: bytes, lines: deque[str]) -> bytes:
    """Move what the child wrote into `lines`; return the unfinished last line."""
    while True:
        try:
            block = os.read(descriptor, 65536)
        except BlockingIOError:
            return rest
        if not block:
            return rest
        *whole, rest = (rest + block).replace(b"\r", b"\n").split(b"\n")
        lines.extend(line.decode(errors="replace") for line in whole)


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether the child is over, without collecting it: its number stays reserved until its group is ended."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@contextlib.contextmanager
def _ended_in_any_case(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _signal_group(process, signal.SIGTERM)
        until = time.monotonic() + TERMINATE_S
        while not _is_over(process) and time.monotonic() < until:
            time.sleep(POLL_S)
        raise
    finally:
        _signal_group(process, signal.SIGKILL)  # and what the child itself may have left behind
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
