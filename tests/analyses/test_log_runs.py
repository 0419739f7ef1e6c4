import numpy as np
import pandas as pd
import pytest

from workbench.analyses.log_runs import logging_interval, merged_steps, name_of_run, run_of_source
from workbench.tables import EVALS, TRAINING_STEPS


def steps(source, numbers, *, rank_id=0, time_ns=None, **columns):
    frame = pd.DataFrame({"rank_id": rank_id, "step": list(numbers), "source": source}).assign(**columns)
    if time_ns is not None:
        frame["time_ns"] = time_ns + 10**9 * np.arange(len(frame))
    return TRAINING_STEPS.check(frame)


def test_two_logs_that_measured_the_same_steps_differently_are_two_runs():
    first = steps("b.log", range(1, 11), loss=np.linspace(3, 2, 10), step_us=1e6, time_ns=5 * 10**12)
    second = steps("a.log", range(1, 11), loss=np.linspace(3, 2, 10), step_us=2e6, time_ns=9 * 10**12)
    assert run_of_source(pd.concat([second, first])).to_dict() == {"b.log": 0, "a.log": 1}


def test_words_tell_the_earlier_run_also_against_the_clock():
    before = steps("train_before.log", range(1, 11), step_us=1e6, time_ns=9 * 10**12)
    after = steps("train_after.log", range(1, 11), step_us=2e6, time_ns=5 * 10**12)
    assert run_of_source(pd.concat([before, after])).to_dict() == {"train_before.log": 0, "train_after.log": 1}


def test_ranks_of_one_job_and_a_csv_of_its_steps_are_one_run():
    parts = [
        steps("logs/worker_0.log", range(1, 11), loss=2.0, time_ns=10**12),
        steps("logs/worker_1.log", range(1, 11), rank_id=1, loss=2.1, time_ns=10**12),
        steps("steps.csv", range(1, 11), step_us=1e6),
    ]
    assert set(run_of_source(pd.concat(parts))) == {0}


def test_a_resumed_job_repeats_few_steps_and_is_one_run():
    parts = [
        steps("worker_0.log", range(1, 101), loss=np.linspace(3, 2, 100), time_ns=10**12),
        steps("worker_0_resumed.log", range(91, 191), loss=np.linspace(2.2, 1, 100), time_ns=10**13),
    ]
    assert set(run_of_source(pd.concat(parts))) == {0}


def test_folders_of_two_jobs_stay_together():
    parts = [
        steps(f"{job}/worker_{rank}.log", range(1, 11), rank_id=rank, step_us=us, time_ns=start)
        for job, us, start in (("one_node", 1e6, 10**12), ("two_nodes", 3e6, 10**13))
        for rank in (0, 1)
    ]
    found = run_of_source(pd.concat(parts))
    assert [found[f"one_node/worker_{r}.log"] for r in (0, 1)] == [0, 0]
    assert [found[f"two_nodes/worker_{r}.log"] for r in (0, 1)] == [1, 1]


def test_files_that_complete_each_other_become_one_row_per_step():
    log = steps("worker_0.log", [1, 2, 3], loss=[3.0, 2.5, 2.0])
    csv = steps("steps.csv", [2, 3, 4], step_us=[5.0, 6.0, 7.0])
    merged = merged_steps(pd.concat([log, csv], ignore_index=True))
    assert merged.step.tolist() == [1, 2, 3, 4]
    assert merged.loss.fillna(-1).tolist() == [3.0, 2.5, 2.0, -1]
    assert merged.step_us.fillna(-1).tolist() == [-1, 5.0, 6.0, 7.0]
    assert TRAINING_STEPS.check(merged).equals(merged)


def test_a_restart_inside_one_file_is_not_merged():
    log = steps("worker_0.log", [1, 2, 2], loss=[3.0, 2.5, 2.4])
    csv = steps("steps.csv", [1, 2], step_us=[5.0, 6.0])
    both = pd.concat([log, csv], ignore_index=True)
    assert merged_steps(both).equals(both)


def evals(own, others):
    rows = [("eval", s) for s in own] + [("held_out", s) for s in others]
    return EVALS.check(pd.DataFrame(rows, columns=["subset", "step"]).assign(kind="imported", metric="loss", value=1.0))


@pytest.mark.parametrize(
    ("own", "others", "interval"),
    [([20, 40], [0, 200, 400], 10), ([20, 40], [0, 200, 300], 1), ([20], [0, 200, 400], 1), ([5, 10], [125, 250], 25)],
)
def test_the_interval_of_a_log_without_step_numbers(own, others, interval):
    log = steps("trainer.log", range(1, 41), loss=1.0)
    assert logging_interval(log, evals(own, others)) == interval
    assert logging_interval(log, None) == 1


def test_files_are_placed_by_the_words_that_only_one_run_has():
    runs = {0: ["train_before.log"], 1: ["train_after.log"]}
    names = ["op_statistic_before.csv", "op_statistic_after.csv", "train.csv"]
    assert name_of_run(names, runs) == {"op_statistic_before.csv": 0, "op_statistic_after.csv": 1}
    assert name_of_run(["v1/op.csv"], {0: ["v1/a.log"], 1: ["v2/a.log"]}) == {"v1/op.csv": 0}


def test_empty_in_empty_out():
    assert run_of_source(TRAINING_STEPS.empty()).empty
    assert merged_steps(TRAINING_STEPS.empty()).empty
