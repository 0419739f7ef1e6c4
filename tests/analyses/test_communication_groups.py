import json

import pandas as pd
import pytest

from tests.analyses.device_tables import collectives, kernels
from workbench.analyses.communication_groups import communication_groups, communication_kinds

# Stages (0, 1, 2, 3) and (4, 5, 6, 7) of two tensor pairs each: sends between 0-4, tensor (0, 1), data (0, 2).
PAIRS = [(r, 1, "s", f"p{r % 4}", 0, 10, "send" if r < 4 else "receive") for r in range(8)]
TENSOR = [(r, 1, "t", f"t{r // 2}", 20, 5, "allreduce") for r in range(8)]
DATA = [(r, 1, "d", f"d{r // 4}{r % 2}", 40, 20, "allreduce") for r in range(8)]
WORLD = [(r, 1, "w", "all", 80, 2, "allreduce", 4) for r in range(8)]


def test_kinds_follow_from_who_communicates_with_whom():
    groups = communication_groups(collectives([*PAIRS, *TENSOR, *DATA, *WORLD])).set_index("group_id")
    assert set(groups.loc[[f"p{n}" for n in range(4)], "kind"]) == {"pipeline"}
    assert set(groups.loc[[f"t{n}" for n in range(4)], "kind"]) == {"tensor"}
    assert set(groups.loc[["d00", "d01", "d10", "d11"], "kind"]) == {"data"}
    assert groups.loc["all", "kind"] == "world"
    assert groups.loc["d01", "ranks"] == (1, 3)
    kinds = communication_kinds(communication_groups(collectives([*PAIRS, *TENSOR, *DATA, *WORLD]))).set_index("kind")
    assert kinds["groups"].to_dict() == {"data": 4, "pipeline": 4, "tensor": 4, "world": 1}
    assert kinds["elapsed_us"].to_dict() == {"data": 20, "pipeline": 10, "tensor": 5, "world": 2}
    assert kinds["share"].sum() == pytest.approx(1)


def test_one_kind_of_groups_inside_a_stage_is_not_guessed():
    assert set(communication_groups(collectives(DATA[:4]))["kind"]) == {"within a stage"}


def test_names_of_the_profilers_metadata_decide():
    rows = [("group_name", "tp"), ("global_ranks", json.dumps([0, 2])), ("group_rank", 0)]
    named = pd.DataFrame(
        [(f"parallel_group_info.group_name_3.{field}", str(value), 0, "f") for field, value in rows],
        columns=["name", "value", "rank_id", "source"],
    )
    groups = communication_groups(collectives(DATA), settings=named).set_index("group_id")
    assert groups.loc["d00", "kind"] == "tensor"


def test_costs_by_hand():
    # Rank 1 starts at 130, rank 0 at 100; both end at 150. Rank 0 computes 90-120: 30 of its 50 us are exposed.
    rows = collectives([(0, 1, "a", "g", 100, 50), (1, 1, "a", "g", 130, 20)])
    row = communication_groups(rows, kernels=kernels([(0, 1, 90, 30)])).iloc[0]
    assert (row["elapsed_us"], row["wait_us"], row["transfer_us"]) == (35, 15, 20)  # means of the two ranks
    assert row["exposed_us"] == 30  # of rank 0, whose kernels are known
    assert row["share"] == 1
    assert (row["operations_per_step"], row["bytes_per_step"]) == (1, 4e6)


def test_operations_without_a_group_stand_apart_by_direction():
    rows = collectives([(0, 1, "a", "g", 0, 5), (0, 1, "s", "g", 10, 5, "send")]).assign(
        group_id=pd.array([pd.NA] * 2, "string")
    )
    assert communication_groups(rows)["kind"].tolist() == ["unknown", "pipeline"]
    assert communication_groups(collectives([])).empty
