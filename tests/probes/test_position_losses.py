import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.probes.scoring import position_losses


def test_bins_by_hand():
    losses = np.arange(20, dtype=float)
    scored = np.ones(20, bool)
    scored[:8] = False
    text = position_losses(np.where(scored, losses, 0.0), scored)
    assert json.loads(text) == [[16, sum(range(8, 16)), 8], [32, 16 + 17 + 18 + 19, 4]]
    assert position_losses(np.zeros((2, 3)), np.ones((2, 3), bool)) is None
    assert position_losses(np.zeros(1), np.ones(1, bool)) is None


@given(st.lists(st.tuples(st.floats(0, 9), st.booleans()), min_size=2, max_size=300))
def test_bins_sum_to_the_whole(tokens):
    losses, scored = (np.array(c) for c in zip(*tokens, strict=True))
    bins = json.loads(position_losses(np.where(scored, losses, 0.0), scored))
    assert sum(b[2] for b in bins) == scored.sum()
    assert abs(sum(b[1] for b in bins) - losses[scored].sum()) < 1e-4
