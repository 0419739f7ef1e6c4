"""What a declared table promises."""

from workbench.tables import EVENTS


def test_tables_without_rows_are_independent_of_each_other():
    first = EVENTS.empty()
    first.loc[0, "kind"] = "gap"
    first["more"] = 1
    second = EVENTS.empty()
    assert len(second) == 0
    assert list(second) == EVENTS.column_names
    assert second.dtypes.astype(str).to_dict() == {c.name: c.dtype for c in EVENTS.columns}
