"""Convert to MindRecord in child processes that are killed again and again, until one finishes; run by test_mindrecord.

usage: killed_conversion.py SOURCE OUTPUT SHARDS...   (at how many finished shards each attempt is killed)
"""

import os
import random
import signal
import sys
import time

os.environ.setdefault("GLOG_v", "4")

from workbench.probes.mindrecord import convert_to_mindrecord

source, output, *counts = sys.argv[1:]


def attempt() -> int:
    child = os.fork()
    if child == 0:
        convert_to_mindrecord(source, output, shard_bytes=60_000, show_progress=False)
        os._exit(0)
    return child


def shards() -> int:
    return len([name for name in os.listdir(output) if name.endswith(".mindrecord")]) if os.path.isdir(output) else 0


kills = 0
for count in map(int, counts):
    child = attempt()
    while shards() < count and os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.002)
    time.sleep(random.Random(count).uniform(0, 0.03))  # anywhere in the work on the next shard
    os.kill(child, signal.SIGKILL)
    kills += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    print("killed", kills, "shards", shards(), flush=True)
status = os.waitstatus_to_exitcode(os.waitpid(attempt(), 0)[1])
print("finished" if status == 0 else f"failed with {status}", flush=True)
