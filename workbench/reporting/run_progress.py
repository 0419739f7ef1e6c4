"""How far a run is: whether its training is over, and whether a file of it is still being written."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import psutil

from workbench.readers.checkpoints import Checkpoint, read_info, training_ended


def training_is_over(run: Path) -> bool:
    """Whether the run recorded its end, or its process, started on this host, was killed before it could.

    A training on another host that was killed cannot be told from one that goes on.
    """
    return training_ended(run) or _process_is_gone(read_info(run))


class Settling:
    """Remembers when each file was last seen to change."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._since: dict[Path, tuple[tuple[int, int], float]] = {}

    def is_settled(self, checkpoint: Checkpoint, now_s: float) -> bool:
        """Whether the file is as it was `settle_s` ago. The first look at a file only starts the clock."""
        seen = self._since.get(checkpoint.path)
        if seen is None or seen[0] != checkpoint.fingerprint:
            self._since[checkpoint.path] = (checkpoint.fingerprint, now_s)
            return self._settle_s <= 0
        return now_s - seen[1] >= self._settle_s


def _process_is_gone(info: dict[str, Any]) -> bool:
    attempts = info.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    if info.get("host") != socket.gethostname() or not isinstance(last, dict):
        return False
    pid, start_ns = last.get("process_id"), last.get("start_ns")
    if not isinstance(pid, int) or not 0 < pid < 2**31 or not isinstance(start_ns, int) or pid == os.getpid():
        return False
    try:
        process = psutil.Process(pid)
        return process.create_time() > start_ns / 1e9 + 1 or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
