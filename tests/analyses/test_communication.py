import pandas as pd
import pytest

from tests.analyses.device_tables import collectives, kernels
from workbench.analyses.communication import (
    collective_overlap,
    latency_share,
    link_bandwidths,
    link_summary,
    micro_batches,
)

MB = 1_000_000


def links(rows) -> pd.DataFrame:
    """Rows of (rank, step, src, dst, size_bytes, transit_us)."""
    columns = ["rank_id", "step", "src_rank", "dst_rank", "size_bytes", "transit_us"]
    return pd.DataFrame(rows, columns=columns).assign(
        window=0, op_type="allreduce", statistic="total", group_id="g", is_global=False, transport="HCCS",
    )  # fmt: skip


# Ranks 4 and 6 are numbers 0 and 1 of the group; 0 -> 1 takes 40 us for 4 MB (100 GB/s), 1 -> 0 takes 400 (10 GB/s).
LINKS = [(4, s, 0, 1, 4 * MB, 40) for s in (1, 2, 3)] + [(6, s, 1, 0, 4 * MB, 400) for s in (1, 2, 3)]
GROUP = collectives([(r, 1, "a", "g", 0, 10) for r in (4, 6)])


def test_numbers_in_the_group_become_ranks_and_bandwidth_is_size_over_time():
    found = link_summary(link_bandwidths(links(LINKS), GROUP)).set_index("link")
    assert found.loc["6-4", "bandwidth_bytes_per_s"] == pytest.approx(4 * MB / 400e-6)
    assert found.loc["4-6", "bandwidth_bytes_per_s"] == pytest.approx(4 * MB / 40e-6)
    assert found["is_global"].all()
    assert found.loc["6-4", "ratio"] == pytest.approx((1e11 + 1e10) / 2 / 1e10)  # median of the two over own
    assert found.index[0] == "6-4"  # the slowest first


def test_numbers_stay_numbers_where_ranks_of_the_group_are_unknown():
    found = link_bandwidths(links([(4, 1, 0, 5, 4 * MB, 40)]), GROUP)
    assert found[["src_rank", "dst_rank"]].to_numpy().tolist() == [[0, 5]]
    assert not found["is_global"].any()


def test_transfers_without_a_group_keep_the_numbers_that_the_file_gives():
    rows = links([(0, 1, 1, 0, 4 * MB, 40)]).assign(
        group_id=pd.array([pd.NA], "string"), src_rank=pd.array([1], "Int64"), dst_rank=pd.array([0], "Int64")
    )
    nameless = GROUP.assign(group_id=pd.array([pd.NA, pd.NA], "string"))
    found = link_bandwidths(rows, nameless)
    assert found[["src_rank", "dst_rank"]].to_numpy().tolist() == [[1, 0]]
    assert not found["is_global"].any()


def test_one_stalled_step_is_not_a_slow_link():
    rows = [(4, s, 0, 1, 4 * MB, 4000 if s == 2 else 40) for s in range(5)] + [
        (6, s, 1, 0, 4 * MB, 40) for s in range(5)
    ]
    assert link_summary(link_bandwidths(links(rows), GROUP))["ratio"].tolist() == [1.0, 1.0]


def test_small_transfers_and_transfers_inside_the_card_are_left_out():
    rows = links([(4, 1, 0, 1, 1000, 40), (4, 1, 0, 0, 4 * MB, 40)])
    assert link_bandwidths(rows, GROUP).empty


def test_latency_share_by_hand():
    # Ten operations of 130 us, of which a 4-byte one takes 100: 1000 of 1300 us are fixed cost.
    rows = [(r, 1, f"a{n}", "g", 200 * n, 130) for r in (0, 1) for n in range(10)]
    rows += [(r, 1, "norm", "w", 5000, 100, "allreduce", 4) for r in (0, 1)]
    found = latency_share(collectives(rows)).iloc[0]
    assert found["per_step"] == 10
    assert found["alpha_us"] == 100
    assert found["transfer_us_per_step"] == 1300
    assert found["share"] == pytest.approx(1000 / 1300)


def test_overlap_is_what_runs_while_computing():
    tasks = kernels([(0, 1, 0, 100)])
    moves = collectives([(0, 1, "a", "g", 80, 60), (0, 1, "b", "g", 150, 50)])
    found = collective_overlap(tasks, moves).iloc[0]
    assert (found["operations"], found["transfer_us"], found["overlapped_us"]) == (2, 110, 20)


def test_micro_batches_are_the_receives_of_a_step():
    rows = [(1, s, f"r{n}", "pp", 10 * n, 5, "receive") for s in (1, 2) for n in range(4)]
    assert micro_batches(collectives(rows)) == 4
    assert micro_batches(GROUP) is None


def test_micro_batches_of_batched_sends_and_receives():
    # 1F1B over 3 stages, 4 micro-batches: link 0-1 has 2 sends of the warm-up, 2 pairs, 2 receives; link 1-2 1 + 3 + 1.
    rows = [(r, 1, f"b{n}", "p01", 10 * n, 5, "batchsendrecv") for r in (0, 1) for n in range(4 + 2)]
    rows += [(r, 1, f"c{n}", "p12", 10 * n, 5, "batchsendrecv") for r in (1, 2) for n in range(4 + 1)]
    assert micro_batches(collectives(rows).assign(is_p2p=True)) == 4
    assert micro_batches(collectives(rows[:1]).assign(is_p2p=True)) is None  # one rank alone shows no stages
