"""Length distribution, truncation and ways around it, with values by hand."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analyses.lengths import (
    length_histogram,
    length_policies,
    length_summary,
    truncation,
    window_starts,
)
from workbench.errors import UnknownParameterError
from workbench.tables import DATA_SAMPLES


def samples(tokens, subset=None, **columns):
    rows = {"dataset": "a", "sample": range(len(tokens)), "tokens": tokens, "is_empty": [t == 0 for t in tokens]}
    return DATA_SAMPLES.check(pd.DataFrame(rows | {"subset": subset or "x"} | columns))


def test_truncation_per_subset():
    table = truncation(samples([50, 150, 300, 0, 100], ["code", "code", "law", "law", "law"]), 100).set_index("subset")
    # law: 300 loses 200 of 400 tokens, the empty one counts for nothing; code: 150 loses 50 of 200
    assert table.loc["law", ["samples", "long_samples", "lost_tokens", "lost_share"]].tolist() == [2, 1, 200, 0.5]
    assert table.loc["code", "lost_share"] == 50 / 200
    assert table.loc["(all)", ["long_share", "lost_share", "longest_tokens"]].tolist() == [0.5, 250 / 600, 300]
    assert truncation(samples([50])).empty  # no training length
    assert len(truncation(samples([50], training_length_tokens=40.0))) == 2


def test_summary_and_histogram_count_every_usable_sample():
    table = samples([1, 2, 3, 4, 0, 100], ["x", "x", "y", "y", "y", "y"])
    summary = length_summary(table).set_index("subset")
    assert summary.loc["(all)", ["unit", "samples", "total", "min", "q50", "max"]].tolist() == [
        "tokens",
        5,
        110,
        1,
        3,
        100,
    ]
    histogram = length_histogram(table)
    assert histogram.groupby("subset")["samples"].sum().to_dict() == {"x": 2, "y": 3}
    assert ((histogram["low"] < histogram["high"]) & (histogram["high"] <= 101)).all()
    without = table.assign(tokens=pd.NA, characters=[5.0] * 6)
    assert set(length_histogram(without)["unit"]) == {"characters"}
    assert length_histogram(table.iloc[:0]).empty
    assert length_summary(table.iloc[:0])["samples"].tolist() == [0]


def test_window_starts_by_hand():
    assert window_starts(5, 8, 2) == [0]
    assert window_starts(8, 8, 2) == [0]
    assert window_starts(10, 8, 2) == [0, 2]
    assert window_starts(20, 8, 2) == [0, 6, 12]
    with pytest.raises(UnknownParameterError, match="does not fit"):
        window_starts(20, 8, 8)


@given(st.integers(1, 300), st.integers(2, 40), st.data())
def test_windows_cover_everything_and_overlap_enough(length, window, data):
    overlap = data.draw(st.integers(0, window - 1))
    starts = window_starts(length, window, overlap)
    covered = {t for s in starts for t in range(s, min(s + window, length))}
    assert covered == set(range(length))
    assert all(a < b <= a + window - overlap for a, b in pairwise(starts))
    assert starts[-1] == max(length - window, 0)


def test_policies_by_hand():
    table = length_policies([10, 40, 100], training_length=50, overlap=10, boundaries=[16, 32], batch_size=4)
    table = table.set_index("policy")
    # truncate: 10 + 40 + 50 = 100 of 150 kept, 100 of 3 x 50 positions used
    assert table.loc["truncate", ["rows", "tokens"]].tolist() == [3, 100]
    assert table.loc["truncate", ["kept_share", "padded_share"]].tolist() == pytest.approx([100 / 150, 1 / 3])
    # windows of 100: at 0, 40, 50: five rows of 50, 10 + 40 + 3 x 50 = 200 of 250 positions
    assert table.loc["windows", ["rows", "tokens"]].tolist() == [5, 150]
    assert table.loc["windows", "padded_share"] == pytest.approx(1 - 200 / 250)
    # buckets: 10 -> 16, 40 and 50 -> 50
    assert table.loc["truncate + buckets", "positions"] == 16 + 50 + 50
    assert table.loc["windows + buckets", "padded_share"] == pytest.approx(1 - 200 / (16 + 4 * 50))
    empty = length_policies(np.zeros(3, dtype=np.int64), training_length=50, overlap=0, boundaries=[], batch_size=4)
    assert empty["rows"].tolist() == [0, 0, 0, 0]
