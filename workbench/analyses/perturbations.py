"""Typed, seeded changes of a text that a reader hardly minds: typos, case, spacing, order of sentences."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

RATE = 0.05  # share of the words that typos and spacing change
NEIGHBOURS: Mapping[str, str] = {
    "q": "wa", "w": "qes", "e": "wrd", "r": "etf", "t": "ryg", "y": "tuh", "u": "yij", "i": "uok", "o": "ipl",
    "p": "ol", "a": "qsz", "s": "awdx", "d": "sefc", "f": "drgv", "g": "fthb", "h": "gyjn", "j": "hukm", "k": "jil",
    "l": "kop", "z": "asx", "x": "zsdc", "c": "xdfv", "v": "cfgb", "b": "vghn", "n": "bhjm", "m": "njk",
}  # fmt: skip
WORD = re.compile(r"[A-Za-z]{3,}|[\u4e00-\u9fff]{2}")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def typos(text: str, pick: random.Random, *, rate: float = RATE) -> str:
    """In `rate` of the words two letters change places, one is doubled, left out, or hit the key beside it.

    Of CJK words two characters change places.
    """
    return WORD.sub(lambda m: _typo(m.group(0), pick) if pick.random() < rate else m.group(0), text)


def _typo(word: str, pick: random.Random) -> str:
    k = pick.randrange(len(word) - 1)
    swapped = word[:k] + word[k + 1] + word[k] + word[k + 2 :]
    if not word.isascii():
        return swapped
    near = NEIGHBOURS[word[k].lower()]
    hit = pick.choice(near)
    ways = [swapped, word[:k] + word[k] + word[k:], word[:k] + word[k + 1 :],
            word[:k] + (hit.upper() if word[k].isupper() else hit) + word[k + 1 :]]  # fmt: skip
    return pick.choice(ways)


def case(text: str, pick: random.Random) -> str:
    """All letters small or all capital, as `pick` decides; a text in scripts without case stays as it is."""
    return pick.choice([str.lower, str.upper])(text)


def spacing(text: str, pick: random.Random, *, rate: float = 2 * RATE) -> str:
    """Of `rate` of the blanks between words half are lost, half doubled; line breaks stay."""

    def changed(match: re.Match[str]) -> str:
        if pick.random() >= rate:
            return match.group(0)
        return pick.choice(["", "  "])

    return re.sub(r"(?<=\S) (?=\S)", changed, text)


def shuffled_sentences(text: str, pick: random.Random) -> str:
    """The sentences (or lines) in another order; a text of fewer than three stays as it is."""
    ends = [m.end() for m in SENTENCE_END.finditer(text)]
    parts = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True) if text[a:b]]
    if len(parts) < 3:
        return text
    order = parts[:]
    pick.shuffle(order)
    return "".join(order if order != parts else order[1:] + order[:1])


PERTURBATIONS: Mapping[str, Callable[[str, random.Random], str]] = {
    "typos": typos,
    "case": case,
    "spacing": spacing,
    "shuffled sentences": shuffled_sentences,
}


def perturbed(text: str, name: str, *, seed: int) -> str:
    """`text` changed in the way `name`; the same for the same seed."""
    return PERTURBATIONS[name](text, random.Random(f"{seed}:{name}:{len(text)}:{text[:40]}"))
