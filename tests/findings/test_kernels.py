import pandas as pd
import pytest

from tests.analyses.device_tables import kernels
from tests.analyses.test_kernels import on_cpu
from tests.analyses.test_operator_work import chain
from workbench.analyses.device_steps import device_steps
from workbench.analyses.kernels import device_ratios, host_launches, kernel_totals, operator_ratios, short_kernels
from workbench.analyses.operator_work import fusion_candidates, rank_work
from workbench.findings.cluster import find_cluster_causes
from workbench.findings.kernels import find_more_work, find_small_ops, find_small_ops_on_host

LONGER = [
    (r, s, 10_000 * s, 2000 if r == 3 else 1000, "MatMul", "16,8" if r == 3 else "8,8")
    for r in range(4)
    for s in range(1, 9)
]


def test_a_storm_of_small_operators_on_the_host():
    (found,) = find_small_ops_on_host(host_launches(on_cpu(400)))
    assert (found.cause, found.culprit.op, found.severity) == ("small_ops", "Tanh", "critical")
    assert found.saves_us_per_step == pytest.approx(4000)
    assert find_small_ops_on_host(host_launches(on_cpu(50))) == []  # half a millisecond


def test_more_work_is_told_from_a_slow_device():
    (found,) = find_more_work(rank_work(kernels(LONGER)), wall_us=10_000)
    assert (found.cause, found.sub_cause, found.culprit.rank, found.culprit.op) == (
        "slow_rank",
        "more_work",
        3,
        "MatMul",
    )
    assert found.saves_us_per_step == 1000
    assert find_more_work(rank_work(kernels(LONGER)), wall_us=10**9) == []  # too cheap to matter
    # Other shapes are no comparison: neither a slow device nor a slow operator.
    ratios = operator_ratios(kernels(LONGER))
    assert (device_ratios(ratios)["ratio"] == 1).all()
    causes = {(f.cause, f.sub_cause) for f in find_cluster_causes({"kernels": kernels(LONGER)})}
    assert causes == {("slow_rank", "more_work")}


def test_small_operators_come_with_what_fusing_them_saves():
    rows = [
        (s, f"net/mask/{k}-op{n}", k, 5000 * s + 30 * n, 5) for s in (1, 2) for n, k in enumerate(("Mul", "Add") * 60)
    ]
    table = chain(rows)
    steps, candidates = device_steps(kernels=table), fusion_candidates(table)
    (found,) = find_small_ops(short_kernels(table), steps, kernel_totals(table), candidates)
    facts = {e.fact: e for e in found.evidence}
    assert facts["launches per step saved by fusing adjacent elementwise operators"].value == 119
    largest = facts["time of the largest such runs, with gaps"]
    assert largest.value == 119 * 30 + 5
    assert largest.where.startswith("net/mask: Mul > Add")
    assert facts["launch gaps per step"].value == pytest.approx(119 * 25, rel=0.3)
    assert find_small_ops(short_kernels(table), steps, kernel_totals(table), pd.DataFrame())[0].cause == "small_ops"
