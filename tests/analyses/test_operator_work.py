import pandas as pd
import pytest

from tests.analyses.device_tables import kernels
from workbench.analyses.operator_work import fusion_candidates, rank_work

STAGES = pd.DataFrame({"rank_id": [0, 1, 2, 3], "stage": [0, 0, 1, 1]})


def test_longer_shapes_on_one_rank_are_more_work():
    # Ranks 0 to 2 run MatMul on 8,8 in 100 us; rank 3 on 16,8 in 190, and an Add of its own of 10.
    rows = [(r, s, 1000 * s, 100, "MatMul", "8,8") for r in range(3) for s in (1, 2)]
    rows += [(3, s, 1000 * s, 190, "MatMul", "16,8") for s in (1, 2)] + [
        (3, s, 1000 * s + 200, 10, "Add") for s in (1, 2)
    ]
    work = rank_work(kernels(rows)).set_index("rank_id")
    assert work.index[0] == 3
    assert work.loc[3, ["work_us", "peers_work_us", "extra_us"]].tolist() == [200, 100, 100]
    assert work.loc[3, ["extra_share", "calls_per_step", "peers_calls_per_step"]].tolist() == [1, 2, 1]
    assert (work.loc[3, "op_type"], work.loc[3, "op_extra_us"]) == ("MatMul", 90)
    assert work.loc[[0, 1, 2], "extra_us"].tolist() == [0, 0, 0]


def test_a_slow_device_has_no_more_work():
    rows = [(r, s, 1000 * s, 100 * (1.5 if r == 2 else 1)) for r in range(4) for s in (1, 2)]
    assert rank_work(kernels(rows))["extra_us"].tolist() == [0, 0, 0, 0]


def test_stages_are_compared_within_themselves():
    rows = [(r, 1, 0, 100 if r < 2 else 300, "MatMul", "8,8" if r < 2 else "24,8") for r in range(4)]
    assert rank_work(kernels(rows), STAGES)["extra_us"].tolist() == [0, 0, 0, 0]
    assert rank_work(kernels(rows)).loc[0, "extra_us"] == 200
    assert rank_work(kernels(rows[:1])).empty
    assert rank_work(kernels([])).empty


def chain(rows) -> pd.DataFrame:
    """Tasks of (step, name, op_type, start_us, duration_us) of rank 0."""
    table = kernels([(0, s, start, length, kind) for s, _, kind, start, length in rows])
    return table.assign(name=[r[1] for r in rows])


def test_runs_of_small_elementwise_operators_by_hand():
    # Two layers: Cast, Mul, Add in 5 us each with 3 us between, then a MatMul; the Gelu after it stands alone.
    rows = []
    for layer in (0, 1):
        at = 200 * layer
        scope = f"Default/net/{layer}-Layer"
        rows += [(1, f"{scope}/{k}-op{n}", k, at + 8 * n, 5) for n, k in enumerate(("Cast", "Mul", "AddV2"))]
        rows += [(1, f"{scope}/MatMul-op3", "MatMul", at + 30, 100), (1, f"{scope}/Gelu-op4", "Gelu", at + 140, 5)]
    (row,) = fusion_candidates(chain(rows)).to_dict("records")
    assert row["scope"] == "Default/net/*-Layer"
    assert row["operators"] == "Cast > Mul > AddV2"
    assert (row["length"], row["runs_per_step"], row["launches_saved"]) == (3, 2, 4)
    assert (row["total_us"], row["gap_us"]) == (30, 12)


def test_long_operators_other_scopes_and_other_steps_end_a_run():
    rows = [(1, "a/Mul-op0", "Mul", 0, 5), (1, "b/Add-op1", "Add", 6, 5), (1, "b/Exp-op2", "Exp", 20, 80),
            (1, "b/Log-op3", "Log", 110, 5), (2, "b/Add-op1", "Add", 200, 5)]  # fmt: skip
    assert fusion_candidates(chain(rows)).empty
    assert fusion_candidates(chain([])).empty
    assert fusion_candidates(chain(rows[:1] * 2).assign(accelerator_core="CPU")).empty


def test_order_of_rows_does_not_matter(data_samples):
    from workbench.run import open_run

    table = open_run(data_samples / "simulated_cluster", quiet=True).table("kernels")
    mixed = fusion_candidates(table.sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(mixed, fusion_candidates(table))
    work = rank_work(table)
    assert work["extra_share"].abs().max() == pytest.approx(0, abs=1e-9)  # a slow rank, and no more work
