import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_steps, write_run
from workbench.analyses.kernels import kernel_totals
from workbench.charts.kernels import operator_totals_chart
from workbench.widgets.device_sections import operators
from workbench.widgets.rows import Rows


@pytest.fixture(scope="module")
def cluster(data_samples):
    return wb.open_run(data_samples / "simulated_cluster", quiet=True)


def test_small_tables_are_read_whole_and_filtered(cluster):
    rows = Rows(cluster)
    assert rows.steps() == (5, 7)
    found = rows.tables(["step_time", "kernels", "evals"], (6, 6))
    assert set(found) == {"step_time", "kernels"}
    assert set(found["step_time"]["step"]) == {6}
    assert rows.notes == {}


def test_large_tables_are_read_by_whole_steps(cluster):
    whole = cluster.table("kernels")
    one_step = int((whole["step"] == 5).sum())
    for fits, last in ((one_step - 1, 5), (one_step, 5), (2 * one_step + one_step // 2, 6), (len(whole) - 1, 6)):
        rows = Rows(cluster, rows_most=fits)
        found = rows.tables(["kernels"], (5, 7))["kernels"]
        key = ["rank_id", "start_ns", "name"]
        expected = whole[whole["step"] <= last].sort_values(key, ignore_index=True)
        pd.testing.assert_frame_equal(found.sort_values(key, ignore_index=True), expected)
        assert f"steps 5 to {last} are shown" in rows.notes["kernels"]
    rows = Rows(cluster, rows_most=len(whole) - 1)
    assert set(rows.tables(["kernels"], (7, 7))["kernels"]["step"]) == {7}
    assert rows.notes == {}


def test_operators_counted_by_duckdb_are_those_counted_by_pandas(cluster):
    for ranks, steps in (((0, 1, 2, 3), (5, 7)), ((2,), (6, 6))):
        kernels = cluster.table("kernels")
        kernels = kernels[kernels["rank_id"].isin(ranks) & kernels["step"].between(*steps)]
        expected = operator_totals_chart(kernel_totals(kernels)).data.reset_index(drop=True)
        found = operators(cluster, ranks, steps).data.reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_subsets_are_named(tmp_path, data_samples):
    starved = wb.open_run(data_samples / "subset_starved", quiet=True)
    assert Rows(starved).subsets() == [
        "arithmetic",
        "english",
        "python",
    ]
    assert Rows(wb.open_run(write_run(tmp_path / "run", made_steps(5)), quiet=True)).subsets() == []
