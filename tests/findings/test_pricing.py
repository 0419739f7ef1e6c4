import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.errors import UnknownContentError
from workbench.findings.finding import Culprit, Finding
from workbench.findings.pricing import doubted, priced

STAGES = pd.DataFrame({"rank_id": range(4), "stage": 0})


def finding(cause, **culprit) -> Finding:
    return Finding(cause=cause, playbook="T4", severity="warning", confidence="high", title="", fix="", source="",
                   culprit=Culprit(**culprit), saves_us_per_step=1.0)  # fmt: skip


@pytest.fixture(scope="module")
def tables(data_samples):
    run = wb.open_run(data_samples / "simulated_cluster", quiet=True)
    return {name: run.table(name) for name in ("kernels", "collectives", "links", "step_time")}


def test_the_gain_is_the_replayed_one(tables):
    found = priced([finding("slow_rank", rank=2), finding("slow_link", link="0-1")], tables, STAGES, wall_us=57_000)
    # What the generator measured by simulating the same cluster without the fault: 7.2 and 15.8 ms per step.
    assert found[0].saves_us_per_step == pytest.approx(7_200, rel=0.05)
    assert found[1].saves_us_per_step == pytest.approx(15_800, rel=0.05)
    assert found[0].saves_interval_us[0] <= found[0].saves_us_per_step <= found[0].saves_interval_us[1]
    assert found[1].severity == "critical"  # 15.8 of 57 ms


def test_a_gain_too_small_to_notice_is_for_information(tables):
    assert priced([finding("slow_rank", rank=0)], tables, STAGES, wall_us=57_000)[0].severity == "info"


def test_what_cannot_be_replayed_keeps_its_estimate(tables):
    kept = [finding("slow_link", link="0-1 in group 7"), finding("slow_link", link="0-1")]
    without_links = {name: table for name, table in tables.items() if name != "links"}
    assert priced(kept, without_links, STAGES, wall_us=57_000) == kept
    slow = [finding("slow_rank", rank=2)]
    assert priced(slow, {"collectives": tables["collectives"]}, STAGES, wall_us=57_000) == slow
    without_steps = tables | {"kernels": tables["kernels"].assign(step=pd.NA)}
    found = priced(slow, without_steps, STAGES, wall_us=57_000)
    assert [f.saves_us_per_step for f in found] == [1.0]
    assert "No kernel has a step" in found[0].evidence[-1].value


def shifted(table, rank, us):
    """Times of a rank later by `us`: a number, or one per row."""
    later = (table["rank_id"] == rank) * us * 1000
    return table.assign(start_ns=table["start_ns"] + later.round().astype("int64"))


def test_a_clock_that_is_ahead_changes_no_gain(tables):
    skewed = tables | {n: shifted(tables[n], 2, 7_000.0) for n in ("kernels", "collectives")}
    straight, found = (priced([finding("slow_rank", rank=2)], t, STAGES, wall_us=57_000)[0] for t in (tables, skewed))
    assert found.saves_us_per_step == pytest.approx(straight.saves_us_per_step, abs=1)


def test_a_clock_that_jumps_leaves_the_estimate_and_says_so(tables):
    jumps = np.random.default_rng(1).normal(0, 20_000, len(tables["collectives"]))
    jumping = tables | {"collectives": shifted(tables["collectives"], 2, jumps)}
    found = priced([finding("slow_rank", rank=2)], jumping, STAGES, wall_us=57_000)[0]
    assert found.saves_us_per_step == 1.0
    assert "The clock of rank 2 moves by" in found.evidence[-1].value


def test_what_compares_starts_is_withheld_where_clocks_jump():
    unclear = pd.DataFrame({"rank_id": [2], "offset_us": [0.0], "spread_us": [900.0], "limit_us": [100.0]})
    late, slow = finding("rank_late", rank=1), finding("slow_rank", rank=2)
    doubtful, sure = doubted([late, slow], unclear)
    assert (doubtful.confidence, doubtful.culprit.rank) == ("low", None)
    assert (sure.confidence, sure.culprit.rank) == ("high", 2)
    assert all("clocks of ranks 2" in f.evidence[-1].fact for f in (doubtful, sure))
    assert doubted([late], unclear.iloc[:0]) == [late]


def test_what_the_replay_refuses_is_said_and_spoils_no_other_gain(tables):
    mixed = [finding("pipeline_bubble"), finding("slow_rank", rank=2), finding("slow_link", link="0-0")]
    found = priced(mixed, tables, STAGES, wall_us=57_000)
    assert [f.saves_us_per_step for f in found] == [1.0, pytest.approx(7_200, rel=0.05), 1.0]
    assert "no pipeline" in found[0].evidence[-1].value
    assert "no link 0-0" in found[2].evidence[-1].value


def test_steps_that_cannot_be_put_in_order_leave_the_estimates_and_say_so(tables, monkeypatch):
    def circle(*_):
        raise UnknownContentError("2 operations of the step need each other in a circle.", fix="give complete steps")

    monkeypatch.setattr("workbench.findings.pricing.what_if", circle)
    found = priced([finding("slow_rank", rank=2), finding("stall_steps")], tables, STAGES, wall_us=57_000)
    assert [f.saves_us_per_step for f in found] == [1.0, 1.0]
    assert "in a circle" in found[0].evidence[-1].value
