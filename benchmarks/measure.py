"""Wall time of a command, and, in a run of its own, the peak memory of it and all its child processes.

Watching memory slows the watched process down (the kernel walks its pages), so the two are never measured together.
"""

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Timing:
    """How long one run of a command took."""

    wall_s: float  # the whole process
    inside_s: float | None  # what the command itself reported, without its imports
    result: object  # what it reported beside


def time_of(command, *, env=None):
    """Run `command`; a last output line that is a JSON object may hold `seconds` and `result`."""
    started = time.perf_counter()
    out = _output(_started(command, env), command)
    wall_s = time.perf_counter() - started
    report = _last_json(out)
    return Timing(wall_s, report.get("seconds"), report.get("result"))


def peak_bytes(command, *, env=None):
    """Run `command`; return its peak memory: proportional set sizes summed over the process tree, sampled."""
    child = _started(command, env)
    peak = [0]
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(child.pid, peak, done))
    watcher.start()
    try:
        _output(child, command)
    finally:
        done.set()
        watcher.join()
    return peak[0]


def _started(command, env):
    words = [str(word) for word in command]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **(env or {})})


def _output(child, command):
    out, err = child.communicate()
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed with status {child.returncode}:\n{err[-2000:]}")
    return out


def _watch(pid, peak, done):
    while not done.wait(SAMPLE_SECONDS):
        peak[0] = max(peak[0], _tree_bytes(pid))


def _tree_bytes(pid):
    try:
        root = psutil.Process(pid)
        return sum(_bytes(p.pid) for p in (root, *root.children(recursive=True)))
    except psutil.Error:
        return 0


def _bytes(pid):
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))


def _last_json(out):
    for line in reversed(out.strip().splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}
