import pandas as pd
import pytest

from tests.made_run import made_steps
from workbench.analyses.device_steps import PARTS
from workbench.analyses.run_comparison import courses, profiled_parts, recorded_parts


def test_courses_have_the_runs_one_after_the_other():
    runs = {"A": made_steps(3, loss=[3.0, 2.0, float("nan")]), "B": made_steps(2, loss=[5.0, 4.0])}
    found = courses(runs, "loss")
    expected = [["A", 1, 3.0], ["A", 2, 2.0], ["B", 1, 5.0], ["B", 2, 4.0]]
    assert found[["run", "step", "loss"]].values.tolist() == expected
    assert courses({}, "loss").empty


def test_recorded_parts_are_means_over_steps_and_ranks():
    two_ranks = pd.concat(
        [
            made_steps(2, rank_id=r, step_us=1000.0 * (r + 1), data_wait_us=100.0, callbacks_us=10.0, compiled=False)
            for r in range(2)
        ]
    )
    found = recorded_parts({"A": (two_ranks, None)}).set_index("part")["us_per_step"]
    # rank 0 runs 1000 - 100, rank 1 2000 - 100 of each step
    assert found["run"] == pytest.approx((900 + 1900) / 2)
    assert found["data_wait"] == pytest.approx(100)
    assert found["callbacks"] == pytest.approx(10)
    assert recorded_parts({}).empty


def test_profiled_parts_are_means_and_a_run_without_steps_is_left_out():
    steps = pd.DataFrame({part: [1.0, 3.0] for part in PARTS})
    found = profiled_parts({"A": steps, "B": steps.iloc[:0]})
    assert set(found["run"]) == {"A"}
    assert found["us_per_step"].tolist() == [2.0] * len(PARTS)
