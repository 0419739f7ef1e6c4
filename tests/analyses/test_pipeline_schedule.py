"""1F1B pipelines: the textbook bubble, uneven stages, transfers and gradient reduction by hand."""

import pandas as pd
import pytest

from workbench.analyses.pipeline_schedule import passes_by_stage, pipeline_step_us, schedule_1f1b
from workbench.errors import UnknownContentError


def passes(forward, backward, transfer=0.0, reduce=0.0, buckets=0):
    frame = pd.DataFrame({"forward_us": forward, "backward_us": backward}, dtype=float)
    return frame.assign(transfer_us=transfer, reduce_us=reduce, buckets=buckets)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 3, 8])
def test_equal_stages_have_the_textbook_bubble(stages, micro_batches):
    one = passes([10.0 * micro_batches] * stages, [20.0 * micro_batches] * stages)
    # every stage works m passes of 10 and 20, and waits p - 1 of each
    assert pipeline_step_us(one, micro_batches) == pytest.approx(30 * (micro_batches + stages - 1))


def test_the_order_of_a_stage():
    assert schedule_1f1b(3, 3, 0) == [("F", 0), ("F", 1), ("F", 2), ("B", 0), ("B", 1), ("B", 2)]
    assert schedule_1f1b(3, 3, 2) == [("F", 0), ("B", 0), ("F", 1), ("B", 1), ("F", 2), ("B", 2)]


def test_an_uneven_stage_and_transfers():
    # stages of 10 + 10 and 20 + 20, one micro-batch, 1 to move: 10, 1, 20, 20, 1, 10
    assert pipeline_step_us(passes([10, 20], [10, 20], transfer=1), 1) == pytest.approx(62)


def test_gradients_are_reduced_after_the_last_pass():
    # two buckets of 8: the first when half of the last pass of 20 is left, so 10 before the end, the second at the end
    assert pipeline_step_us(passes([10], [20], reduce=16, buckets=2), 1) == pytest.approx(30 + 8)
    # of 12: the second waits for the first
    assert pipeline_step_us(passes([10], [20], reduce=24, buckets=2), 1) == pytest.approx(20 + 24)
    # with two micro-batches the last pass is half as long: 5 before the end, then 24
    assert pipeline_step_us(passes([10], [20], reduce=24, buckets=2), 2) == pytest.approx(25 + 24)


def pipeline(layers_of_stage):
    """One step: each stage is a rank, with 10 us forward and 20 us backward a layer, and a receive of 2 us."""
    rows = [
        (rank, "compute", f"{way}net/layers-CellList/{layer}-DecoderLayer/MatMul-op0", "MatMul", length)
        for rank, layers in enumerate(layers_of_stage)
        for way, length in (("", 10.0), ("Gradients/", 20.0))
        for layer in layers
    ]
    rows += [(rank, "receive", f"r{rank}", "receive", 2.0) for rank in range(len(layers_of_stage))]
    frame = pd.DataFrame(rows, columns=["rank_id", "role", "name", "op_type", "work_us"])
    ordinal = frame.groupby(["rank_id", "role"]).cumcount()
    return frame.assign(step=1, ordinal=ordinal, group_id=pd.array([None] * len(frame), "string"), size_bytes=None)


def test_passes_of_a_profile():
    table = pipeline([[0, 1], [2, 3, 4]])
    found = passes_by_stage(table, table["work_us"].to_numpy())
    assert found[["forward_us", "backward_us", "transfer_us", "micro_batches"]].to_numpy().tolist() == [
        [20, 40, 2, 1],
        [30, 60, 2, 1],
    ]


def test_interleaved_stages_are_refused():
    table = pipeline([[0, 2], [1, 3]])
    with pytest.raises(UnknownContentError, match="2 chunks of layers"):
        passes_by_stage(table, table["work_us"].to_numpy())
