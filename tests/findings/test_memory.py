import subprocess
import sys

import pandas as pd
import pytest

import workbench as wb
from tests.memory_rows import lifetimes, timeline
from workbench.analyses.allocator import replay
from workbench.analyses.blocks import main_pools
from workbench.analyses.memory import memory_peaks
from workbench.findings.memory import GIB, MIB, find_fragmentation, find_memory_leak, find_stage_imbalance
from workbench.tables import KERNELS, MEMORY_TIMELINE, SETTINGS

STEP_NS = 1000


def kernels(steps=6, rank_id=0) -> pd.DataFrame:
    rows = {"rank_id": rank_id, "window": 0, "step": range(1, steps + 1), "name": "a", "duration_us": 1.0}
    return KERNELS.check(pd.DataFrame(rows).assign(start_ns=[STEP_NS * s for s in range(1, steps + 1)]))


def curve(floors, rank_id=0) -> pd.DataFrame:
    """A step that takes 500 MiB and gives them back, from each of these floors (MiB) on."""
    samples = [
        (STEP_NS * s + at, (floor + more) * MIB, 20 * GIB)
        for s, floor in enumerate(floors, 1)
        for at, more in ((0, 0), (300, 500), (700, 0))
    ]
    return timeline(*samples, rank_id=rank_id)


def test_a_pool_that_holds_twice_what_is_in_use():
    found = find_fragmentation(timeline((1, 10 * GIB, 20 * GIB)))[0]
    # needed: 10 GiB and one growth block of 1 GiB; 9 of 20 GiB are lost
    assert (found.severity, found.confidence, found.culprit.rank) == ("critical", "medium", None)
    assert "9.0 GiB (45%)" in found.title
    assert [e.value for e in found.evidence if e.fact == "more than the blocks need"] == [9.0]


def test_what_the_replay_needs_as_well_is_no_fragmentation():
    pool = timeline((1, 6.4 * GIB, 10 * GIB))
    blocks = [(f"a{i}", 0.64 * GIB, i, None) for i in range(10)]  # one of 0.64 fits a growth block: ten are needed
    assert len(find_fragmentation(pool)) == 1
    assert find_fragmentation(pool, lifetimes(*blocks)) == []
    few = [("a", 6.4 * GIB, 1, None)]  # 7 growth blocks; 6.4 and one to spare are more: 2.6 of 10 GiB are lost
    found = find_fragmentation(pool, lifetimes(*few))[0]
    assert (found.confidence, "2.6 GiB (26%)" in found.title) == ("medium", True)
    assert "it may have needed that before" in found.title  # one sample: nothing tells what was before
    growing = find_fragmentation(timeline((0, 1.0, 2.0 * GIB), (1, 6.4 * GIB, 10 * GIB)), lifetimes(*few))[0]
    assert (growing.confidence, "before" in growing.title) == ("high", False)


def test_the_one_rank_with_fragments_is_named():
    ranks = [timeline((None, 46 * GIB, (58 if r == 12 else 50) * GIB), rank_id=r) for r in range(16)]
    found = find_fragmentation(pd.concat(ranks))
    assert [f.culprit.rank for f in found] == [12]


def test_a_growth_block_more_is_no_fragmentation(data_samples):
    for sample in ("cpu_profile", "level1_two_of_eight"):
        run = wb.open_run(data_samples / sample, quiet=True)
        assert find_fragmentation(run.table("memory_timeline")) == []
    assert find_fragmentation(MEMORY_TIMELINE.empty()) == []


def test_a_leak_its_size_and_its_operator():
    kept = [(f"Copy-step{s}", 100.0 * MIB, STEP_NS * s + 500, None) for s in range(1, 7)]
    leaking = curve([1000 + 100 * s for s in range(6)], rank_id=1)
    memory = pd.concat([curve([1000] * 6), leaking])
    steps = pd.concat([kernels(), kernels(rank_id=1)])
    found = find_memory_leak(memory, steps, lifetimes(*kept, rank_id=1))[0]
    assert (found.culprit.rank, found.culprit.op, found.confidence) == (1, "Copy-step#", "high")
    assert (found.steps.first, found.steps.last) == (1, 6)
    assert [e.value for e in found.evidence if e.fact.startswith("growth of")] == [pytest.approx(100)]
    assert (
        find_memory_leak(memory.sample(frac=1, random_state=1), steps.sample(frac=1, random_state=1))[0].culprit.rank
        == 1
    )


