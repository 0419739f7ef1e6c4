import pandas as pd

from workbench.analyses.selection import select

TABLES = {
    "training_steps": pd.DataFrame({"rank_id": [0, 0, 1, 1], "step": [1, 2, 1, 2]}),
    "events": pd.DataFrame({"rank_id": [0, 1], "step": pd.array([2, None], dtype="Int64")}),
    "settings": pd.DataFrame({"name": ["a"], "rank_id": pd.array([None], dtype="Int64")}),
}


def test_ranks_and_steps_are_kept_where_a_table_has_them():
    found = select(TABLES, ranks=[1], steps=(2, 9))
    assert found["training_steps"].to_dict("list") == {"rank_id": [1], "step": [2]}
    assert len(found["events"]) == 1  # without a step: kept
    assert len(found["settings"]) == 1


def test_no_filter_keeps_everything():
    assert {n: len(t) for n, t in select(TABLES).items()} == {"training_steps": 4, "events": 2, "settings": 1}
