"""Charts of device tables draw on the sample, and say so where there is nothing."""

import pandas as pd
import pytest
import vl_convert

import workbench as wb
from workbench.analyses import collective_waits, communication, device_steps, kernels
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
    }


def test_charts_draw_the_sample(full):
    theme.enable_offline("static")
    for name, chart in charts(full).items():
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
