"""Wall time and peak memory of a command and all its child processes."""

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass

import psutil

SAMPLE_SECONDS = 0.03


@dataclass(frozen=True)
class Measurement:
    """What one run of a command cost."""

    wall_s: float  # of the whole process
    peak_bytes: int  # sum over the process tree, shared pages counted once (PSS), sampled
    inside_s: float | None  # time that the command itself reported, without its imports
    result: object  # what it reported beside


def run(command, *, env=None):
    """Run `command`; a last output line that is JSON may hold `seconds` and `result`."""
    started = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    peak = [0]
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(child.pid, peak, done))
    watcher.start()
    out, err = child.communicate()
    wall_s = time.perf_counter() - started
    done.set()
    watcher.join()
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed with status {child.returncode}:\n{err[-2000:]}")
    report = _last_json(out)
    return Measurement(wall_s, peak[0], report.get("seconds"), report.get("result"))


def _watch(pid, peak, done):
    while not done.wait(SAMPLE_SECONDS):
        peak[0] = max(peak[0], _tree_bytes(pid))


def _tree_bytes(pid):
    try:
        root = psutil.Process(pid)
        return sum(_bytes(p) for p in (root, *root.children(recursive=True)))
    except psutil.Error:
        return 0


def _bytes(process):
    try:
        memory = process.memory_full_info()
        return getattr(memory, "pss", 0) or memory.rss
    except psutil.Error:
        return 0


def _last_json(out):
    for line in reversed(out.strip().splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}
