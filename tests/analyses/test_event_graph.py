import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses.event_graph import event_graph
from workbench.errors import UnknownContentError


def test_a_chain_is_added_up_and_a_meeting_takes_the_last():
    # 0 -> 1 -> 2 and 0 -> 3; 4 needs 2 and 3
    graph = event_graph(np.array([0, 1, 0, 2, 3]), np.array([1, 2, 3, 4, 4]), 5)
    assert graph.times(np.array([1.0, 2, 5, 10, 1])).tolist() == [0, 1, 3, 5, 13]
    assert graph.times(np.array([1.0, 2, 50, 10, 1])).tolist() == [0, 1, 3, 50, 51]


def test_events_without_needs_are_at_zero():
    assert event_graph(np.array([], dtype=int), np.array([], dtype=int), 2).times(np.array([])).tolist() == [0, 0]


@pytest.mark.parametrize("edges", [[(0, 1), (1, 0)], [(0, 1), (0, 2), (1, 2), (2, 1)], [(1, 1)]])
def test_circles_are_refused(edges):
    sources, targets = np.array(edges).T
    with pytest.raises(UnknownContentError, match="circle"):
        event_graph(sources, targets, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 60), st.sampled_from([0.5, 1.0, 2.5]))
def test_times_are_those_of_a_walk_in_order(seed, events, edges_per_event):
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.integers(0, events, (int(events * edges_per_event), 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)  # from lower to higher: no circle
    names = rng.permutation(events)  # numbers that do not follow the order
    weight = rng.uniform(0, 10, len(pairs))
    expected = np.zeros(events)
    for number in range(events):
        arriving = [expected[s] + w for (s, t), w in zip(pairs, weight, strict=True) if t == number]
        expected[number] = max(arriving, default=0.0)
    graph = event_graph(names[pairs[:, 0]], names[pairs[:, 1]], events)
    assert graph.times(weight)[names] == pytest.approx(expected)
