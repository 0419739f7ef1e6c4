import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses.device_tables import BASE_NS, kernels
from tests.made_cluster import make_cluster
from workbench.analyses.device_steps import PARTS, device_steps
from workbench.analyses.trace_steps import (
    MARKS_SQL,
    TASKS_SQL,
    collectives_of_tasks,
    device_tables,
    recorded_waits,
    trace_marks,
    trace_tasks,
    with_steps,
)
from workbench.run import open_run


def trace(rows) -> pd.DataFrame:
    """Rows of (layer, track, name, start_us, duration_us)."""
    frame = pd.DataFrame(rows, columns=["layer", "track", "name", "start_us", "duration_us"])
    return frame.assign(
        rank_id=0, window=0, start_ns=BASE_NS + frame["start_us"] * 1000, duration_ns=frame["duration_us"] * 1000
    )


def unnumbered(rows) -> pd.DataFrame:
    """Tasks of (rank, name, start_us, duration_us) without steps."""
    table = kernels([(r, 0, start, length) for r, _, start, length in rows])
    return table.assign(name=[row[1] for row in rows], step=pd.array([pd.NA] * len(rows), "Int64"))


# Two steps: data until 60, compute 60-100, communication 90-120; then data until 180, compiling until 300, compute.
STEPS = trace(
    [("MindSpore", "t", "ProfilerStep#7", 0, 120), ("MindSpore", "t", "ProfilerStep#8", 120, 400),
     ("MindSpore", "t", "Dataset::Pipeline::GetNext", 0, 60), ("MindSpore", "t", "Dataset::Pipeline::GetNext", 120, 60),
     ("MindSpore", "t", "Capture::CaptureCompile::construct", 180, 120),
     ("Overlap Analysis", "Computing", "Computing", 60, 40),
     ("Overlap Analysis", "Communication", "Communication", 90, 30),
     ("Overlap Analysis", "Computing", "Computing", 300, 100),
     ("Overlap Analysis", "Communication(Not Overlapped)", "Communication(Not Overlapped)", 100, 20),
     ("Overlap Analysis", "Free", "Free", 120, 180)]
)  # fmt: skip


def test_steps_from_the_trace_alone_by_hand():
    steps = device_steps(**device_tables({"trace_events": STEPS})).set_index("step")
    assert steps.loc[7, ["wall_us", "computing_us", "transfer_us", "overlapped_us", "data_wait_us"]].tolist() == [
        120, 40, 20, 10, 60,
    ]  # fmt: skip
    assert steps.loc[8, ["wall_us", "computing_us", "data_wait_us", "compile_us"]].tolist() == [280, 100, 60, 120]
    assert steps["unknown_us"].tolist() == [0, 0]


def test_marks_are_events_with_their_kind():
    marks = trace_marks(STEPS)
    assert marks.groupby("kind")["duration_us"].sum().to_dict() == {"compile": 120, "data_wait": 120}
    assert trace_marks(STEPS.iloc[:2]).empty


def test_iterations_begin_after_the_longest_pause():
    one = [("b", 0, 10), ("a", 12, 10), ("c", 24, 10), ("a", 36, 10)]
    table = unnumbered([(r, n, 200 * i + s, d) for r in (0, 1) for i in range(4) for n, s, d in one])
    stepped = with_steps(table)
    assert stepped.groupby(["rank_id", "step"]).size().tolist() == [4] * 8
    first = stepped.sort_values("start_ns").groupby(["rank_id", "step"])["name"].first()
    assert set(first) == {"b"}  # "a" runs twice and does not tell


def test_a_cut_iteration_stays_without_a_step_and_events_name_the_first():
    rows = [(0, n, 100 * i + s, 10) for i in range(3) for n, s in (("a", 0), ("b", 12), ("c", 24))]
    window = pd.DataFrame(
        {"rank_id": [0], "kind": "profile", "start_ns": BASE_NS, "duration_us": 1e6, "step": 12,
         "name": "profiles", "detail": json.dumps({"first_step": 10, "last_step": 12})}
    )  # fmt: skip
    stepped = with_steps(unnumbered(rows[1:]), window)
    assert stepped["step"].isna().sum() == 2  # b and c of the iteration that began before
    assert sorted(stepped["step"].dropna().unique()) == [10, 11]


def test_tasks_without_a_regular_course_get_no_steps():
    rows = [(0, n, 20 * i, 10) for i, n in enumerate("aabaaaaabaaaaaaaaaab")]
    assert with_steps(unnumbered(rows))["step"].isna().all()
    numbered = kernels([(0, 5, 0, 10)])
    assert with_steps(numbered)["step"].tolist() == [5]


