"""What the explorer's tabs show of a cluster and of a single rank: no chart without data, each table with its ranks."""

import altair as alt
import pytest

import workbench as wb
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


def test_tables_of_ranks_name_the_ranks(data_samples):
    explorer = wb.explore(data_samples / "simulated_cluster_8")
    for tab, part in (("Ranks", "own time"), ("Operators", "work")):
        assert ">rank</th>" in shown(explorer, tab)[part].value
