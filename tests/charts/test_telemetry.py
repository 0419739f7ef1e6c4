from tests.analyses.test_telemetry import CLOCKS, made
from workbench.analyses.telemetry_course import telemetry_course
from workbench.charts.telemetry import telemetry_chart


def test_a_plot_per_metric_with_units_and_the_steps_marked():
    course = telemetry_course(made({**CLOCKS, "host_cpu_share": dict.fromkeys(range(4), 0.5)}), 3)
    spec = telemetry_chart(course, (0.0, 5e-9)).to_dict()
    assert len(spec["vconcat"]) == 3
    titles = [plot["layer"][-1]["encoding"]["y"]["title"] for plot in spec["vconcat"]]
    assert titles == [["device clock", "(MHz)"], ["device temperature", "(°C)"], ["host cpu"]]
    assert all(plot["layer"][0]["mark"]["type"] == "rect" for plot in spec["vconcat"])
    assert sum(len(rows) for rows in spec["datasets"].values()) < 2000
    assert "rank 3" in spec["title"]["text"]


def test_nothing_to_draw():
    assert "no metric" in str(telemetry_chart(telemetry_course(made({"x": {0: 1.0}}), 0)).to_dict())
