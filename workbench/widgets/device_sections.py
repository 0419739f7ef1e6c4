"""Parts of a page on profiled devices: each takes tables of all ranks, and says what is missing where it shows nothing.

`ranks` is what of it is drawn: waits and slow devices are told by comparing all ranks, whichever are on show.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from workbench.analyses import collective_waits, communication, communication_groups, device_steps, trace_steps
from workbench.analyses import kernels as kernel_analyses
from workbench.analyses.device_stalls import device_stalls
from workbench.analyses.operator_work import fusion_candidates, rank_work
from workbench.analyses.step_time import rank_step_times
from workbench.charts import communication as communication_charts
from workbench.charts import device_steps as step_charts
from workbench.charts import kernels as kernel_charts
from workbench.charts.device_steps import PARTS
from workbench.run import Run
from workbench.tables import TABLES
from workbench.widgets.sections import Missing, Tables, Text, needs

STEP_TABLES = ("step_time", "kernels", "collectives", "host_ops", "events", "trace_events", "training_steps")
OPERATORS_SQL = """
SELECT rank_id, op_type, count(*) AS "count", sum(duration_us) AS total_us
FROM kernels
WHERE duration_us IS NOT NULL AND NOT coalesce(is_communication, FALSE)
  AND (step IS NULL OR step BETWEEN {first} AND {last}) AND rank_id IN ({ranks})