def test_collectives_of_a_cpu_profile_show_who_waits():
    rows = kernels([(0, 1, 0, 50, "AllReduce"), (1, 1, 40, 10, "AllReduce"), (1, 1, 0, 30, "MatMul")])
    rows = rows.assign(is_communication=rows["op_type"] == "AllReduce", accelerator_core="CPU")
    steps = device_steps(kernels=rows, collectives=collectives_of_tasks(rows)).set_index("rank_id")
    assert steps["late_rank_us"].to_dict() == {0: 40, 1: 0}
    assert steps["transfer_us"].to_dict() == {0: 10, 1: 10}
    assert collectives_of_tasks(rows[rows["rank_id"] == 0]) is None


def test_recorded_waits_lie_at_the_begin_of_each_step():
    steps = pd.DataFrame(
        {"rank_id": [0, 0], "step": [1, 2], "time_ns": [BASE_NS + 100_000, pd.NA], "step_us": 80.0,
         "data_wait_us": 30.0, "callbacks_us": 5.0}
    )  # fmt: skip
    (wait,) = recorded_waits(steps).to_dict("records")
    assert (wait["start_ns"], wait["duration_us"], wait["kind"]) == (BASE_NS + 100_000 - 85_000, 30, "data_wait")


BUSY = st.tuples(st.sampled_from(["Computing", "Communication"]), st.integers(0, 900), st.integers(1, 200))
WAIT = st.tuples(st.integers(0, 900), st.integers(1, 300))


@settings(deadline=None, max_examples=30)
@given(st.lists(BUSY, min_size=1, max_size=12), st.lists(WAIT, max_size=4))
def test_parts_sum_to_the_wall_time_whatever_the_trace_says(busy, waits):
    rows = [("Overlap Analysis", kind, kind, start, length) for kind, start, length in busy]
    rows += [("MindSpore", "t", "Dataset::Pipeline::GetNext", start, length) for start, length in waits]
    rows += [("MindSpore", "t", f"ProfilerStep#{n}", 300 * n, 300) for n in range(4)]
    steps = device_steps(**device_tables({"trace_events": trace(rows)}))
    assert len(steps) >= 1
    assert steps[list(PARTS)].sum(axis=1).tolist() == pytest.approx(steps["wall_us"].tolist(), rel=1e-3, abs=1e-6)
    assert (steps[list(PARTS)] >= 0).all(axis=None)


def test_the_trace_of_a_cluster_says_what_its_step_times_say(shared_dir, tmp_path):
    words = {"ranks": 2, "steps": 4, "layers": 1, "seed": 2}
    make_cluster(shared_dir, tmp_path / "run", "data_starved:60", "recompile:1", trace=True, **words)
    run = open_run(tmp_path / "run", quiet=True)
    alone = device_steps(**device_tables({"trace_events": run.sql(TASKS_SQL)}))
    written = run.table("step_time").sort_values(["rank_id", "step"])
    assert alone["computing_us"].tolist() == pytest.approx(written["computing_us"].tolist(), rel=1e-6)
    assert alone["overlapped_us"].tolist() == pytest.approx(written["overlapped_us"].tolist(), rel=1e-6)
    exposed = alone[["transfer_us", "late_rank_us", "pipeline_wait_us"]].sum(axis=1)
    assert exposed.tolist() == pytest.approx(written["communication_not_overlapped_us"].tolist(), rel=1e-6)
    assert alone["data_wait_us"].tolist() == pytest.approx([60e3] * 8, rel=0.03)
    assert alone["compile_us"].sum() == pytest.approx(2 * 900e3, rel=1e-6)  # one step of each rank
    assert len(run.sql(MARKS_SQL)) < len(run.sql(TASKS_SQL)) < run.count("trace_events")


def test_a_cpu_profile_has_its_two_steps(data_samples):
    run = open_run(data_samples / "cpu_profile", quiet=True)
    for tables in ({"kernels": run.table("kernels")}, {"trace_events": run.sql(TASKS_SQL)}):
        steps = device_steps(**device_tables(tables))
        assert steps["step"].tolist() == [1, 2]
        assert device_tables(tables)["kernels"].groupby("step").size().tolist() == [22, 22]
    assert trace_tasks(run.table("trace_events"))["op_type"].nunique() > 5


def test_a_trace_without_operators_has_no_tasks():
    only_host = trace([("cpu_op", "thread 1", "aten::add", 0, 5)])
    assert trace_tasks(only_host).empty
    assert trace_tasks(only_host[:0]).empty
    assert "kernels" not in device_tables({"trace_events": only_host})
