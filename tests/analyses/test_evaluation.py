import math

import pandas as pd
import pytest

from workbench.analyses.evaluation import (
    ALL_SUBSETS,
    changes_from_references,
    checkpoints_in_order,
    paired_changes,
    reference_checkpoints,
    subset_metrics,
    with_all_subsets,
)
from workbench.errors import MissingColumnsError, UnknownParameterError
from workbench.tables import EVAL_SAMPLES

COLUMNS = ["checkpoint", "step", "subset", "sample_id", "document_id", "scored_tokens", "scored_bytes", "loss_nats",
           "correct_tokens"]  # fmt: skip


def samples(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


TWO_DOCUMENTS = samples(
    ("c-1", 10, "code", "s1", "d1", 10.0, 20.0, 15.0, 5.0),
    ("c-1", 10, "code", "s2", "d1", 30.0, 30.0, 45.0, 9.0),
    ("c-1", 10, "code", "s3", "d2", 40.0, 50.0, 20.0, 26.0),
)


def test_metrics_are_ratios_of_totals():
    metrics = subset_metrics(TWO_DOCUMENTS).set_index("metric")
    assert metrics.value["loss"] == pytest.approx((15 + 45 + 20) / (10 + 30 + 40))
    assert metrics.value["perplexity"] == pytest.approx(math.e)
    assert metrics.value["bits_per_byte"] == pytest.approx(80 / math.log(2) / (20 + 30 + 50))
    assert metrics.value["next_token_accuracy"] == pytest.approx((5 + 9 + 26) / 80)
    assert set(metrics.n) == {3}
    assert set(metrics.documents) == {2}


def test_interval_over_documents_by_hand():
    loss = subset_metrics(TWO_DOCUMENTS).set_index("metric").loc["loss"]
    error = math.sqrt(((20 / 40 - 1) ** 2 + (60 / 40 - 1) ** 2) / 2)  # without d1 and without d2
    assert loss.high == pytest.approx(1 + 12.706204736 * error)  # t quantile 0.975, two equal documents
    assert loss.low == 0  # a loss is not negative


def test_interval_of_perplexity_is_that_of_the_loss():
    metrics = subset_metrics(TWO_DOCUMENTS).set_index("metric")
    assert metrics.high["perplexity"] == pytest.approx(math.exp(metrics.high["loss"]))


def test_a_diverged_sample_makes_the_loss_nan_and_keeps_the_accuracy():
    broken = TWO_DOCUMENTS.assign(loss_nats=[15.0, float("nan"), 20.0])
    metrics = subset_metrics(broken).set_index("metric").value
    assert math.isnan(metrics["loss"])
    assert metrics["next_token_accuracy"] == pytest.approx(0.5)


def test_metrics_without_their_columns_are_left_out():
    metrics = subset_metrics(TWO_DOCUMENTS.drop(columns=["scored_bytes", "correct_tokens"]))
    assert list(metrics.metric) == ["loss", "perplexity"]


def test_missing_document_is_the_sample_itself():
    metrics = subset_metrics(TWO_DOCUMENTS.assign(document_id=None))
    assert set(metrics.documents) == {3}


def test_empty_in_empty_out_and_missing_column():
    assert subset_metrics(EVAL_SAMPLES.empty()).empty
    with pytest.raises(MissingColumnsError, match="subset"):
        subset_metrics(pd.DataFrame({"sample_id": ["a"], "loss_nats": [1.0]}))


def test_row_order_is_irrelevant_and_input_untouched():
    shuffled, copy = TWO_DOCUMENTS.sample(frac=1, random_state=1), TWO_DOCUMENTS.copy()
    pd.testing.assert_frame_equal(subset_metrics(TWO_DOCUMENTS), subset_metrics(shuffled))
    pd.testing.assert_frame_equal(TWO_DOCUMENTS, copy)


def test_inline_rows_without_checkpoint_are_kept():
    assert len(subset_metrics(TWO_DOCUMENTS.assign(checkpoint=None))) == 4


LATER = TWO_DOCUMENTS.assign(checkpoint="c-2", step=20, loss_nats=[14.0, 41.0, 17.0])


def test_paired_change_by_hand():
    both = pd.concat([TWO_DOCUMENTS, LATER])
    change = paired_changes(both, "c-1", "c-2").iloc[0]
    assert change.change == pytest.approx((-1 - 4 - 3) / 80)
    assert (change.before, change.after) == pytest.approx((80 / 80, 72 / 80))
    error = math.sqrt(((-3 / 40 + 0.1) ** 2 + (-5 / 40 + 0.1) ** 2) / 2)
    assert change.high - change.change == pytest.approx(12.706204736 * error)
    assert change.p_holm == change.p_value


def test_only_shared_samples_are_compared():
    both = pd.concat([TWO_DOCUMENTS, LATER.iloc[1:]])
    change = paired_changes(both, "c-1", "c-2").iloc[0]
    assert (change.n, change.unpaired) == (2, 1)
    assert change.change == pytest.approx((-4 - 3) / 70)


def test_holm_runs_over_subsets_but_not_over_their_whole():
    second = [
        frame.assign(subset="prose", loss_nats=frame.loss_nats * [1.0, 1.1, 0.7]) for frame in (TWO_DOCUMENTS, LATER)
    ]
    changes = paired_changes(with_all_subsets(pd.concat([TWO_DOCUMENTS, LATER, *second])), "c-1", "c-2")
    changes = changes.set_index("subset")
    assert math.isnan(changes.p_holm[ALL_SUBSETS])
    assert changes.documents[ALL_SUBSETS] == 4  # documents of two subsets are different ones
    parts = changes.drop(ALL_SUBSETS)
    assert parts.p_holm.min() == pytest.approx(min(1, 2 * parts.p_value.min()))


def test_unknown_checkpoint_names_the_known_ones():
    with pytest.raises(UnknownParameterError, match="c-1"):
        paired_changes(TWO_DOCUMENTS, "c-1", "c-9")
    with pytest.raises(UnknownParameterError, match="bits_per_byte"):
        paired_changes(TWO_DOCUMENTS, "c-1", "c-1", metric="perplexity")


def test_references_are_the_previous_and_the_best_before():
    third = LATER.assign(checkpoint="c-3", step=30, loss_nats=[20.0, 40.0, 30.0])
    fourth = LATER.assign(checkpoint="c-10", step=100)
    every = pd.concat([fourth, third, LATER, TWO_DOCUMENTS])
    assert checkpoints_in_order(every) == ["c-1", "c-2", "c-3", "c-10"]
    assert reference_checkpoints(every, "c-1") == {}
    assert reference_checkpoints(every, "c-2") == {"previous": "c-1", "best": "c-1"}
    assert reference_checkpoints(every, "c-10") == {"previous": "c-3", "best": "c-2"}


def many_documents(checkpoint, step, shift):
    level = {"code": 2.0 + shift["code"], "prose": 3.0 + shift["prose"]}
    return samples(*[
        (checkpoint, step, subset, f"{subset}{i}", f"d{i}", 10.0, 12.0, 10 * (loss + 0.01 * (i % 3)), 5.0)
        for subset, loss in level.items() for i in range(20)
    ])  # fmt: skip


def test_verdicts_name_the_subset_that_got_worse_beside_a_better_whole():
    first = many_documents("c-1", 1, {"code": 0.0, "prose": 0.0})
    wobble = [0.02 * (-1) ** i for i in range(40)]
    second = many_documents("c-2", 2, {"code": -0.5, "prose": 0.1})
    second = second.assign(loss_nats=second.loss_nats + wobble)
    found = changes_from_references(pd.concat([first, second]), "c-2").set_index("subset")
    assert found.verdict.to_dict() == {"code": "better", "prose": "worse", ALL_SUBSETS: "better"}
    assert found.reference.unique().tolist() == ["previous, also the best: c-1"]
    assert changes_from_references(first, "c-1").empty


def test_accuracy_is_better_when_it_rises():
    later = TWO_DOCUMENTS.assign(checkpoint="c-2", step=20, correct_tokens=[7.0, 14.0, 35.0], document_id=None)
    both = pd.concat([TWO_DOCUMENTS.assign(document_id=None), later])
    assert set(changes_from_references(both, "c-2", metric="next_token_accuracy").verdict) == {"better"}
