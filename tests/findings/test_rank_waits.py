import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.log_text import write_logs
from workbench.findings.rank_waits import find_rank_that_others_wait_for
from workbench.tables import STEP_TIME


def job(ranks=16, *, late=None, part="free_us", late_us=0.0, step_us=1e6, steps=3, noise=0.01, seed=0, stages=1):
    """Steps of ranks that compute, idle and wait; `late` has `late_us` more of `part` and waits that much less."""
    random = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        for rank in range(ranks):
            own = {"computing_us": 0.5 * step_us, "free_us": 0.02 * step_us}
            own = {k: v * random.normal(1, noise) for k, v in own.items()}
            own["computing_us"] *= 1 + 0.2 * (rank * stages // ranks)
            if rank == late:
                own[part] += late_us
            wait = 1.6 * step_us + late_us - sum(own.values()) if late is not None else 0.8 * step_us
            rows.append({"rank_id": rank, "window": 0, "step": step, **own,
                         "communication_not_overlapped_us": wait * random.normal(1, noise / 10)})  # fmt: skip
    return STEP_TIME.check(pd.DataFrame(rows))


def fact(finding, start):
    return next(e.value for e in finding.evidence if e.fact.startswith(start))


@pytest.mark.parametrize("part", ["free_us", "computing_us"])
@pytest.mark.parametrize(("ranks", "late", "late_us"), [(16, 12, 5e5), (8, 0, 1e5), (64, 63, 2e6)])
def test_the_rank_that_waits_least_is_late(ranks, late, late_us, part):
    (found,) = find_rank_that_others_wait_for(job(ranks, late=late, late_us=late_us, part=part, seed=ranks))
    assert (found.cause, found.culprit.rank, found.confidence) == ("slow_rank", late, "high")
    assert found.saves_us_per_step == pytest.approx(late_us, rel=0.1)
    assert fact(found, "wait of the others for it") == pytest.approx(late_us / 1e3, rel=0.15)
    own = (20.0 + late_us / 1e3) if part == "free_us" else 20.0
    assert fact(found, f"free time of rank {late}") == pytest.approx(own, rel=0.05)
    assert "slow_link" in {r.cause for r in found.rules_out}


def test_even_computing_rules_out_uneven_work():
    (idle,) = find_rank_that_others_wait_for(job(8, late=2, late_us=5e5, noise=0.003))
    assert {r.cause for r in idle.rules_out} == {"slow_link", "compute_imbalance"}
    (busy,) = find_rank_that_others_wait_for(job(8, late=2, late_us=5e5, noise=0.003, part="computing_us"))
    assert {r.cause for r in busy.rules_out} == {"slow_link"}


@pytest.mark.parametrize("seed", range(5))
def test_healthy_jobs_have_no_late_rank(seed):
    assert find_rank_that_others_wait_for(job(seed=seed)) == []
    assert find_rank_that_others_wait_for(job(seed=seed, noise=0.05)) == []
    assert find_rank_that_others_wait_for(job(seed=seed, stages=4)) == []
    assert find_rank_that_others_wait_for(job(3, late=1, late_us=5e5, seed=seed)) == []


def test_a_rank_that_idles_although_nobody_waits_for_it_is_not_late():
    idle = job()
    idle.loc[idle.rank_id == 3, "free_us"] += 5e5  # its communication is as long as the others'
    assert find_rank_that_others_wait_for(idle) == []


HEAD = (
    "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing\n"
)


def cluster_csv(table):
    wait = table["communication_not_overlapped_us"]
    stage = table["computing_us"] + table["free_us"] + wait
    return HEAD + "".join(
        f"{r.step},rank,{r.rank_id},{r.computing_us},{w},0.0,{w},{r.free_us},{s},0.0,{w},1.0\n"
        for r, w, s in zip(table.itertuples(), wait, stage, strict=True)
    )


def memory_csv(ranks, full=None):
    rows = [
        f"{r},2,40000,{55000 if r == full else 44000},{52000 if r == full else 42000},"
        f"{55100 if r == full else 44500},{30 if r == full else 0}\n"
        for r in range(ranks)
    ]
    return "rank,step,allocated_mb,reserved_mb,max_allocated_mb,max_reserved_mb,alloc_retries\n" + "".join(rows)


@pytest.mark.parametrize(("ranks", "late"), [(8, 5), (32, 20)])
def test_a_pool_in_fragments_is_the_reason_where_it_is_the_rank(tmp_path, ranks, late):
    steps = cluster_csv(job(ranks, late=late, late_us=6e5))
    files = {"cluster_step_trace_time.csv": steps, "memory.csv": memory_csv(ranks, late)}
    found = [f for f in wb.diagnose(write_logs(tmp_path / "same", files)).causes if f.severity != "info"]
    assert [(f.cause, f.sub_cause, f.culprit.rank, f.confidence) for f in found] == [
        ("slow_rank", "fragmentation", late, "high")
    ]
    assert "enable_vmm" in found[0].fix
    files["memory.csv"] = memory_csv(ranks)
    found = [f for f in wb.diagnose(write_logs(tmp_path / "without", files)).causes if f.severity != "info"]
    assert [(f.cause, f.culprit.rank) for f in found] == [("slow_rank", late)]
    assert found[0].sub_cause != "fragmentation"


def several_late(ranks, late, late_us):
    """All ranks of `late` compute `late_us` longer; all end their steps of 1.6 s together."""
    steps = job(ranks, noise=0.002)
    computing = steps["computing_us"] + late_us * steps["rank_id"].isin(late)
    wait = 1.6e6 - computing - steps["free_us"]
    return steps.assign(computing_us=computing, communication_not_overlapped_us=wait)


def test_half_of_the_ranks_is_no_single_slow_rank():
    (group,) = find_rank_that_others_wait_for(several_late(8, range(4, 8), 8e4))  # a last stage with the head
    assert (group.severity, group.confidence, group.culprit.rank) == ("info", "low", None)
    assert "Ranks 4, 5, 6, 7" in group.title
    (pair,) = find_rank_that_others_wait_for(several_late(16, (4, 9), 8e4))
    assert (pair.confidence, pair.culprit.rank in (4, 9)) == ("high", True)
    assert "the other 14 ranks wait" in pair.title
