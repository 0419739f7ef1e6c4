import pandas as pd
import pytest
import vl_convert

import workbench as wb
from tests.analyses.device_tables import kernels
from workbench.analyses.task_timeline import STEPS_MOST
from workbench.charts import theme
from workbench.charts.task_timeline import rank_timeline_chart, stream_timeline_chart
from workbench.widgets import timeline_sections
from workbench.widgets.rows import Rows
from workbench.widgets.sections import Missing, Text


@pytest.fixture(scope="module")
def cluster(data_samples):
    return Rows(wb.open_run(data_samples / "simulated_cluster_8", quiet=True))


def drawn(chart):
    """All rows of a chart that carry a duration."""
    rows = [row for data in chart.to_dict()["datasets"].values() for row in data if "duration" in row]
    return pd.DataFrame(rows)


def ranks_chart(rows, ranks, steps, rank_id=0):
    tables = rows.tables(timeline_sections.STEP_TABLES, steps)
    return timeline_sections.rank_timeline(rows, tables, ranks, steps, rank_id)


def test_a_slow_rank_computes_longest_and_communicates_shortest(cluster):
    bars = drawn(ranks_chart(cluster, tuple(range(8)), (6, 6)))
    longest = bars.assign(ms=bars["end_ms"] - bars["start_ms"]).pivot_table("ms", "rank_id", "lane", "max")
    assert longest["computing"].idxmax() == 5
    assert longest["communication"].idxmin() == 5


def test_one_rank_shows_its_tasks_with_durations_in_words(cluster):
    tables = cluster.tables(timeline_sections.STEP_TABLES, (6, 6))
    chart = timeline_sections.stream_timeline(cluster, tables, (6, 6), 5)
    bars = drawn(chart)
    assert set(bars["lane"]) == {"stream 2", "communication"}
    assert len(bars) == 36  # the tasks of a step, counted in kernel_details.csv
    assert bars["duration"].str.fullmatch(r"[\d,.]+ (µs|ms)").all()
    theme.enable_offline("static")
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert "Tasks of rank 5" in svg
    assert ">step 6<" in svg
    assert "time (ms)" in svg


def test_more_ranks_than_fit_are_cut_and_told(cluster, monkeypatch):
    monkeypatch.setattr(timeline_sections, "RANKS_MOST", 3)
    chart = ranks_chart(cluster, tuple(range(8)), (5, 7), rank_id=6)
    assert set(drawn(chart)["rank_id"]) == {0, 1, 6}
    assert chart.title.subtitle.startswith("3 of 8 ranks. Steps 5 to 7.")


def test_steps_beyond_those_shown_are_told():
    steps = pd.DataFrame({"step": range(1, STEPS_MOST + 1)})
    assert "later steps" in timeline_sections._which(steps, (1, STEPS_MOST + 1))
    assert timeline_sections._which(steps, (1, STEPS_MOST)) == f"Steps 1 to {STEPS_MOST}."


def test_a_profile_without_step_numbers_is_drawn(data_samples):
    rows = Rows(wb.open_run(data_samples / "cpu_profile", quiet=True))
    assert len(drawn(ranks_chart(rows, (0,), rows.steps()))) > 10


def test_what_is_missing_and_what_cannot_be_drawn_is_said(data_samples):
    bare = Rows(wb.open_run(data_samples / "rehearsal_run", quiet=True))
    assert isinstance(ranks_chart(bare, (0,), (1, 400)), Missing)
    mixed = Rows(wb.open_run(data_samples / "mindinsight_profile", quiet=True))
    found = ranks_chart(mixed, (0,), mixed.steps())
    assert isinstance(found, Text)
    assert "several clocks" in found.text


def test_charts_without_bars_say_so():
    empty = kernels([(0, 1, 0, 1)]).iloc[:0]
    for chart in (rank_timeline_chart(empty, empty), stream_timeline_chart(empty, empty, rank_id=0)):
        assert "no task" in str(chart.to_dict())
