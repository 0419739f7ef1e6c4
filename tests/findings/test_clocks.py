"""Clocks of ranks that differ: a constant offset changes no finding; jumps as long as what is told leave it untold."""

import numpy as np
import pytest

import workbench as wb
from workbench.findings.cluster import TABLES, find_cluster_causes

JUMPS_NS = 12_000_000  # a collective of the sample takes 12 ms in the middle


@pytest.fixture(scope="module")
def tables(data_samples):
    run = wb.open_run(data_samples / "simulated_cluster", quiet=True)
    return {name: run.table(name) for name in TABLES if name in run.tables}


def on_other_clock(tables, rank, later_ns):
    """The tables with the times of a rank later: by a number, or by one for each step."""
    shifted = {}
    for name in ("kernels", "collectives"):
        table = tables[name]
        own = later_ns if np.isscalar(later_ns) else table["step"].map(later_ns)
        shifted[name] = table.assign(start_ns=table["start_ns"] + (table["rank_id"] == rank) * own)
    return tables | shifted


def told(found):
    return [(f.cause, f.culprit, f.severity, f.confidence, round(f.saves_us_per_step)) for f in found]


@pytest.mark.parametrize("later_ns", [3_000_000, -250_000_000])
def test_a_clock_that_is_ahead_or_behind_changes_no_finding(tables, later_ns):
    assert told(find_cluster_causes(on_other_clock(tables, 1, later_ns))) == told(find_cluster_causes(tables))


def test_a_clock_that_jumps_leaves_gains_estimated_and_says_so(tables):
    steps = sorted(tables["kernels"]["step"].unique())
    jumps = {step: JUMPS_NS * (-1) ** i * (1 + i) for i, step in enumerate(steps)}
    found = find_cluster_causes(on_other_clock(tables, 1, jumps))
    assert {(f.cause, f.culprit.rank, f.culprit.link) for f in found} == {
        ("slow_rank", 2, None),
        ("slow_link", None, "0-1"),
    }  # told from durations, which need no common clock
    for finding in found:
        facts = " ".join(f"{e.fact} {e.value}" for e in finding.evidence)
        assert "clocks of ranks 1 cannot be compared" in facts
        assert "estimated, not replayed The clock of rank 1 moves by" in facts
        assert "gain once all other causes are gone" not in facts