@pytest.mark.parametrize(
    "floors",
    [
        [1000] * 6,
        [1000, 1100, 1150, 1175, 1187, 1193],  # a cache that fills up
        [1000, 1500, 1500, 1500, 1500, 1500],  # a buffer made once
        [1000, 1010, 990, 1005, 1000, 995],  # noise
    ],
)
def test_what_is_no_leak(floors):
    assert find_memory_leak(curve(floors), kernels(len(floors))) == []


def test_growth_over_fewer_steps_than_a_leak_needs_is_only_told():
    found = find_memory_leak(curve([1000, 1100, 1200]), kernels(3))
    assert [(f.severity, f.confidence, f.cause) for f in found] == [("info", "low", "memory_leak")]
    assert "100.0 MiB per step over 3 profiled steps" in found[0].title
    assert "Profile 6 steps" in found[0].fix
    assert find_memory_leak(curve([1000, 1100, 1050]), kernels(3)) == []
    assert find_memory_leak(curve([1000, 1100]), kernels(2)) == []  # one change is nothing


def staged(*levels):
    memory = pd.concat([timeline((1, level * GIB, 64 * GIB), rank_id=r) for r, level in enumerate(levels)])
    return memory, SETTINGS.check(pd.DataFrame({"name": ["parallel_config.pipeline_stage"], "value": ["4"]}))


def test_uneven_stages():
    found = find_stage_imbalance(*staged(62, 58, 44, 51))[0]
    assert (found.severity, found.culprit.stage, found.culprit.rank) == ("warning", 0, 0)
    assert "62.0 GiB" in found.title
    assert "44.0 GiB" in found.title
    mean = next(e.value for e in found.evidence if e.fact == "mean of the stages")
    assert mean == pytest.approx((62 + 58 + 44 + 51) / 4)


def test_stages_that_keep_fewer_and_fewer_micro_batches_are_only_told():
    assert find_stage_imbalance(*staged(60, 55, 50, 45))[0].severity == "info"
    assert find_stage_imbalance(*staged(60, 58, 56, 54)) == []
    memory, _ = staged(62, 58, 44, 51)
    assert find_stage_imbalance(memory) == []  # nothing tells the stages
    assert find_stage_imbalance(MEMORY_TIMELINE.empty()) == []


@pytest.mark.parametrize(
    ("fault", "stages", "causes", "rank"),
    [("none", 4, [], None), ("fragmentation:1.6", 1, ["fragmentation"], None),
     ("memory_leak:120:3", 2, ["memory_leak"], 3)],
)  # fmt: skip
def test_simulated_clusters(shared_dir, tmp_path, fault, stages, causes, rank):
    tool = shared_dir / "tools" / "make_cluster.py"
    options = ["--ranks", "8", "--steps", "5", "--pp", str(stages), "--no-trace", "--seed", "3", "--fault", fault]
    subprocess.run([sys.executable, tool, tmp_path, *options], check=True, capture_output=True)
    run = wb.open_run(tmp_path, quiet=True)
    memory, blocks = run.table("memory_timeline"), run.table("tensor_lifetimes")
    peaks = memory_peaks(memory).set_index("rank_id")["peak_allocated_bytes"]
    for replayed_rank, _, rows in main_pools(blocks):
        assert replay(rows).peak_allocated_bytes == pytest.approx(peaks[replayed_rank], rel=0.01)
    found = [
        *find_fragmentation(memory, blocks),
        *find_memory_leak(memory, run.table("kernels"), blocks),
        *find_stage_imbalance(memory, run.table("settings"), blocks),
    ]
    assert [f.cause for f in found] == causes
    assert [f.culprit.rank for f in found] == [rank] * len(causes)
