import pandas as pd

from workbench.charts.run_comparison import courses_chart, parts_chart


def rows(chart):
    spec = chart.to_dict()
    return next(iter(spec["datasets"].values())), spec


def test_two_runs_have_a_line_each():
    table = pd.DataFrame({"run": ["B", "A"], "step": [1, 1], "loss": [2.0, 3.0]})
    _, spec = rows(courses_chart(table, "loss", title="Loss", unit="loss (nats per token)"))
    assert spec["encoding"]["color"]["scale"]["domain"] == ["B", "A"]
    assert spec["encoding"]["y"]["title"] == "loss (nats per token)"


def test_parts_stand_largest_first_and_what_cannot_be_seen_is_left_out():
    table = pd.DataFrame(
        {"run": ["A", "A", "A", "B"], "part": ["x", "y", "z", "x"], "us_per_step": [1000.0, 5000.0, 0.1, 2000.0]}
    )
    data, spec = rows(parts_chart(table, {"y": "waiting"}))
    assert spec["encoding"]["y"]["sort"] == ["waiting", "x"]
    assert {(r["run"], r["part"], r["ms"]) for r in data} == {("A", "x", 1.0), ("B", "x", 2.0), ("A", "waiting", 5.0)}


def test_nothing_to_draw_is_said():
    empty = pd.DataFrame(columns=["run", "part", "us_per_step"])
    for chart in (parts_chart(empty, {}), courses_chart(empty, "loss", title="Loss", unit="nats")):
        assert "mark" in chart.to_dict()
