"""What the explorer's tabs show of a cluster and of a single rank: no chart without data, each table with its ranks."""

import altair as alt
import pandas as pd
import pytest

import workbench as wb
from workbench.widgets import device_sections
from workbench.widgets.explorer import BOARDS_TAB, TITLES


def shown(explorer, tab):
    """What the slots of a tab show by name, without those that are hidden."""
    explorer.tab = tab
    slots = explorer.page(tab).slots
    return {name: s.widget.children[0] for name, s in slots.items() if s.widget.layout.display != "none"}


@pytest.mark.parametrize("sample", ["simulated_cluster_8", "rehearsal_run", "throttled_rank"])
def test_no_tab_shows_an_empty_chart(data_samples, sample):
    explorer = wb.explore(data_samples / sample)
    for tab in [t for t in TITLES if t not in (BOARDS_TAB, "Compare")]:
        charts = {n: w.chart.to_dict() for n, w in shown(explorer, tab).items() if isinstance(w, alt.JupyterChart)}
        words = {n: [row for rows in c.get("datasets", {}).values() for row in rows] for n, c in charts.items()}
        assert [n for n, rows in words.items() if not rows or list(rows[0]) == ["words"]] == [], tab


def test_a_table_of_ranks_names_the_ranks(data_samples):
    explorer = wb.explore(data_samples / "simulated_cluster_8")
    assert ">rank</th>" in shown(explorer, "Ranks")["own time"].value


def test_the_work_of_ranks_is_a_table_only_where_it_differs(data_samples):
    kernels = wb.open_run(data_samples / "simulated_cluster", quiet=True).table("kernels")
    assert "All ranks do the same work" in repr(device_sections.work({"kernels": kernels}))
    more = kernels[(kernels["rank_id"] == 1) & (kernels["op_type"] == "MatMulV3")]  # each of them once more
    found = device_sections.work({"kernels": pd.concat([kernels, more], ignore_index=True)})
    assert found.index[0] == 1
    assert found["extra_share"].iloc[0] > 0.1
