"""The memory charts draw: on a real record, on several ranks, and on frames without rows."""

import pandas as pd
import pytest
import vl_convert

import workbench as wb
from tests.memory_rows import lifetimes, timeline
from workbench.analyses.allocator import replay
from workbench.analyses.blocks import main_pools
from workbench.analyses.lifetimes import peak_parts
from workbench.analyses.memory import memory_curve, memory_peaks, step_floors
from workbench.analyses.memory_what_if import recompute_savings
from workbench.charts import memory, theme
from workbench.tables import MEMORY_TIMELINE, TENSOR_LIFETIMES

NO_STEPS = pd.DataFrame(columns=["rank_id", "window", "step", "start_ns"])


def charts_of(timeline_rows, blocks, steps=NO_STEPS):
    pools = main_pools(blocks)
    mapped = replay(pools[0][2]).blocks if pools else replay(blocks).blocks
    return [
        memory.pool_chart(memory_curve(timeline_rows)),
        memory.rank_peaks_chart(memory_peaks(timeline_rows)),
        memory.peak_parts_chart(peak_parts(blocks)),
        memory.memory_map_chart(mapped),
        memory.savings_chart(recompute_savings(blocks)),
        memory.floors_chart(step_floors(timeline_rows, steps)),
    ]


def made():
    rows = pd.concat([timeline(*((i, 2**30 * (1 + i % 7), 2**33) for i in range(40)), rank_id=r) for r in range(12)])
    blocks = lifetimes(*((f"a/{chr(97 + i)}/Add", 2**20 * (i + 1), i, 90 - i) for i in range(20)), total_before=2**30)
    steps = pd.DataFrame({"window": 0, "step": [1, 2, 3], "start_ns": [0, 10, 20]})
    return rows, blocks, pd.concat([steps.assign(rank_id=r) for r in range(12)])


@pytest.mark.parametrize("name", ["real", "made", "nothing"])
def test_charts_draw_without_a_warning(name, data_samples, recwarn):
    theme.enable_offline("static")
    if name == "real":
        run = wb.open_run(data_samples / "level1_two_of_eight", quiet=True)
        drawn = charts_of(run.table("memory_timeline"), run.table("tensor_lifetimes"))
    elif name == "made":
        drawn = charts_of(*made())
    else:
        drawn = charts_of(MEMORY_TIMELINE.empty(), TENSOR_LIFETIMES.empty())
    for chart in drawn:
        svg = vl_convert.vegalite_to_svg(chart.to_dict())
        assert "NaN" not in svg
        assert "<svg" in svg
    assert [str(w.message) for w in recwarn if issubclass(w.category, UserWarning)] == []


def test_many_parts_and_ranks_are_cut_with_their_sum_kept():
    rows, blocks, steps = made()
    chart = memory.peak_parts_chart(peak_parts(blocks)).to_dict()
    values = next(iter(chart["datasets"].values()))
    assert len(values) == memory.MOST_PARTS + 1
    assert sum(v["share"] for v in values) == pytest.approx(1)
    lines = next(iter(memory.floors_chart(step_floors(rows, steps)).to_dict()["datasets"].values()))
    assert len({v["rank_id"] for v in lines}) == memory.MOST_RANK_LINES
