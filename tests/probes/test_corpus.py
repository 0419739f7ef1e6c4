"""Documents, windows, held-out samples, mixing: by counting."""

import numpy as np
import pytest

from workbench.errors import UnknownParameterError
from workbench.probes.corpus import Document, fingerprint, held_out_samples, load_documents, windows
from workbench.probes.language_model import BEGIN, IGNORED_TARGET, PAD
from workbench.probes.text_dataset import training_samples

TEXT = bytes(range(65, 65 + 10))  # ten bytes


def document(number: int, subset: str = "letters", size: int = 10) -> Document:
    return Document(subset=subset, document_id=f"{subset}/{number}", text=TEXT[:size] * 1)


def test_windows_predict_every_byte_once():
    first, second, third = windows(document(0), context_length=4)
    assert first.tokens.tolist() == [BEGIN, 65, 66, 67]
    assert first.targets.tolist() == [65, 66, 67, 68]
    assert second.tokens.tolist() == [68, 69, 70, 71]
    assert third.tokens.tolist() == [72, 73, PAD, PAD]
    assert third.targets.tolist() == [73, 74, IGNORED_TARGET, IGNORED_TARGET]
    assert [s.scored_bytes for s in (first, second, third)] == [4, 4, 2]  # ten bytes in all
    assert [s.sample_id for s in (first, second, third)] == ["letters/0#0", "letters/0#4", "letters/0#8"]


def test_every_subset_has_held_out_documents_that_training_never_sees():
    documents = load_documents(limit_bytes=60_000)
    held = held_out_samples(documents, context_length=64, per_subset=12, seed=5)
    trained = {s.document_id for s in training_samples(documents, context_length=64)}
    assert set(held) == {"python", "english", "arithmetic", "chinese"}
    for subset, samples in held.items():
        assert samples, subset
        assert not {s.document_id for s in samples} & trained
    again = held_out_samples(documents, context_length=64, per_subset=12, seed=5)
    assert [s.sample_id for s in held["python"]] == [s.sample_id for s in again["python"]]


def test_documents_take_turns_in_the_held_out_sample():
    documents = [document(n) for n in range(200)]
    held = [d for d in documents if d.is_held_out]
    assert 8 <= len(held) <= 40  # about one in ten of 200
    samples = held_out_samples(documents, context_length=4, per_subset=len(held))["letters"]
    assert len({s.document_id for s in samples}) == len(held)  # one window of each before any gives a second


def test_weights_set_the_shares_without_repeating():
    documents = [document(n, "a") for n in range(300)] + [document(n, "b") for n in range(300)]
    samples = training_samples(documents, context_length=10, weights={"a": 0.75, "b": 0.25}, seed=1)
    subsets = [s.subset for s in samples]
    assert subsets.count("a") == pytest.approx(3 * subsets.count("b"), abs=3)
    assert len({s.sample_id for s in samples}) == len(samples)
    assert subsets != sorted(subsets)  # mixed


def test_arithmetic_is_right():
    for line in load_documents(["arithmetic"], limit_bytes=2000)[0].text.decode().splitlines():
        left, result = line.split(" = ")
        assert eval(left) == int(result)


def test_fingerprint_changes_with_any_byte():
    one, other = [document(1)], [document(1, size=9)]
    assert fingerprint(one) == fingerprint([document(1)])
    assert fingerprint(one) != fingerprint(other)


def test_unknown_subset_names_the_known_ones():
    with pytest.raises(UnknownParameterError, match="arithmetic"):
        load_documents(["poems"])


def test_samples_are_int32():
    sample = windows(document(0), context_length=16)[0]
    assert sample.tokens.dtype == np.int32
    assert sample.targets.dtype == np.int32
