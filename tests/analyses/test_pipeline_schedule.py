"""1F1B pipelines: the textbook bubble, uneven stages, transfers and gradient reduction by hand."""

import pandas as pd
import pytest

from workbench.analyses.pipeline_schedule import pipeline_step_us, schedule_1f1b


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
