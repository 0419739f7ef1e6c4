"""How long the allocator replay takes: `python benchmarks/allocator.py [events]`, and what 10 million events would.

Two made records: the steps of a training (the same sizes again and again, freed in reverse and out of order), and the
worst that was thought of: sizes that never repeat, lives of all lengths.
"""

import sys
import time

import numpy as np
import pandas as pd

from workbench.analyses.allocator import replay_blocks

GOAL_EVENTS, GOAL_S = 10_000_000, 60.0
BLOCKS_PER_STEP, ALIGN_BYTES, LIVE_BLOCKS = 400, 512, 3000


def training(events, random):
    count, block = events // 2, np.arange(BLOCKS_PER_STEP)
    steps = count // BLOCKS_PER_STEP
    size = (random.lognormal(15, 1.5, BLOCKS_PER_STEP) // ALIGN_BYTES + 1) * ALIGN_BYTES
    reverse = 2 * BLOCKS_PER_STEP - block + random.integers(-20, 20, BLOCKS_PER_STEP)
    freed = np.where(random.random(BLOCKS_PER_STEP) < 0.5, block + 3, reverse)
    start = np.arange(steps)[:, None] * 3 * BLOCKS_PER_STEP
    return frame(np.tile(size, steps), ((start + block) * 10).ravel(), ((start + freed) * 10 + 5).ravel())


def unlike(events, random):
    count = events // 2
    size = (random.lognormal(14, 2, count) // ALIGN_BYTES + 1) * ALIGN_BYTES
    born = np.arange(count) * 10
    return frame(size, born, born + random.exponential(LIVE_BLOCKS, count).astype(np.int64) * 10 + 5)


def frame(size, born, freed):
    freed = pd.array(freed, dtype="Int64")
    return pd.DataFrame({"size_bytes": size.astype(np.int64), "allocated_at": born, "freed_at": freed})


def main():
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"goal: {GOAL_EVENTS:,} events in {GOAL_S:.0f} s; processor and wall time of the replay, one core")
    for make in (training, unlike):
        for events in (asked // 4, asked):
            blocks = make(events, np.random.default_rng(0))
            wall, cpu = time.perf_counter(), time.process_time()
            curve, _ = replay_blocks(blocks)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            scale = GOAL_EVENTS / len(curve)
            print(f"{make.__name__:9} {len(curve):>11,} events: processor {cpu:6.2f} s, wall {wall:6.2f} s, "
                  f"{cpu / len(curve) * 1e6:.2f} us per event; {GOAL_EVENTS:,} at this rate: {cpu * scale:5.1f} s "
                  f"(peak in use {curve['allocated_bytes'].max() / 2**30:.1f} GiB, pool "
                  f"{curve['reserved_bytes'].max() / 2**30:.0f} GiB)")  # fmt: skip


if __name__ == "__main__":
    main()
