"""Parts of the memory notebook: each takes the run's tables, and says what is missing where it cannot show anything."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench.analyses import lifetimes, memory
from workbench.analyses.allocator import replay, replay_blocks
from workbench.analyses.blocks import blocks_from_curve, main_pool
from workbench.analyses.downsample import downsample
from workbench.analyses.log_memory import stage_peaks_of_logs
from workbench.analyses.memory_what_if import last_use_savings, recompute_savings
from workbench.charts import memory as charts
from workbench.charts import memory_tables as styled
from workbench.findings.diagnosis import run_tables
from workbench.findings.memory import LEAK_STEPS_LEAST
from workbench.run import Run
from workbench.tables import MEMORY_TIMELINE, TENSOR_LIFETIMES
from workbench.widgets.sections import Tables, Text, needs

NO_BLOCKS = "No allocation is recorded of rank "
HOW = f"To have them: {TENSOR_LIFETIMES.fix}."
NAMES = ("memory_timeline", "tensor_lifetimes", "kernels", "settings")


def tables_of(run: Run) -> dict[str, pd.DataFrame]:
    """The tables that the parts use."""
    return run_tables(run, NAMES)


def fullest_rank(tables: Tables) -> int:
    """The rank with the highest allocated peak; 0 where no memory is recorded."""
    if "memory_timeline" in tables:
        peaks = memory.memory_peaks(tables["memory_timeline"]).rename(columns={"peak_allocated_bytes": "peak_bytes"})
    else:
        peaks = lifetimes.peak_parts(tables.get("tensor_lifetimes", TENSOR_LIFETIMES.empty()))
    return int(peaks.loc[peaks["peak_bytes"].idxmax(), "rank_id"]) if len(peaks) else 0


@needs("memory_timeline")
def peaks(tables: Tables) -> Any:
    """Peak of each rank, as a table."""
    return styled.peaks_table(memory.memory_peaks(tables["memory_timeline"]))


@needs("memory_timeline")
def rank_peaks(tables: Tables) -> Any:
    """Peak of each rank, as a chart."""
    return charts.rank_peaks_chart(memory.memory_peaks(tables["memory_timeline"]))


@needs("log_messages")
def stage_peaks(tables: Tables) -> Any:
    """Peak of each pipeline stage that logs or dry runs tell, as a chart."""
    return charts.stage_peaks_chart(stage_peaks_of_logs(tables["log_messages"], tables.get("settings")))


@needs("memory_timeline")
def pool(tables: Tables, rank_id: int) -> Any:
    """The pool of one rank over time."""
    curve = memory.memory_curve(tables["memory_timeline"])
    one = curve[curve["rank_id"] == rank_id]
    return charts.pool_chart(downsample(one, ["allocated_bytes", "reserved_bytes"]))


@needs("tensor_lifetimes")
def peak_parts(tables: Tables, rank_id: int) -> Any:
    """Who holds the peak of one rank."""
    rows = tables["tensor_lifetimes"]
    return charts.peak_parts_chart(lifetimes.peak_parts(rows[rows["rank_id"] == rank_id]))


def memory_map(tables: Tables, rank_id: int) -> Any:
    """Addresses over time: as recorded, else as a best-fit pool gives them, else of blocks that the curve tells of."""
    _, blocks, clock = _placed(tables, rank_id)
    return Text(f"{NO_BLOCKS}{rank_id}. {HOW}") if blocks.empty else charts.memory_map_chart(blocks, clock=clock)


def holes(tables: Tables, rank_id: int) -> Any:
    """Free pieces at the peak and what pins them."""
    curve, blocks, _ = _placed(tables, rank_id)
    if blocks.empty:
        return Text(f"{NO_BLOCKS}{rank_id}. {HOW}")
    at = int(curve["at"].iloc[int(curve["allocated_bytes"].argmax())])
    found = lifetimes.holes(blocks, at)
    return styled.holes_table(found) if len(found) else Text("No hole between blocks at the peak.")


@needs("tensor_lifetimes")
def long_lives(tables: Tables) -> Any:
    """Blocks that outlive their peers."""
    found = lifetimes.long_lives(tables["tensor_lifetimes"])
    return styled.long_lives_table(found) if len(found) else Text("No block outlives its peers.")


@needs("memory_timeline")
def floors(tables: Tables) -> Any:
    """Lowest memory of each step."""
    return charts.floors_chart(_floors(tables))


@needs("memory_timeline")
def growth(tables: Tables) -> Any:
    """Growth per step with its interval."""
    found = memory.floor_growth(_floors(tables))
    if found.empty:
        return Text("Growth needs three profiled steps or more.")
    if int(found["steps"].max()) < LEAK_STEPS_LEAST:
        return Text(f"Only {int(found['steps'].max())} steps are profiled: {LEAK_STEPS_LEAST} or more can show a leak.")
    return styled.growth_table(found)


@needs("tensor_lifetimes")
def savings(tables: Tables, rank_id: int) -> Any:
    """What freeing at the last use (where it is recorded), else recomputing, would take off the peak."""
    rows = tables["tensor_lifetimes"]
    mine = rows[rows["rank_id"] == rank_id]
    found = last_use_savings(mine)
    found = recompute_savings(mine) if found.empty else found
    if len(found) and not (found["saved_allocated_bytes"] > 0).any():
        return Text("Nothing that was allocated during the record would lower the peak if it were freed or recomputed.")
    return charts.savings_chart(found)


def _floors(tables: Tables) -> pd.DataFrame:
    steps = memory.step_starts(tables["kernels"]) if "kernels" in tables else None
    empty = pd.DataFrame(columns=["rank_id", "window", "step", "start_ns"])
    return memory.step_floors(tables["memory_timeline"], empty if steps is None else steps)


def _placed(tables: Tables, rank_id: int) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Curve and blocks with addresses of one rank, and their clock; empty without a record."""
    if "tensor_lifetimes" in tables and len(rows := main_pool(tables["tensor_lifetimes"], rank_id)):
        done = replay(rows)
        places = lifetimes.recorded_places(rows)
        return done.curve, places if len(places) else done.blocks, str(rows["clock"].iloc[0])
    curve = memory.memory_curve(tables.get("memory_timeline", MEMORY_TIMELINE.empty()))
    one = curve[curve["rank_id"] == rank_id].rename(columns={"time_ns": "at"})
    return *replay_blocks(blocks_from_curve(one)), "ns"
