"""Findings on device tables depend neither on the order of rows nor on how ranks are numbered."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.findings.cluster import TABLES, find_cluster_causes

RANKS = range(4)


@pytest.fixture(scope="module")
def tables(data_samples):
    run = wb.open_run(data_samples / "simulated_cluster", quiet=True)
    return {name: run.table(name) for name in TABLES if name in run.tables}


def renumbered(table, number, seed):
    """Rows in another order, ranks by other numbers. Each group holds all ranks: numbers in a group are ranks."""
    columns = [c for c in ("rank_id", "src_rank", "dst_rank") if c in table]
    new = {c: table[c].map(number).astype(table[c].dtype) for c in columns}
    return table.assign(**new).sample(frac=1, random_state=seed)


def told(found, number):
    """What each finding says, ranks by new number."""
    rows = []
    for finding in found:
        who = finding.culprit
        link = who.link and "-".join(str(number[int(end)]) for end in who.link.split("-"))
        rank = None if who.rank is None else number[who.rank]
        rows.append(
            (
                finding.cause,
                -1 if rank is None else rank,
                link or "",
                finding.severity,
                round(finding.saves_us_per_step),
            )
        )
    return rows


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(list(RANKS)), seed=st.integers(0, 99))
def test_other_numbers_give_the_same_causes_at_the_renumbered_places(tables, order, seed):
    number = dict(zip(RANKS, order, strict=True))
    straight = find_cluster_causes(tables)
    assert {f.cause for f in straight} == {"slow_rank", "slow_link"}
    found = find_cluster_causes({name: renumbered(table, number, seed) for name, table in tables.items()})
    assert sorted(told(found, {r: r for r in RANKS})) == sorted(told(straight, number))
