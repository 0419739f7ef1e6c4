"""Exact and near duplicates against sets of windows counted by hand."""

import random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses.duplicates import (
    SIMILAR,
    WINDOW_BYTES,
    digest,
    near_groups,
    normal_form,
    repeated_samples,
    signature,
    similarity,
)
from workbench.tables import DATA_SAMPLES

WORDS = [f"word{n}" for n in range(2000)]


def text(seed: int, words: int = 150) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def changed(original: str, places: int, seed: int = 0) -> str:
    words = original.split()
    for place in random.Random(seed).sample(range(len(words)), places):
        words[place] = f"other{place}"
    return " ".join(words)


def true_similarity(one: str, other: str) -> float:
    sets = [
        {data[i : i + WINDOW_BYTES] for i in range(len(data) - WINDOW_BYTES + 1)}
        for data in (normal_form(t).encode() for t in (one, other))
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_the_estimate_follows_the_true_similarity():
    errors = []
    for seed in range(40):
        one = text(seed)
        other = changed(one, seed + 1, seed)
        errors.append(similarity(signature(one), signature(other)) - true_similarity(one, other))
    # standard error sqrt(J (1 - J) / 64) <= 0.0625: four of them bound any single one, the mean is unbiased
    assert max(map(abs, errors)) < 0.25
    assert abs(sum(errors) / len(errors)) < 0.03


def test_groups_of_near_duplicates():
    texts = [text(1), text(2), changed(text(1), 2), text(3), text(2).upper() + "\n", "short"]
    assert true_similarity(texts[0], texts[2]) > SIMILAR + 0.1
    groups = near_groups([signature(t) for t in texts])
    assert groups.tolist() == [0, 1, 0, pd.NA, 1, pd.NA]
    assert near_groups([]).tolist() == []


def test_unrelated_texts_are_never_grouped():
    groups = near_groups([signature(text(seed, 40 + seed % 100)) for seed in range(400)])
    assert groups.notna().sum() == 0


def test_chinese_texts_are_compared_too():
    one = "训练大模型时要检查数据是否重复以及样本是否被截断因为这会影响模型的质量和评估结果" * 2
    assert similarity(signature(one), signature(one.replace("质量", "品质"))) > 0.6
    assert similarity(signature(one), signature("完全不同的一段文字讲的是山水花鸟和四季的变化与人的心情" * 2)) < 0.2


@given(st.text(), st.sampled_from(["  ", "\n", "\t "]))
@settings(max_examples=50)
def test_white_space_and_case_do_not_matter(words, space):
    assert digest(words) == digest(space + space.join(words.split(" ")) + space)
    assert digest(normal_form(words)) == digest(words)


def test_the_first_of_a_group_repeats_nothing():
    samples = DATA_SAMPLES.check(
        pd.DataFrame(
            {
                "dataset": ["a", "a", "a", "b", "a", "a", "a"],
                "sample": [0, 1, 2, 0, 3, 4, 5],
                "digest": ["x", "y", "x", "x", "", "z", None],
                "is_empty": [False, False, False, False, True, False, None],
                "near_group": [0, None, 0, None, None, 0, None],
                "problem": [None] * 6 + ["not JSON"],
            },
            index=[7, 6, 5, 4, 3, 2, 1],
        )
    )
    samples.index = [7, 6, 5, 4, 3, 2, 1]
    repeated = repeated_samples(samples)
    assert repeated["exact"].tolist() == [False, False, True, False, False, False, False]
    assert repeated["near"].tolist() == [False, False, True, False, False, True, False]
    assert repeated.index.tolist() == samples.index.tolist()


def test_short_texts_are_not_compared():
    assert signature("a" * 39) is None
    assert signature("a" * 40) is not None
    assert similarity(signature("a" * 40), None) == pytest.approx(0.0)
