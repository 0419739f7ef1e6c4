import numpy as np
import pytest

import workbench as wb
from tests.log_text import write_logs
from tests.rendered_logs import mindformers, notify_wait, series, slow_data, warning


def job(folder, *, ranks=8, silent=(), words="", first=50, limit=1800.0, spread=5.0, seed=0, reports=True, settings=""):
    """Logs of a job that stops after step `first` + 2; `silent` ranks write `words` instead of a time-out."""
    random = np.random.default_rng(seed)
    files = {"settings.csv": settings} if settings else {}
    for rank in range(ranks):
        steps = series(range(first, first + 3), ms=3000.0, seconds=np.arange(3) * 3.0 + random.uniform(0, 0.05))
        files[f"worker_{rank}.log"] = mindformers(steps, planned=900) + (
            words if rank in silent
            else notify_wait(6 + limit + random.uniform(0, spread), (rank + 1) % ranks) if reports else ""
        )  # fmt: skip
    return wb.diagnose(write_logs(folder, files))


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


@pytest.mark.parametrize(
    ("ranks", "culprit", "words", "activity"),
    [
        (8, 3, slow_data(40), "data"),
        (16, 15, warning(50, "Device(id:7) memory isn't enough and alloc failed, kernel name: k, alloc size: 5B"),
         "out_of_memory"),
        (4, 0, "ValueError: broken sample\n", "crashed"),
        (32, 20, "", None),
    ],
)  # fmt: skip
def test_the_silent_rank_is_the_culprit(tmp_path, ranks, culprit, words, activity):
    found = job(tmp_path, ranks=ranks, silent=[culprit], words=words, seed=ranks).causes[0]
    assert (found.cause, found.culprit.rank, found.confidence) == ("rank_missing_collective", culprit, "high")
    assert found.sub_cause == activity
    assert (found.steps.first, fact(found, "ranks that report")) == (52, ranks - 1)
    assert fact(found, "time between") < 6
    assert fact(found, "limit after") == 1800.0
    assert {r.cause for r in found.rules_out} == {"network_fault", "raise_timeout_only"}
    if activity == "data":
        assert fact(found, "last activity of rank 3") == pytest.approx(34, abs=0.1)  # 40 s, its last step was at 6 s


def test_slow_data_of_the_silent_rank_is_no_cause_of_its_own(tmp_path):
    found = job(tmp_path, silent=[2], words=slow_data(40) + slow_data(70))
    assert [f.cause for f in found.causes if f.severity != "info"] == ["rank_missing_collective"]


def test_the_limit_of_the_settings_counts(tmp_path):
    settings = "name,value\nHCCL_EXEC_TIMEOUT_s,600\nranks,8\n"
    found = job(tmp_path, silent=[1], limit=600, settings=settings).causes[0]
    assert fact(found, "limit after") == 600.0


def test_a_rank_without_a_log_is_suspected_less_surely(tmp_path):
    found = job(tmp_path, ranks=7, settings="name,value\nworld_size,8\n").causes[0]
    assert (found.culprit.rank, found.confidence) == (7, "medium")
    assert any("worker_7.log" in e.fact for e in found.evidence)


def test_all_ranks_at_once_names_nobody(tmp_path):
    found = job(tmp_path).causes[0]
    assert (found.cause, found.confidence, found.culprit.rank) == ("rank_missing_collective", "low", None)
    assert "ASCEND_PROCESS_LOG_PATH" in found.fix


def test_all_ranks_far_apart_names_the_late_one(tmp_path):
    files = {}
    for rank, late in enumerate((0, 3, 900, 5)):
        files[f"worker_{rank}.log"] = mindformers(series([1, 2, 3]), planned=9) + notify_wait(1803 + late, rank ^ 1)
    found = wb.diagnose(write_logs(tmp_path, files)).causes[0]
    assert (found.cause, found.culprit.rank, found.confidence) == ("rank_late", 2, "medium")
    assert "2,700 s" in found.fix  # 1800 s and 900 s


def test_of_several_silent_ranks_the_one_that_stands_out(tmp_path):
    files = {}
    for rank in range(8):
        steps = mindformers(series([1, 2, 3]), planned=9)
        silent = slow_data(60) if rank == 6 else ""
        files[f"worker_{rank}.log"] = steps + (silent if rank in (5, 6, 7) else notify_wait(1803, (rank + 1) % 8))
    found = wb.diagnose(write_logs(tmp_path, files)).causes[0]
    assert (found.culprit.rank, found.sub_cause, found.confidence) == (6, "data", "high")
    assert fact(found, "silent ranks") == "5, 6, 7"


def test_few_reports_tell_little(tmp_path):
    files = {f"worker_{r}.log": mindformers(series([1, 2, 3]), planned=9) for r in range(8)}
    files["worker_2.log"] += notify_wait(1803, 3)
    found = wb.diagnose(write_logs(tmp_path, files)).causes[0]
    assert found.culprit.rank == 3  # of the silent ranks the only one that a rank names
    assert found.confidence == "medium"


def test_ranks_of_nccl_are_read_alike(tmp_path):
    watchdog = (
        "[E ProcessGroupNCCL.cpp:523] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=60, "
        "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600{r}00 milliseconds before timing out.\n"
    )
    files = {
        f"worker_{r}.log": mindformers(series([1, 2, 3]), planned=9) + (watchdog.format(r=r) if r != 1 else "")
        for r in range(4)
    }
    found = wb.diagnose(write_logs(tmp_path, files)).causes[0]
    assert (found.cause, found.culprit.rank) == ("rank_missing_collective", 1)
    assert fact(found, "limit after") == 600.0


def test_a_healthy_job_and_a_single_rank_have_no_such_cause(tmp_path):
    assert job(tmp_path / "healthy", reports=False).causes == ()
    assert all(f.cause != "rank_missing_collective" for f in job(tmp_path / "one", ranks=1).causes)
