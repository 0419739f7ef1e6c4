import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyses.device_tables import BASE_NS, collectives, kernels
from workbench.analyses.collective_waits import pipeline_stages
from workbench.analyses.device_steps import PARTS, device_steps, own_time, stage_bubbles

# Step 1 of rank 0: computes 0-100 and 110-200 (a launch gap of 10), the all-reduce runs 180-300 and waits until 240 for
# rank 1, which computes until 240. Step 2 begins at 300 and computes 2400-2500.
TASKS = kernels([(0, 1, 0, 100), (0, 1, 110, 90), (0, 2, 2400, 100), (1, 1, 0, 240), (1, 2, 2400, 100)])
MOVES = collectives([(0, 1, "a", "g", 180, 120), (1, 1, "a", "g", 240, 60)])


def test_parts_of_a_step_by_hand():
    row = device_steps(kernels=TASKS, collectives=MOVES).iloc[0]
    assert row["wall_us"] == 300
    assert row["computing_us"] == 100 + 90
    assert row["overlapped_us"] == 200 - 180
    assert row["late_rank_us"] == 240 - 200  # waiting, and not computing any more
    assert row["transfer_us"] == 300 - 240
    assert row["launch_gap_us"] == 10
    assert row["unknown_us"] == 0


def test_the_time_before_the_first_task_is_split_by_cause():
    data = pd.DataFrame(
        {"rank_id": [0], "level": "dataset", "name": "Pipeline::GetNext", "count": 2.0, "total_us": 2000.0}
    )
    compiled = pd.DataFrame(
        {"rank_id": [0], "kind": "compile", "start_ns": [BASE_NS + 1_400_000], "duration_us": 900.0}
    )
    row = device_steps(kernels=TASKS, collectives=MOVES, host_ops=data, events=compiled).iloc[1]
    assert row["wall_us"] == 2500 - 300
    assert row["leading_us"] == 2400 - 300
    assert row["data_wait_us"] == 1000  # 2000 us over two steps
    assert row["compile_us"] == 900
    assert row["unknown_us"] == 2100 - 1000 - 900


def test_step_time_decides_where_it_is_there_and_the_first_step_gets_its_preparing_time():
    written = pd.DataFrame(
        {"rank_id": 0, "window": 0, "step": [1, 2], "computing_us": [190.0, 100.0], "overlapped_us": [20.0, 0.0],
         "communication_not_overlapped_us": [100.0, 0.0], "free_us": [10.0, 2100.0], "preparing_us": [7.0, 2100.0]}
    )  # fmt: skip
    steps = device_steps(step_time=written, kernels=TASKS, collectives=MOVES)
    first, second = steps[steps["rank_id"] == 0].to_dict("records")
    assert first["wall_us"] == 190 + 100 + 10 + 7
    assert (first["late_rank_us"], first["transfer_us"]) == (40, 60)
    assert second["wall_us"] == 100 + 2100
    assert len(steps) == 4  # rank 1 is measured on its tasks


TIME = st.integers(0, 3000)
TASK = st.tuples(st.integers(0, 1), st.integers(1, 3), TIME, st.integers(1, 400))


@settings(deadline=None, max_examples=40)
@given(st.lists(TASK, min_size=1, max_size=12), st.lists(TASK, max_size=6), st.randoms())
def test_parts_sum_to_wall_time_and_order_and_rank_numbers_are_irrelevant(tasks, moves, random):
    table = kernels(tasks)
    several = collectives([(r, s, f"op{n}", "g", start, length) for n, (r, s, start, length) in enumerate(moves)])
    steps = device_steps(kernels=table, collectives=several)
    assert steps[list(PARTS)].sum(axis=1).tolist() == pytest.approx(steps["wall_us"].tolist(), rel=1e-3, abs=1e-6)
    assert (steps[list(PARTS)] >= 0).all(axis=None)
    # Steps of a rank follow each other without a hole: together they are as long as the rank's first to last task.
    for rank, of_rank in pd.concat([table, several.rename(columns={"elapsed_us": "duration_us"})]).groupby("rank_id"):
        if (table["rank_id"] == rank).any():  # collectives alone do not show steps
            wall_us = steps.loc[steps["rank_id"] == rank, "wall_us"].sum()
            assert wall_us == pytest.approx(_span_us(of_rank))
    mixed = table.sample(frac=1, random_state=random.randint(0, 99)).assign(rank_id=lambda t: t["rank_id"] + 5)
    again = device_steps(kernels=mixed, collectives=several.assign(rank_id=several["rank_id"] + 5))
    pd.testing.assert_frame_equal(again.assign(rank_id=again["rank_id"] - 5), steps, check_dtype=False)


