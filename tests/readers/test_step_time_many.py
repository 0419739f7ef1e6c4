"""Reading many step_trace_time.csv at once gives what reading each alone gives."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.readers.kinds import FileContext
from workbench.readers.step_time import read_many, read_step_trace_time

HEADER = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
CELL = st.sampled_from(["0", "0.0", "10.5", "187615.056", "N/A", "x", ""])
STEP = st.sampled_from(["0", "5", "6", "7", ""])


def line(step, *cells):
    return ",".join([step, *cells]) + "\n"


@given(
    ranks=st.lists(
        st.tuples(
            st.lists(st.tuples(STEP, *[CELL] * 7), max_size=4),
            st.sampled_from([None, "hcom_send__1_0", "hcom_allReduce__1_0"]),
            st.sampled_from(["", "", "", "\n", "torn,1"]),
        ),
        min_size=1,
        max_size=4,
    ),
    easy=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_together_is_the_same_as_one_by_one(tmp_path_factory, ranks, easy):
    """Law: None, or exactly the rows of the files read alone, which then had no notes."""
    folder = tmp_path_factory.mktemp("ranks")
    files = []
    for rank, (rows, operation, end) in enumerate(ranks):
        path = folder / f"rank_{rank}" / "step_trace_time.csv"
        path.parent.mkdir()
        if easy:
            rows, end = (
                [
                    ("5", "1.5", "2", "3", "5", "4", "6", "0"),
                    *[(str(i), *r[1:]) for i, r in enumerate(rows) if "x" not in r],
                ],
                "",
            )
        path.write_text(HEADER + "".join(line(*row) for row in rows) + end)
        if operation:
            (path.parent / "communication.json").write_text(json.dumps({"step5": {"p2p": {operation: {}}}}))
        files.append((path, FileContext(rank_id=rank, window=rank % 2, root=folder)))
    together = read_many(files)
    if together is None:
        return
    alone = [read_step_trace_time(path, context)["step_time"] for path, context in files]
    assert [note for reading in alone for note in reading.notes] == []
    expected = pd.concat([reading.table for reading in alone], ignore_index=True)
    pd.testing.assert_frame_equal(together["step_time"].table, expected)


def test_plain_files_are_read_together(tmp_path):
    """Two ranks by hand: zeros of Stage and Bubble are unknown, a lone step 0 is no step."""
    for rank, rows in enumerate(("5,1,2,3,5,4,0,0\n6,1.5,2,3,5,4,7,0\n", "0,9,2,3,5,4,0,8\n")):
        (tmp_path / f"{rank}.csv").write_text(HEADER + rows)
    files = [(tmp_path / f"{rank}.csv", FileContext(rank_id=rank + 3)) for rank in (0, 1)]
    readings = read_many(files)
    assert readings is not None
    table = readings["step_time"].table
    assert table.rank_id.tolist() == [3, 3, 4]
    assert table.step.tolist() == [5, 6, pd.NA]
    assert table.computing_us.tolist() == [1, 1.5, 9]
    assert table.stage_us.tolist()[1] == 7
    assert table.stage_us.isna().tolist() == [True, False, True]
    assert table.bubble_us.isna().tolist() == [True, True, False]


@pytest.mark.parametrize(
    "second", ["", HEADER, HEADER[::-1] + "5,1,2,3,5,4,0,0\n", HEADER + "5,1,2", HEADER + '5,"1",2,3,5,4,0,0\n']
)
def test_a_file_that_needs_care_is_read_alone(tmp_path, second):
    (tmp_path / "0.csv").write_text(HEADER + "5,1,2,3,5,4,0,0\n")
    (tmp_path / "1.csv").write_text(second)
    assert read_many([(tmp_path / f"{rank}.csv", FileContext(rank_id=rank)) for rank in (0, 1)]) is None
