"""All rules on the device tables of a profile, over analyses that are made once."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench.analyses.collective_waits import pipeline_stages, unclear_clocks
from workbench.analyses.communication import (
    collective_overlap,
    latency_share,
    link_bandwidths,
    link_summary,
    micro_batches,
)
from workbench.analyses.communication_groups import communication_groups
from workbench.analyses.device_steps import device_steps, own_time
from workbench.analyses.kernels import (
    compute_kernels,
    device_ratios,
    host_launches,
    kernel_totals,
    on_host,
    operator_ratios,
    short_kernels,
)
from workbench.analyses.operator_work import fusion_candidates, rank_work
from workbench.analyses.step_trend import job_device_times
from workbench.analyses.trace_steps import device_tables
from workbench.findings import communication
from workbench.findings import device_steps as step_rules
from workbench.findings import kernels as kernel_rules
from workbench.findings.finding import Finding
from workbench.findings.pricing import doubted, priced
from workbench.findings.rule import Rule
from workbench.findings.step_trend import find_step_time_drift

TABLES = ("step_time", "kernels", "collectives", "links", "host_ops", "data_ops", "events", "settings", "trace_events",
          "training_steps")  # fmt: skip


def find_cluster_causes(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """What the device tables tell: TABLES, any of which may be missing.

    Returns:
        Findings of the rules on steps, operators and communication, without order.
    """
    profiled = device_tables(tables)
    steps = device_steps(**profiled)
    if steps.empty:
        return []
    named = tables.keys() | profiled.keys() - {"kernels"}  # busy times that a trace gives for kernels are no operators
    tables = {name: profiled.get(name, tables.get(name, pd.DataFrame())) for name in named}
    collectives, kernels = tables.get("collectives"), tables.get("kernels")
    one_stage = pd.DataFrame({"rank_id": sorted(steps["rank_id"].unique()), "stage": 0})
    stages = one_stage if collectives is None else pipeline_stages(collectives)
    wall_us = float(steps["wall_us"].median())
    found = step_rules.find_data_starved(steps, tables.get("data_ops"))
    if "training_steps" not in tables or kernels is None or not on_host(kernels):  # else the recorded steps say it
        found += step_rules.find_device_stalls(steps, collectives, tables.get("host_ops"))
    if not found or found[0].cause != "data_starved":
        found += step_rules.find_late_host(own_time(steps, stages), wall_us=wall_us, steps=steps)
    if kernels is not None:
        found += _kernel_causes(kernels, steps, stages, wall_us)
    if collectives is not None:
        found += _communication_causes(collectives, steps, stages, tables)
    found = priced(found, tables, stages, wall_us=wall_us)
    groups = None if collectives is None else communication_groups(collectives, settings=tables.get("settings"))
    found += communication.find_exposed_communication(steps, found, groups)
    found += find_step_time_drift(job_device_times(steps), table="step_time")
    return found if collectives is None else doubted(found, unclear_clocks(collectives))


def _kernel_causes(kernels: pd.DataFrame, steps: pd.DataFrame, stages: pd.DataFrame, wall_us: float) -> list[Finding]:
    if on_host(kernels):  # times of operators on shared cores follow the load of the host
        return []
    ratios = operator_ratios(kernels)
    devices = device_ratios(ratios)
    return [
        *kernel_rules.find_slow_device(devices, stages, wall_us=wall_us),
        *kernel_rules.find_slow_op(ratios, devices, wall_us=wall_us),
        *kernel_rules.find_small_ops(short_kernels(kernels), steps, kernel_totals(kernels), fusion_candidates(kernels)),
        *kernel_rules.find_more_work(rank_work(kernels, stages), wall_us=wall_us),
    ]


def _communication_causes(
    collectives: pd.DataFrame, steps: pd.DataFrame, stages: pd.DataFrame, tables: Mapping[str, pd.DataFrame]
) -> list[Finding]:
    found = communication.find_unfused_allreduce(latency_share(collectives), steps)
    found += communication.find_pipeline_bubble(steps, stages, micro_batches(collectives))
    if "links" in tables:
        found += communication.find_slow_link(link_summary(link_bandwidths(tables["links"], collectives)), steps)
    if "kernels" in tables:
        overlap = collective_overlap(tables["kernels"], collectives)
        found += communication.find_no_overlap(
            overlap, steps, backward_us=_last_backward(tables["kernels"], collectives)
        )
    return found


def _last_backward(kernels: pd.DataFrame, collectives: pd.DataFrame) -> float:
    """Computing of a step's last backward pass: tasks named after gradients, over the micro-batches."""
    rows = compute_kernels(kernels)
    is_backward = rows["name"].str.contains("Gradients", regex=False, na=False) | rows["op_type"].str.endswith(
        "Grad", na=False
    )
    per_step = rows[is_backward].groupby(["rank_id", "step"])["duration_us"].sum()
    return float(per_step.median()) / (micro_batches(collectives) or 1) if len(per_step) else 0.0


RULES: tuple[Rule, ...] = (
    Rule(
        causes=(
            "data_starved",
            "stall_steps",
            "recompile",
            "slow_rank",
            "slow_op",
            "small_ops",
            "unfused_allreduce",
            "pipeline_bubble",
            "slow_link",
            "no_overlap",
            "exposed_communication",
            "step_time_drift",
        ),
        needs=(),
        needs_any=("step_time", "kernels", "trace_events"),
        uses=TABLES,
        find=find_cluster_causes,
    ),
    Rule(
        causes=("small_ops",),
        needs=("kernels",),
        find=lambda t: kernel_rules.find_small_ops_on_host(host_launches(t["kernels"])),
    ),
)
