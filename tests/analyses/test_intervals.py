import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.analyses.intervals import Spans, covered_before, gaps, merge, union

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def spans(pairs) -> Spans:
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return merge(ends[:, 0], ends[:, 1])


def counted(pairs) -> set[int]:
    return {t for a, b in pairs for t in range(a, b)}


@given(PAIRS)
def test_cover_equals_counting_each_nanosecond(pairs):
    at = np.arange(45)
    expected = [len([t for t in counted(pairs) if t < end]) for end in at]
    assert covered_before(spans(pairs), at).tolist() == expected


@given(PAIRS, PAIRS)
def test_union_equals_the_union_of_sets(first, second):
    both = union(spans(first), spans(second))
    assert counted(zip(*map(list, both), strict=True)) == counted(first) | counted(second)
    assert (both.start[1:] > both.end[:-1]).all()


def test_gaps_lie_between_spans():
    found = gaps(spans([(0, 2), (5, 6), (6, 8), (10, 11)]))
    assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == [(2, 5), (8, 10)]
