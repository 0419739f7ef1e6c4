import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from workbench.analyses.statistics import holm, mad, ratio_change, ratio_estimate


def test_ratio_of_two_equal_documents_by_hand():
    # documents a (3/2) and b (1/2): R = 4/4; without a 1/2, without b 3/2
    estimate = ratio_estimate([1, 2, 1], [1, 1, 2], ["a", "a", "b"], confidence=0.9)
    error = math.sqrt((2 - 1) / 2 * ((0.5 - 1) ** 2 + (1.5 - 1) ** 2))  # 0.5
    assert (estimate.value, estimate.n, estimate.clusters) == (1.0, 3, 2)
    assert estimate.standard_error == pytest.approx(error)
    assert estimate.degrees_of_freedom == pytest.approx(4**2 / (2**2 + 2**2) - 1)  # 1: two equal documents
    assert estimate.high == pytest.approx(1 + 6.313751514675043 * 0.5)  # t quantile 0.95 with 1 degree of freedom


def test_equal_clusters_of_equal_weight_give_the_students_t_interval_of_their_means():
    means = np.array([1.0, 2.0, 4.0, 7.0, 3.0])
    estimate = ratio_estimate(means, np.ones(5), range(5))
    expected = stats.ttest_1samp(means, 0)
    assert estimate.p_value == pytest.approx(expected.pvalue)
    assert (estimate.low, estimate.high) == pytest.approx(expected.confidence_interval(0.95))


def test_one_document_has_a_value_and_no_interval():
    estimate = ratio_estimate([1, 2], [2, 2], ["a", "a"])
    assert estimate.value == 0.75
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.p_value)


def test_a_nan_score_is_not_left_out():
    assert math.isnan(ratio_estimate([1, np.nan, 1], [1, 1, 1], [1, 2, 3]).value)


def test_nothing_scored_is_nan():
    assert math.isnan(ratio_estimate([0, 0], [0, 0], [1, 2]).value)
    assert math.isnan(ratio_estimate([], [], []).value)


def test_identical_scorings_do_not_differ():
    change = ratio_change(([1, 2, 3], [1, 1, 1]), ([1, 2, 3], [1, 1, 1]), [1, 2, 3])
    assert (change.value, change.p_value) == (0, 1)


def test_a_constant_shift_is_certain():
    change = ratio_change(([1, 5, 3], [1, 1, 1]), ([2, 6, 4], [1, 1, 1]), [1, 2, 3])
    assert (change.value, change.standard_error, change.p_value) == (1, 0, 0)


SAMPLES = st.lists(
    st.tuples(st.floats(0.1, 9), st.floats(0.1, 9), st.integers(1, 50), st.integers(0, 6)), min_size=2, max_size=40
)


@given(SAMPLES, st.randoms())
def test_change_equals_leaving_out_each_document_in_turn(rows, random):
    random.shuffle(rows)
    before, after, tokens, document = (np.array(c, dtype=float) for c in zip(*rows, strict=True))
    change = ratio_change((before, tokens), (after, tokens), document)
    documents = sorted(set(document))
    left_out = [
        sum((after - before)[document != d]) / sum(tokens[document != d]) for d in documents if len(documents) > 1
    ]
    assert change.value == pytest.approx(sum(after - before) / sum(tokens), abs=1e-12)
    if len(documents) > 1:
        spread = sum((r - change.value) ** 2 for r in left_out) * (len(documents) - 1) / len(documents)
        assert change.standard_error == pytest.approx(math.sqrt(spread), abs=1e-9)


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.04 -> 0.03, 0.04, max(0.04, 0.04): the published example's order
    assert holm([0.04, 0.01, np.nan, 0.02]) == pytest.approx([0.04, 0.03, np.nan, 0.04], nan_ok=True)
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_and_keeps_order(p):
    adjusted = holm(p)
    assert (adjusted >= np.array(p) - 1e-12).all()
    assert (np.diff(adjusted[np.argsort(p)]) >= -1e-12).all()


def test_mad_by_hand():
    assert mad([1, 2, 3, 100, np.nan]) == pytest.approx(1.0)  # median 2.5; deviations 1.5 0.5 0.5 97.5
    assert math.isnan(mad([]))


def test_type_one_error_under_unequal_documents_is_near_five_percent():
    """The naive test rejects about a third of these true nulls."""
    random = np.random.default_rng(7)
    rejected = 0
    for _ in range(1500):
        sizes = np.maximum(1, np.round(np.exp(random.normal(math.log(4), 0.7, 15)))).astype(int)
        document = np.repeat(np.arange(15), sizes)
        tokens = random.integers(20, 128, len(document)).astype(float)
        noise = random.normal(0, 0.55, 15)[document] + random.normal(0, 0.84, len(document))
        loss = random.gamma(9, 0.3, len(document)) * tokens
        rejected += ratio_change((loss, tokens), (loss + noise * tokens, tokens), document).p_value < 0.05
    assert 0.03 < rejected / 1500 < 0.07
