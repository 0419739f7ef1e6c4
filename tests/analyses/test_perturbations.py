"""Typed perturbations: what they change, what they leave, and that a seed decides."""

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses.perturbations import (
    NEIGHBOURS,
    PERTURBATIONS,
    case,
    perturbed,
    shuffled_sentences,
    spacing,
    typos,
)

TEXT = "The quick brown fox jumps over the lazy dog. It did not rain. Nobody came home, and the fire went out.\n" * 4


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_the_same_seed_gives_the_same_text_and_another_seed_another(name):
    assert perturbed(TEXT, name, seed=1) == perturbed(TEXT, name, seed=1) != TEXT
    assert len({perturbed(TEXT, name, seed=s) for s in range(8)}) > 1


@settings(deadline=None)
@given(st.text(alphabet=string.ascii_letters + " .\n", max_size=200), st.integers(0, 100))
def test_shuffling_keeps_every_sentence(text, seed):
    mixed = shuffled_sentences(text, random.Random(seed))
    assert sorted(mixed) == sorted(text)


@settings(deadline=None)
@given(st.text(alphabet=string.ascii_letters + " .,", max_size=200), st.integers(0, 100))
def test_spacing_changes_blanks_only(text, seed):
    assert spacing(text, random.Random(seed)).replace(" ", "") == text.replace(" ", "")


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(0, 100))
def test_case_changes_case_only(text, seed):
    assert case(text, random.Random(seed)).casefold().lower() in {
        text.upper().casefold().lower(),
        text.lower().casefold().lower(),
    }


def test_typos_hit_the_stated_share_of_words_by_one_letter():
    words = ["keyboard"] * 4000
    changed = typos(" ".join(words), random.Random(0)).split(" ")
    hit = [w for w in changed if w != "keyboard"]
    # 5 % of 4000, of which one way in four may leave the word as it is only where both letters are equal (never here)
    assert 150 < len(hit) < 250
    assert all(abs(len(w) - 8) <= 1 for w in hit)
    assert typos("短い", random.Random(0)) == "短い"  # one CJK character only is not swapped


def test_chinese_characters_change_places():
    text = "今天天气很好我们出去玩" * 30
    changed = typos(text, random.Random(1))
    assert changed != text
    assert sorted(changed) == sorted(text)


def test_neighbours_are_mutual_keys():
    assert set(NEIGHBOURS) == set(string.ascii_lowercase)
    assert all(set(near) <= set(string.ascii_lowercase) - {key} for key, near in NEIGHBOURS.items())
