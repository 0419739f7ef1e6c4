import pandas as pd
import pytest

from tests.analyses.device_tables import collectives
from workbench.analyses.collective_waits import (
    clock_offsets,
    collective_waits,
    group_members,
    late_rank_losses,
    pipeline_stages,
    unclear_clocks,
)

# Rank 1 starts 30 us after rank 0 and 20 after rank 2; all end at 150.
ONE = [(0, 1, "a", "g", 100, 50), (1, 1, "a", "g", 130, 20), (2, 1, "a", "g", 110, 40)]


def test_the_late_rank_waits_least_and_is_named():
    waits = collective_waits(collectives(ONE)).set_index("rank_id")
    assert waits["wait_us"].to_dict() == {0: 30, 1: 0, 2: 20}
    assert waits["transfer_us"].to_dict() == {0: 20, 1: 20, 2: 20}
    assert set(waits["last_rank"]) == {1}
    assert waits["late_us"].to_dict() == {0: -10, 1: 20, 2: 0}  # median start: 110


def test_a_send_keeps_the_wait_of_its_file():
    rows = collectives([(0, 1, "s", "p", 0, 10, "send"), (1, 1, "s", "p", 4, 6, "receive")]).assign(wait_us=[7.0, 2.0])
    waits = collective_waits(rows)
    assert waits["wait_us"].tolist() == [7.0, 2.0]
    assert waits["last_rank"].isna().all()


def test_a_batch_of_sends_and_receives_moves_once_both_ends_are_there():
    # The file says that nobody waited; the ends are equal, so rank 0 waited for rank 1 from 0 to 70.
    rows = [(0, 1, "b", "p", 0, 75, "batchsendrecv"), (1, 1, "b", "p", 70, 5, "batchsendrecv")]
    waits = collective_waits(collectives(rows).assign(is_p2p=True, wait_us=0.0))
    assert waits["wait_us"].tolist() == [70, 0]
    assert waits["transfer_us"].tolist() == [5, 5]


def test_operations_without_a_group_are_not_matched_over_ranks():
    rows = collectives([(0, 1, "a", "g", 0, 10), (4, 1, "a", "g", 5, 10)])
    waits = collective_waits(rows.assign(group_id=pd.array([pd.NA] * 2, "string"), wait_us=[1.0, 2.0]))
    assert waits["wait_us"].tolist() == [1.0, 2.0]
    assert waits["last_rank"].isna().all()
    assert clock_offsets(rows.assign(group_id=pd.array([pd.NA] * 2, "string")))["operations"].tolist() == [0, 0]


def test_a_rank_alone_is_not_called_late():
    waits = collective_waits(collectives(ONE[:1]))
    assert waits["wait_us"].tolist() == [0.0]
    assert waits["last_rank"].isna().all()


def test_a_shifted_clock_changes_neither_waits_nor_culprit():
    shifted = [(r, s, n, g, start + 5000 * (r == 2), length) for r, s, n, g, start, length in ONE]
    offsets = clock_offsets(collectives(shifted)).set_index("rank_id")
    assert offsets["offset_us"].to_dict() == {0: 0.0, 1: 0.0, 2: 5000.0}
    assert offsets["spread_us"].tolist() == [0.0, 0.0, 0.0]
    waits = collective_waits(collectives(shifted)).set_index("rank_id")
    assert waits["wait_us"].to_dict() == {0: 30, 1: 0, 2: 20}


def test_a_clock_that_jumps_names_nobody_and_leaves_the_waits_of_the_file():
    jumps = [0, 40, -35, 20, -50, 45]  # of rank 2, in us: each as long as the operation
    rows = [
        (rank, step, "a", "g", 1000 * step + at + jump * (rank == 2), 100 - at)
        for step, jump in enumerate(jumps)
        for rank, at in ((0, 0), (1, 30), (2, 10))
    ]
    table = collectives(rows).assign(wait_us=7.0)
    unclear = unclear_clocks(table)
    assert unclear["rank_id"].tolist() == [2]
    assert unclear["limit_us"].tolist() == [9.0]  # of 70, 90 and 100 us the middle of the time lies in one of 90
    waits = collective_waits(table)
    assert waits["last_rank"].isna().all()
    assert set(waits["wait_us"]) == {7.0}
    steady = collectives(ONE)
    assert unclear_clocks(steady).empty


def test_order_of_rows_is_irrelevant():
    table = collectives(ONE)
    straight = collective_waits(table).sort_values("rank_id", ignore_index=True)
    mixed = collective_waits(table.iloc[::-1]).sort_values("rank_id", ignore_index=True)
    assert straight["wait_us"].tolist() == mixed["wait_us"].tolist()


def test_stages_follow_sends_and_shared_collectives():
    table = collectives(
        [
            *((r, 1, "d0", "dp_0", 0, 1) for r in (0, 1)),
            *((r, 1, "d1", "dp_1", 0, 1) for r in (2, 3)),
            *((r, 1, "w", "world", 5, 1) for r in range(4)),
            (0, 1, "p", "pp_0", 2, 1, "send"),
            (2, 1, "p", "pp_0", 2, 1, "receive"),
            (1, 1, "q", "pp_1", 2, 1, "send"),
            (3, 1, "q", "pp_1", 2, 1, "receive"),
        ]
    )
    assert pipeline_stages(table)["stage"].tolist() == [0, 0, 1, 1]
    assert group_members(table)["pp_1"] == [1, 3]


@pytest.mark.parametrize("function", [collective_waits, clock_offsets, pipeline_stages, unclear_clocks])
def test_empty_in_empty_out(function):
    assert function(collectives([])).empty


def test_the_late_rank_is_charged_with_the_median_wait_of_the_others():
    losses = late_rank_losses(collective_waits(collectives(ONE))).set_index("rank_id")
    assert losses["lost_us_per_step"].to_dict() == {1: 25, 0: 0, 2: 0}  # median of 30 and 20
    assert losses["last"].to_dict() == {1: 1, 0: 0, 2: 0}
    assert losses.loc[0, ["wait_us_per_step", "transfer_us_per_step"]].tolist() == [30, 20]
    assert late_rank_losses(collective_waits(collectives([]))).empty
