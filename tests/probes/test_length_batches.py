"""Windows and buckets: every token is a target once, rows stand among their like, shapes are few."""

from collections import Counter

import numpy as np
import pytest

from workbench.errors import UnknownParameterError

pytest.importorskip("mindspore")
pytestmark = pytest.mark.mindspore

from workbench.analyses.lengths import length_policies  # noqa: E402
from workbench.probes.language_model import IGNORED_TARGET, PAD  # noqa: E402
from workbench.probes.length_batches import WindowSource, bucketed_batches, padded_batches, window_rows  # noqa: E402

LENGTHS = (3, 5, 8, 9, 16, 17, 40, 100, 1, 0)
SEQUENCES = [np.arange(1000 * k, 1000 * k + n + 1) for k, n in enumerate(LENGTHS)]


def batches(dataset):
    return list(dataset.create_dict_iterator(num_epochs=1, output_numpy=True))


def scored(rows):
    return Counter(int(t) for row in rows for t in row[row != IGNORED_TARGET])


def test_overlapping_windows_score_every_target_once():
    rows = [WindowSource(SEQUENCES, 16, overlap=4)[i] for i in range(len(WindowSource(SEQUENCES, 16, overlap=4)))]
    expected = Counter(int(t) for sequence in SEQUENCES for t in sequence[1:])
    assert scored(targets for _, targets, _ in rows) == expected
    for tokens, targets, _ in rows:
        known = targets != IGNORED_TARGET
        assert (targets[known] == tokens[known] + 1).all()  # each token predicts its successor
        assert len(tokens) <= 16
    twice = WindowSource(SEQUENCES, 16, overlap=4, score_overlap=True)
    assert max(scored(twice[i][1] for i in range(len(twice))).values()) == 2


def test_without_windows_long_sequences_are_cut():
    source = WindowSource(SEQUENCES, 16)
    assert [len(source[i][0]) for i in range(len(source))] == [3, 5, 8, 9, 16, 16, 16, 16, 1]
    assert [int(source[i][2]) for i in range(len(source))] == list(range(9))


@pytest.mark.parametrize("overlap", [None, 4])
def test_batches_are_those_that_the_lengths_predict(overlap):
    source = WindowSource(SEQUENCES, 16, overlap=overlap)
    predicted = length_policies(LENGTHS, training_length=16, overlap=4, boundaries=[4, 8], batch_size=2)
    predicted = predicted.set_index("policy")
    name = "truncate" if overlap is None else "windows"
    whole = batches(padded_batches(source, batch_size=2, drop_remainder=False))
    apart = batches(bucketed_batches(source, boundaries=[4, 8], batch_size=2, drop_remainder=False))
    for made, policy in ((whole, name), (apart, f"{name} + buckets")):
        positions = sum(b["tokens"].size for b in made)
        padded = sum(int((b["tokens"] == PAD).sum()) for b in made)
        assert positions == predicted.loc[policy, "positions"]
        assert padded / positions == pytest.approx(predicted.loc[policy, "padded_share"])
        assert sum(scored(row for b in made for row in b["targets"]).values()) == predicted.loc[policy, "tokens"]
    assert {b["tokens"].shape[1] for b in apart} == {4, 8, 16}
    assert {b["tokens"].shape[1] for b in whole} == {16}


def test_full_batches_have_one_shape_per_bucket():
    source = WindowSource([np.arange(n % 16 + 2) for n in range(200)], 16)
    made = batches(bucketed_batches(source, boundaries=[4, 8], batch_size=4))
    assert {b["tokens"].shape for b in made} == {(16, 4), (8, 8), (4, 16)}
    options = {"boundaries": [8], "batch_size": 4, "world_size": 2, "drop_remainder": False}
    shards = [batches(bucketed_batches(source, rank_id=r, **options)) for r in (0, 1)]
    seen = [{int(s) for b in shard for s in b["sample"]} for shard in shards]
    assert seen[0] | seen[1] == set(range(200))
    assert not seen[0] & seen[1]


def test_windows_as_a_transform():
    assert [w.tolist() for w in window_rows(range(8), 4, 1)] == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]
    assert [w.tolist() for w in window_rows([7], 4, 1)] == [[7]]


def test_what_cannot_be_batched_is_told():
    with pytest.raises(UnknownParameterError, match="nothing to predict"):
        WindowSource([np.array([1])], 16)
    with pytest.raises(UnknownParameterError, match="does not fit"):
        WindowSource(SEQUENCES, 16, overlap=16)
    for wrong in ([8, 4], [0], [4, 4]):
        with pytest.raises(UnknownParameterError, match="no upper lengths"):
            bucketed_batches(WindowSource(SEQUENCES, 16), boundaries=wrong, batch_size=2)
