import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from workbench.analyses.downsample import downsample
from workbench.errors import UnknownParameterError


def test_spikes_ends_and_nans_survive():
    loss = np.sin(np.arange(100_000) / 3000)
    loss[[777, 55_555]] = 9.0, -9.0
    loss[1234] = np.nan
    frame = pd.DataFrame({"step": np.arange(100_000), "loss": loss})
    kept = downsample(frame, ["loss"], max_points=400)
    assert {0, 777, 1234, 55_555, 99_999} <= set(kept.step)
    assert len(kept) <= 400 + 3
    assert kept.step.is_monotonic_increasing


def test_a_column_of_missing_values_stays_bounded():
    frame = pd.DataFrame({"loss": np.full(50_000, np.nan)})
    assert 0 < len(downsample(frame, ["loss"], max_points=300)) <= 302


@given(st.lists(st.floats(allow_infinity=True), max_size=60), st.integers(2, 30))
def test_extremes_are_always_kept(values, points):
    frame = pd.DataFrame({"v": np.array(values, dtype=float)}, index=range(7, 7 + len(values)))
    kept = downsample(frame, ["v"], max_points=points)
    finite = frame.v[np.isfinite(frame.v)]
    assert kept.index.isin(frame.index).all()
    if len(finite):
        assert kept.v[np.isfinite(kept.v)].max() == finite.max()
        assert kept.v[np.isfinite(kept.v)].min() == finite.min()


def test_unknown_column():
    with pytest.raises(UnknownParameterError, match="loss"):
        downsample(pd.DataFrame({"loss": [1.0]}), ["lss"])
