import pandas as pd
import pytest

from tests.memory_rows import lifetimes
from workbench.analyses.memory_what_if import last_use_savings, recompute_savings, what_if
from workbench.errors import UnknownParameterError
from workbench.tables import TENSOR_LIFETIMES

MIB = 2**20
# three activations, born at 10, 20, 30, freed in reverse at 70, 60, 50; a large temporary at 40
ROWS = lifetimes(
    ("0-L/Add-op1", MIB, 10, 70), ("1-L/Add-op2", MIB, 20, 60), ("2-L/Add-op3", MIB, 30, 50),
    ("Head", 2 * MIB, 40, 45), total_before=10 * MIB,
)  # fmt: skip


def test_recomputed_blocks_are_away_at_the_peak():
    done = what_if(ROWS, "#-L/Add-op#", "recompute", grow_bytes=MIB).iloc[0]
    # before: 10 + 3 + 2 = 15. The first is away from 20 to 60, the second from 30 to 50, the third from 40 to 45:
    # at 40 there are 10 + 2; the most is 10 + 1 + 1 at the borders, or 12 at 40 as well
    assert done["saved_allocated_bytes"] == 3 * MIB
    assert done["peak_allocated_bytes"] == 12 * MIB
    assert (done["blocks"], done["size_bytes"], done["moved_bytes"]) == (3, 3 * MIB, 0)
    assert what_if(ROWS, "#-L/Add-op#", "offload")["moved_bytes"].tolist() == [6 * MIB]


def test_freed_at_the_last_use():
    used = pd.Series([35, 38, 39], index=[0, 1, 2])
    done = what_if(ROWS, "#-L/Add-op#", "free_at_last_use", last_used_at=used).iloc[0]
    assert done["peak_allocated_bytes"] == 13 * MIB  # the three at 30; at 40 only 10 + 2
    never_later = what_if(ROWS, "#-L/Add-op#", "free_at_last_use", last_used_at=used + 1000).iloc[0]
    assert never_later["saved_allocated_bytes"] == 0
    with pytest.raises(UnknownParameterError, match="last used"):
        what_if(ROWS, "Head", "free_at_last_use")


def test_unknown_parts_and_changes():
    with pytest.raises(UnknownParameterError, match="No block"):
        what_if(ROWS, "nothing", "recompute")
    with pytest.raises(UnknownParameterError, match="is no change"):
        what_if(ROWS, "Head", "shrink")


def test_savings_of_the_largest_parts_of_the_highest_rank():
    rows = pd.concat([ROWS, ROWS.assign(rank_id=3, allocated_total_bytes=ROWS["allocated_total_bytes"] + MIB)])
    table = recompute_savings(rows)
    assert table["rank_id"].unique().tolist() == [3]
    assert table["part"].tolist() == ["#-L/Add-op#", "Head"]
    assert table["saved_allocated_bytes"].tolist() == [3 * MIB, 0]  # Head lives for one event: nothing to be away for
    assert recompute_savings(TENSOR_LIFETIMES.empty()).empty


def test_what_the_recorded_last_uses_would_save():
    assert last_use_savings(ROWS).empty  # none is recorded
    used = ROWS.assign(last_used_at=pd.array([35, 38, 39, 44], dtype="Int64"))
    table = last_use_savings(used).set_index("part")
    # the three are gone before Head comes: the most is 10 + 3 at 30; without Head's last MiB nothing changes at 40
    assert table.loc["#-L/Add-op#", "peak_allocated_bytes"] == 13 * MIB
    assert table.loc["Head", "saved_allocated_bytes"] == 0
    some = used.assign(last_used_at=used["last_used_at"].mask(used["name"] == "1-L/Add-op2"))
    one = last_use_savings(some).set_index("part").loc["#-L/Add-op#"]
    assert one["peak_allocated_bytes"] == (10 + 1 + 2) * MIB  # the second stays until 60: at 40 there are 10 + 1 + 2
