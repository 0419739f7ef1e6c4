import pandas as pd
import pytest

from tests.analyses.recompute_rows import GRADIENT_US, graph_kernels, step_tasks
from workbench.analyses.recompute import (
    recompute_shares,
    recomputed_operators,
    recomputed_parts,
    worth_keeping,
)
from workbench.run import open_run
from workbench.tables import KERNELS

MIB = 2**20
# of a step: an early gradient, forward, head, gradients, copies, optimizer
STEP_US = 1 + 2 * (100 + 20 + 10) + 3 * 50 + 3 * GRADIENT_US + 2 * (100 + 20) + 30


def test_copies_are_told_from_the_first_run_under_the_same_scope():
    copies = recomputed_operators(graph_kernels(steps=(1,)))
    assert [n.split("/")[-2] for n in copies["name"]] == ["MatMul-op1", "GeLU-op1"] * 2
    assert copies["layer"].tolist() == [1, 1, 0, 0]  # the backward pass begins with the last layer
    assert set(copies["part"]) == {"*-Layer/attention/qkv-Dense", "*-Layer/mlp"}
    assert copies["output_bytes"].tolist() == [2 * MIB, 8 * MIB] * 2  # 1024 x 1024 and 1024 x 4096 of 2 bytes


def test_shares_of_a_step():
    kernels = graph_kernels()
    (row,) = recompute_shares(kernels, recomputed_operators(kernels)).to_dict("records")
    assert (row["steps"], row["recomputed_us"], row["recomputed_per_step"]) == (2, 240, 4)
    assert (row["compute_us"], row["share"]) == (STEP_US, pytest.approx(240 / STEP_US))
    assert row["kept_bytes"] == 20 * MIB


def test_parts_come_with_most_time_per_byte_first():
    kernels = graph_kernels()
    parts = recomputed_parts(kernels, recomputed_operators(kernels))
    assert parts["op_type"].tolist() == ["MatMul", "GeLU"]  # 200 us for 4 MiB, 40 us for 16 MiB
    assert parts["us_per_step"].tolist() == [200, 40]
    assert parts["bytes_per_step"].tolist() == [4 * MIB, 16 * MIB]
    assert (parts["layers"].tolist(), parts["per_step"].tolist()) == ([2, 2], [2, 2])


@pytest.mark.parametrize(
    ("room_mib", "saved_us", "held_mib"),
    [(0, [], []), (2, [100], [2]), (4, [200], [4]), (12, [200, 20], [4, 8]), (100, [200, 40], [4, 16])],
)
def test_what_fits_is_kept_in_part_of_the_layers(room_mib, saved_us, held_mib):
    kernels = graph_kernels()
    kept = worth_keeping(recomputed_parts(kernels, recomputed_operators(kernels)), room_mib * MIB)
    assert kept["saved_us"].tolist() == saved_us
    assert (kept["held_bytes"] / MIB).tolist() == held_mib


def test_marked_cells_without_copies_recompute_nothing():
    for tasks in (step_tasks(copied=()), step_tasks(marked=())):
        assert recomputed_operators(graph_kernels(tasks=tasks)).empty


def test_a_forward_pass_alone_recomputes_nothing():
    forward = [t for t in step_tasks() if not t[0].startswith("Gradients/")]
    assert recomputed_operators(graph_kernels(tasks=forward * 2)).empty


def test_only_marked_layers_count():
    copies = recomputed_operators(graph_kernels(tasks=step_tasks(marked=(0,)), steps=(1,)))
    assert copies["layer"].tolist() == [0, 0]


def test_micro_batches_under_the_same_names_are_told_apart():
    kernels = graph_kernels(passes=3)
    (row,) = recompute_shares(kernels, recomputed_operators(kernels)).to_dict("records")
    assert (row["steps"], row["recomputed_us"]) == (2, 3 * 240)


def test_a_stage_without_a_head_begins_its_backward_pass_with_copies():
    tasks = [t for t in step_tasks() if "/head/" not in t[0] and "Tile" not in t[0]]
    assert recomputed_operators(graph_kernels(tasks=tasks, steps=(1,)))["layer"].tolist() == [1, 1, 0, 0]


def test_order_of_rows_and_missing_steps_change_nothing():
    kernels = graph_kernels()
    shuffled = kernels.sample(frac=1, random_state=0).assign(step=pd.NA)
    pd.testing.assert_frame_equal(
        recompute_shares(kernels, recomputed_operators(kernels)),
        recompute_shares(shuffled, recomputed_operators(shuffled)),
    )


def test_sizes_that_are_not_recorded_are_not_guessed():
    for kernels in (graph_kernels(shapes=False), graph_kernels().assign(output_dtypes="FLOAT16;FLOAT16"),
                    graph_kernels().assign(output_dtypes="UNDEFINED")):  # fmt: skip
        shares = recompute_shares(kernels, recomputed_operators(kernels))
        assert shares["recomputed_us"].tolist() == [240]
        assert shares["kept_bytes"].isna().all()


@pytest.mark.parametrize(
    ("types", "size"),
    [("DT_BF16", 2), ("FLOAT", 4), ("INT64", 8), ("BOOL", 1), ("INT8", 1), ("DOUBLE", 8), ("FLOAT8_E4M3FN", None)],
)
def test_types_by_name_and_by_bits(types, size):
    found = recomputed_operators(graph_kernels(steps=(1,)).assign(output_dtypes=types))["output_bytes"]
    assert found.isna().all() if size is None else found.tolist() == [size * MIB, size * 4 * MIB] * 2


def test_outputs_are_summed_and_one_type_stands_for_all():
    for types in ("FLOAT16", "FLOAT16;FLOAT16"):
        kernels = graph_kernels(steps=(1,)).assign(output_shapes="1024,512;;1024", output_dtypes=types)
        size = recomputed_operators(kernels)["output_bytes"]
        assert size.isna().all() if ";" in types else size.tolist() == [(1024 * 512 + 1 + 1024) * 2] * 4


def test_empty_in_empty_out():
    copies = recomputed_operators(KERNELS.empty())
    assert copies.empty
    assert recompute_shares(KERNELS.empty(), copies).empty
    assert recomputed_parts(KERNELS.empty(), copies).empty


@pytest.mark.parametrize(("profile", "again"), [("every_block", 36), ("first_block", 18), ("single_operators", 0)])
def test_real_profiles(data_samples, profile, again):
    kernels = open_run(data_samples / "recompute_cpu" / profile, quiet=True).table("kernels")
    copies = recomputed_operators(kernels)
    assert kernels["name"].str.startswith("recompute_Default/").any()
    assert len(copies) == 2 * again  # two steps
    assert not copies["name"].str.contains("mlp_out|Gradients|Default/network-WithLoss/ce").any()
    if again:
        (row,) = recompute_shares(kernels, copies).to_dict("records")
        assert (row["steps"], row["recomputed_per_step"]) == (2, again)
        matmul = copies[copies["op_type"] == "MatMul"]
        assert len(matmul) == again / 6 * 2  # qkv, out and mlp_in of each marked block
