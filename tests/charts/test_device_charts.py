"""Charts of device tables draw on the sample, and say so where there is nothing."""

import pandas as pd
import pytest
import vl_convert

import workbench as wb
from tests.analyses.device_tables import kernels as made_kernels
from workbench.analyses import (
    collective_waits,
    communication,
    communication_groups,
    device_steps,
    kernels,
    operator_work,
)
from workbench.charts import communication as communication_charts
from workbench.charts import device_steps as step_charts
from workbench.charts import kernels as kernel_charts
from workbench.charts import theme
from workbench.tables import COLLECTIVES, KERNELS, LINKS


@pytest.fixture(scope="module")
def full(data_samples):
    run = wb.open_run(data_samples / "simulated_cluster", quiet=True)
    return {name: run.table(name) for name in ("step_time", "kernels", "collectives", "links", "host_ops")}


EMPTY = {"kernels": KERNELS.empty(), "collectives": COLLECTIVES.empty(), "links": LINKS.empty()}


def charts(tables):
    steps = device_steps.device_steps(**{k: v for k, v in tables.items() if k != "links"})
    losses = collective_waits.late_rank_losses(collective_waits.collective_waits(tables["collectives"]))
    summary = communication.link_summary(communication.link_bandwidths(tables["links"], tables["collectives"]))
    groups = communication_groups.communication_groups(tables["collectives"], kernels=tables["kernels"])
    stages = collective_waits.known_stages(steps, tables["collectives"])
    half = tables["kernels"][tables["kernels"]["rank_id"] < 2], tables["kernels"][tables["kernels"]["rank_id"] >= 2]
    return {
        "ranks": step_charts.rank_parts_chart(steps),
        "steps": step_charts.step_parts_chart(steps, rank_id=0),
        "totals": kernel_charts.operator_totals_chart(kernels.kernel_totals(tables["kernels"])),
        "heat": kernel_charts.operator_rank_chart(kernels.operator_ratios(tables["kernels"])),
        "changes": kernel_charts.kernel_changes_chart(kernels.compare_kernels(*half)),
        "waits": communication_charts.rank_waits_chart(losses),
        "late": communication_charts.late_ranks_chart(losses),
        "links": communication_charts.link_matrix_chart(summary),
        "kinds": communication_charts.communication_kinds_chart(communication_groups.communication_kinds(groups)),
        "stages": step_charts.stage_bubbles_chart(device_steps.stage_bubbles(steps, stages)),
        "fusion": kernel_charts.fusion_chart(operator_work.fusion_candidates(tables["kernels"])),
    }


@pytest.fixture(scope="module")
def two_stages_of_small_operators(data_samples):
    """The tables of four ranks, cut: two pipeline stages, and a chain of elementwise operators."""
    run = wb.open_run(data_samples / "pipeline_two_stages", quiet=True)
    tables = {name: run.table(name) for name in ("step_time", "collectives", "links")}
    chain = [(0, 13, 30 * n, 5, kind) for n, kind in enumerate(("Mul", "Add", "MatMul") * 40)]
    table = made_kernels(chain)
    return {**tables, "kernels": table.assign(name="net/" + table["op_type"])}


def test_stages_kinds_of_communication_and_runs_are_drawn(two_stages_of_small_operators):
    theme.enable_offline("static")
    drawn = charts(two_stages_of_small_operators)
    texts = {name: vl_convert.vegalite_to_svg(drawn[name].to_dict()) for name in ("stages", "kinds", "fusion")}
    assert "39% waiting" in texts["stages"] or "40% waiting" in texts["stages"]  # 323 of 810 ms
    assert "pipeline" in texts["kinds"]
    assert "Mul &gt; Add" in texts["fusion"]


def test_charts_draw_the_sample(full):
    theme.enable_offline("static")
    for name, chart in charts(full).items():
        if name in ("stages", "fusion"):  # one stage, and no two elementwise operators in a row
            continue
        svg = vl_convert.vegalite_to_svg(chart.to_dict())
        assert svg.count("<path") > 5, name


def test_the_parts_of_charts_are_those_of_the_analysis():
    assert tuple(step_charts.PARTS) == device_steps.PARTS


def test_tables_without_rows_say_so():
    theme.enable_offline("static")
    for name, chart in charts(EMPTY).items():
        text = str(chart.to_dict())
        assert "nothing recorded" in text or "no " in text, name
    assert isinstance(EMPTY["links"], pd.DataFrame)