GROUP BY rank_id, op_type
"""
WIDTH = 520  # of the heat map: names and the legend stand beside it inside a tab at 1280 px
SAME_WORK_SHARE = 0.001
Ranks = Collection[int] | None


def profiled_steps(tables: Tables) -> pd.DataFrame:
    """Where the time of each profiled step went, as `device_steps.device_steps` returns it."""
    return device_steps.device_steps(**trace_steps.device_tables(tables))


def rank_parts(steps: pd.DataFrame, ranks: Ranks = None) -> Any:
    """Mean step of each rank by part."""
    own = _of(steps, ranks)
    return _no_steps() if own.empty else step_charts.rank_parts_chart(own)


@needs("step_time")
def profiled_ranks(tables: Tables) -> Any:
    """Mean step of each rank by part, of table `step_time` alone: what can be drawn before anything else is read."""
    return step_charts.rank_parts_chart(device_steps.device_steps(step_time=tables["step_time"]), split=False)


def step_parts(steps: pd.DataFrame, rank_id: int) -> Any:
    """Each step of one rank by part."""
    own = steps[steps["rank_id"] == rank_id]
    return _no_steps() if own.empty else step_charts.step_parts_chart(own, rank_id=rank_id)


def stalls(steps: pd.DataFrame, tables: Tables) -> Any:
    """Profiled steps that took far longer than the median one."""
    if steps.empty:
        return _no_steps()
    found = device_stalls(steps, tables.get("host_ops"))
    if found.empty:
        return Text("No profiled step stalls.")
    times = {"wall_us": "took, ms", "typical_us": "typical step, ms", "excess_us": "lost, ms"}
    named = {c: w for c, (w, _) in PARTS.items()}
    shown = found.assign(**found[list(times)] / 1e3, part=found["part"].replace(named)).round(2)
    words = {**times, "part": "longest part beyond its typical time", "ranks_share": "share of the ranks"}
    return shown.drop(columns="window").rename(columns=words).set_index("step")


@needs("step_time")
def profiled_rank_steps(tables: Tables, rank_id: int) -> Any:
    """Each profiled step of one rank by part."""
    return step_parts(profiled_steps(tables), rank_id)


def own_time(steps: pd.DataFrame, tables: Tables, ranks: Ranks = None) -> Any:
    """What each rank's own work took beyond its peers', in ms, as a table."""
    if steps.empty:
        return _no_steps()
    found = device_steps.own_time(steps, collective_waits.known_stages(steps, tables.get("collectives")))
    excess = [c for c in found if c.endswith("excess_us")]
    named = {c: c.removesuffix("excess_us").replace("_", " ") + "beyond peers, ms" for c in excess}
    shown = _of(found, ranks)[["rank_id", "stage", "steps", *excess]].assign(**found[excess] / 1e3)
    return shown.rename(columns=named).round(2).set_index("rank_id")


def bubbles(steps: pd.DataFrame, tables: Tables) -> Any:
    """Computing and standing still per pipeline stage."""
    if steps.empty:
        return _no_steps()
    stages = collective_waits.known_stages(steps, tables.get("collectives"))
    found = device_steps.stage_bubbles(steps, stages)
    return step_charts.stage_bubbles_chart(found) if len(found) > 1 else Text("One pipeline stage: no bubble.")


@needs("training_steps", "step_us")
def recorded_ranks(tables: Tables, ranks: Ranks = None) -> Any:
    """Typical recorded step of each rank against the others, in ms, as a table."""
    found = _of(rank_step_times(tables["training_steps"]), ranks).set_index("rank_id")
    times = [c for c in found if c.endswith("_us")]
    named = {c: c.removesuffix("_us").replace("_", " ") + ", ms" for c in times}
    return found.assign(**found[times] / 1e3).rename(columns=named).round(2)


def operators(run: Run, ranks: Collection[int], steps: tuple[int, int]) -> Any:
    """Largest operator types; counted by DuckDB, so that it takes the same memory for any number of ranks."""
    if "kernels" not in run.tables:
        return Missing(f"No rows of table kernels. To have them: {TABLES['kernels'].fix}.", table="kernels")
    words = ", ".join(str(int(r)) for r in ranks) or "NULL"
    totals = run.sql(OPERATORS_SQL.format(first=steps[0], last=steps[1], ranks=words))
    whole = totals.groupby("rank_id")["total_us"].transform("sum")
    return kernel_charts.operator_totals_chart(totals.assign(share=totals["total_us"] / whole))


@needs("kernels")
def operators_by_rank(tables: Tables, ranks: Ranks = None) -> Any:
    """Operator by rank: a slow device, a slow operator."""
    chart = kernel_charts.operator_rank_chart(_of(kernel_analyses.operator_ratios(tables["kernels"]), ranks))
    return chart.properties(width=WIDTH)


@needs("kernels")
def work(tables: Tables, ranks: Ranks = None) -> Any:
    """How much work each rank does beyond its peers, as a table; a sentence where none does."""
    found = _of(rank_work(tables["kernels"]), ranks)
    if len(found) > 1 and not (found["extra_share"].abs() > SAME_WORK_SHARE).any():
        return Text("All ranks do the same work: none calls operators more often, or on more data, than its peers.")
    return found.set_index("rank_id").round(3)


@needs("kernels")
def fusion(tables: Tables) -> Any:
    """Runs of small operators that could be one kernel."""
    found = fusion_candidates(tables["kernels"])
    if found.empty:
        return Text("No two elementwise operators run one after the other in one scope: nothing to fuse.")
    return kernel_charts.fusion_chart(found)


@needs("collectives")
def waits(tables: Tables, ranks: Ranks = None) -> Any:
    """Who waits in collectives."""
    return communication_charts.rank_waits_chart(_of(_losses(tables), ranks))


@needs("collectives")
def late_ranks(tables: Tables, ranks: Ranks = None) -> Any:
    """For whom the others wait."""
    return communication_charts.late_ranks_chart(_of(_losses(tables), ranks))


@needs("collectives")
def kinds(tables: Tables) -> Any:
    """Cost of each kind of parallelism."""
    groups = communication_groups.communication_groups(
        tables["collectives"], kernels=tables.get("kernels"), settings=tables.get("settings")
    )
    return communication_charts.communication_kinds_chart(communication_groups.communication_kinds(groups))


@needs("links")
def link_matrix(tables: Tables) -> Any:
    """Bandwidth of each link."""
    found = communication.link_bandwidths(tables["links"], tables.get("collectives"))
    return communication_charts.link_matrix_chart(communication.link_summary(found))


@needs("collectives")
def latency(tables: Tables) -> Any:
    """How much of the transfers is latency, as a table."""
    return communication.latency_share(tables["collectives"]).round(3)


def _losses(tables: Tables) -> pd.DataFrame:
    return collective_waits.late_rank_losses(collective_waits.collective_waits(tables["collectives"]))


def _of(rows: pd.DataFrame, ranks: Ranks) -> pd.DataFrame:
    return rows if ranks is None else rows[rows["rank_id"].isin(list(ranks))]


def _no_steps() -> Missing:
    return Missing(f"No profiled steps. To have them: {TABLES['step_time'].fix}.", table="step_time")