def _span_us(tasks: pd.DataFrame) -> int:
    """From the first task of the step that ends first to the last end."""
    end = tasks["start_us"] + tasks["duration_us"]
    earliest = tasks["step"] == end.groupby(tasks["step"]).max().idxmin()
    return end.max() - tasks.loc[earliest, "start_us"].min()


def test_own_time_names_the_late_rank_and_the_part():
    table = kernels([(r, s, 1000 * s, 100 + 50 * (r == 2)) for r in range(4) for s in range(3)])
    own = own_time(device_steps(kernels=table), pd.DataFrame({"rank_id": range(4), "stage": 0})).set_index("rank_id")
    assert own["computing_excess_us"].to_dict() == {0: 0, 1: 0, 2: 50, 3: 0}


def test_receives_that_the_file_states_are_the_wait_for_a_stage_where_none_is_measured():
    # MindInsight-era step traces: 164.5 ms not overlapped, 108.1 of them without receives.
    written = pd.DataFrame(
        {"rank_id": [0], "window": 0, "step": 1, "computing_us": 13.8, "free_us": 0.0,
         "communication_not_overlapped_us": 164.5, "communication_not_overlapped_exclude_receive_us": 108.1}
    )  # fmt: skip
    row = device_steps(step_time=written).iloc[0]
    assert row["pipeline_wait_us"] == pytest.approx(164.5 - 108.1)
    assert row["transfer_us"] == pytest.approx(108.1)
    assert row["wall_us"] == pytest.approx(13.8 + 164.5)


def test_marks_of_data_waits_need_tasks_that_show_idle_time():
    marks = pd.DataFrame({"rank_id": [0], "kind": "data_wait", "start_ns": [BASE_NS + 1_400_000], "duration_us": 900.0})
    assert device_steps(kernels=TASKS, events=marks).iloc[1]["data_wait_us"] == 900
    written = pd.DataFrame(
        {"rank_id": [0], "window": 0, "step": 1, "computing_us": 10.0, "free_us": 0.0, "preparing_us": 80.0,
         "communication_not_overlapped_us": 5.0}
    )  # fmt: skip
    totals = pd.DataFrame({"rank_id": [0], "level": "dataset", "name": "Pipeline::GetNext", "total_us": 50.0})
    row = device_steps(step_time=written, host_ops=totals, events=marks).iloc[0]
    assert row["data_wait_us"] == 50  # the mean of GetNext: when the device idled is not known


def test_bubble_of_a_stage_is_the_median_over_its_ranks():
    steps = device_steps(kernels=TASKS, collectives=MOVES).assign(pipeline_wait_us=[10.0, 20.0, 60.0, 80.0])
    bubbles = stage_bubbles(steps, pd.DataFrame({"rank_id": [0, 1], "stage": [0, 1]})).set_index("stage")
    assert bubbles["pipeline_wait_us"].to_dict() == {0: 15, 1: 70}
    assert bubbles["bubble_share"].to_dict() == {
        s: bubbles["pipeline_wait_us"][s] / bubbles["wall_us"][s] for s in (0, 1)
    }
    assert bubbles["ranks"].tolist() == [1, 1]
    assert stage_bubbles(steps, pd.DataFrame({"rank_id": [], "stage": []})).empty


def test_empty_in_empty_out():
    assert device_steps().empty
    assert device_steps(kernels=kernels([]), collectives=collectives([])).empty


def test_real_pipeline_sample_sums_as_its_file(data_samples):
    import workbench as wb

    run = wb.open_run(data_samples / "pipeline_two_stages", quiet=True)
    steps = device_steps(step_time=run.table("step_time"), collectives=run.table("collectives"))
    assert steps["wall_us"].iloc[0] == pytest.approx(231290.10 + 420174.26 + 158558.00 + 206.25)
    assert len(pipeline_stages(run.table("collectives"))) == 4


def test_collectives_alone_split_the_exposed_time_of_the_file():
    written = pd.DataFrame(
        {"rank_id": [0, 1], "window": 0, "step": 1, "computing_us": [180.0, 240.0], "free_us": 0.0,
         "communication_not_overlapped_us": [120.0, 60.0], "preparing_us": 0.0}
    )  # fmt: skip
    steps = device_steps(step_time=written, collectives=MOVES)
    assert steps["late_rank_us"].tolist() == [240 - 180, 0]
    assert steps["transfer_us"].tolist() == [60, 60]
    assert steps["unknown_us"].tolist() == [0, 0]
    assert device_steps(collectives=MOVES).empty
