import pytest

from tests.analyses.test_telemetry import CLOCKS, made
from workbench.analyses.telemetry_course import telemetry_course
from workbench.tables import TELEMETRY


def test_a_rank_beside_the_range_of_the_others():
    rows = made({"device_clock_mhz": {0: [1800.0, 1790.0], 1: [1810.0, 1800.0], 2: [1300.0, 1310.0]}})
    rows = rows.assign(time_ns=rows["time_ns"] * 10**9)  # at 0 and 1 s
    course = telemetry_course(rows, 2, buckets=2)
    others = course[course["who"] == "other ranks"]
    # two buckets of half a second each: the second one begins at 0.5 s
    assert others[["low", "median", "high"]].values.tolist() == [[1800, 1805, 1810], [1790, 1795, 1800]]
    assert course.loc[course["who"] == "rank 2", "median"].tolist() == [1300, 1310]
    assert course["at"].tolist() == pytest.approx([0.25, 0.75] * 2)
    assert set(course["axis"]) == {"time (s)"}


def test_only_metrics_of_the_rank_that_say_something():
    rows = made({**CLOCKS, "allocation_retries": dict.fromkeys(range(4), [0.0] * 9), "host_cpu_share": {0: 0.5}})
    assert telemetry_course(rows, 3)["metric"].unique().tolist() == ["device_clock_mhz", "device_temperature_celsius"]
    assert telemetry_course(TELEMETRY.empty(), 0).empty
    assert telemetry_course(rows, 99).empty


def test_many_samples_become_few_rows_and_row_order_does_not_matter():
    rows = made({"device_clock_mhz": {r: [1800.0 + i % 7 for i in range(5000)] for r in range(4)}})
    course = telemetry_course(rows, 1)
    assert len(course) == 2 * 120
    assert course.equals(telemetry_course(rows.sample(frac=1, random_state=1), 1))


def test_samples_with_steps_only():
    rows = made({"device_clock_mhz": {0: [1800.0] * 3, 1: [1300.0] * 3}}).assign(time_ns=None, step=[5, 6, 7] * 2)
    course = telemetry_course(TELEMETRY.check(rows), 1)
    assert (course["at"].tolist(), set(course["axis"])) == ([5, 6, 7] * 2, {"step"})
