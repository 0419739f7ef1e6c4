import pandas as pd

from tests.analyses.device_tables import collectives, kernels
from workbench.analyses.device_stalls import device_stalls, stalled_rank
from workbench.analyses.device_steps import device_steps

STEPS = range(1, 9)


def cluster(*, idle_us=None, slow=None):
    """Two ranks, steps of 1,000 us; `idle_us` of (rank, step) comes before its task, `slow` of them makes it longer."""
    rows, clock = [], 0
    for step in STEPS:
        before = max([0, *(us for (_, s), us in (idle_us or {}).items() if s == step)])
        longer = max([0, *(us for (_, s), us in (slow or {}).items() if s == step)])
        for rank in (0, 1):
            own, extra = (idle_us or {}).get((rank, step), 0), (slow or {}).get((rank, step), 0)
            rows += [
                (rank, step, clock + own, 500),
                (rank, step, clock + own + 500, 500 + extra + (before - own) + (longer - extra)),
            ]
        clock += 1000 + before + longer
    return device_steps(kernels=kernels(rows))


def test_a_late_begin_of_all_ranks_at_once_is_a_compilation():
    stalls = device_stalls(cluster(idle_us={(0, 5): 3000, (1, 5): 3000}))
    assert stalls[["step", "part", "cause"]].to_numpy().tolist() == [[5, "unknown_us", "recompile"]]
    assert stalls["excess_us"].tolist() == [3000]
    assert stalls["ranks_share"].tolist() == [1.0]


def test_it_is_none_where_the_data_pipeline_took_that_long():
    data = pd.DataFrame(
        {"rank_id": [0, 1], "level": "dataset", "name": "Pipeline::GetNext", "count": 8.0, "total_us": 3500.0}
    )
    stalls = device_stalls(cluster(idle_us={(0, 5): 3000, (1, 5): 3000}), data)
    assert stalls["cause"].tolist() == ["stall_steps"]


def test_a_rank_that_holds_up_a_transfer_waits_least():
    moves = collectives([(r, 5, "a", "g", 4500, 3000) for r in (0, 1, 2)]).assign(wait_us=[2900.0, 10.0, 2900.0])
    stall = {"step": 5, "part": "transfer_us", "excess_us": 3000.0}
    assert stalled_rank(stall, cluster(), moves) == 1
    assert stalled_rank(stall, cluster(), moves.assign(wait_us=0.0)) is None


def test_the_longest_transfer_tells_and_not_the_longest_wait_for_it():
    # rank 1's link stalls in group g; the others wait long for it in the world's group, a little unequally
    moves = collectives([(0, 5, "a", "g", 4500, 3000), (1, 5, "a", "g", 4500, 3000),
                         (2, 5, "w", "world", 4000, 3600), (3, 5, "w", "world", 4100, 3500)])  # fmt: skip
    moves = moves.assign(wait_us=[2900.0, 10.0, 3550.0, 3450.0])
    stall = {"step": 5, "part": "pipeline_wait_us", "excess_us": 3000.0}
    assert stalled_rank(stall, cluster(), moves) == 1


def test_the_first_step_and_healthy_steps_are_no_stalls():
    assert device_stalls(cluster()).empty
    assert device_stalls(cluster(idle_us={(0, 1): 9000, (1, 1): 9000})).empty
    assert device_stalls(device_steps()).empty
