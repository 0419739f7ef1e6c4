"""Documents -> samples whose input varies (perturbed, shorter, longer) while the scored targets stay the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from workbench.analyses.perturbations import PERTURBATIONS, perturbed
from workbench.analyses.variants import ORIGINAL
from workbench.probes.corpus import Sample
from workbench.probes.language_model import IGNORED_TARGET

Encode = Callable[[str], Sequence[int]]
Varied = dict[str, list[Sample]]  # variant -> samples
SCORED_SHARE = 0.5  # of a window: its second half is scored, its first half is the context that is perturbed
PREVIEW_CHARACTERS = 80


def perturbed_samples(
    documents: Mapping[str, str], *, subset: str, encode: Encode, context_length: int, per_subset: int, seed: int = 0
) -> Varied:
    """Windows of which the second half is scored, and their like with a perturbed first half.

    Only windows whose context a perturbation changes have that variant; the original holds all windows. The perturbed
    context is cut on the left, or begins earlier in the document, to fill its half.

    Args:
        documents: id -> text, held out from training.
        subset: name.
        encode: text -> tokens, without special ones.
        context_length: tokens of a window.
        per_subset: windows at most, taken from the documents in turns.
        seed: of the perturbations.
    """
    scored = round(context_length * SCORED_SHARE)
    context = context_length - scored + 1  # its last token predicts the first that is scored
    found: Varied = {ORIGINAL: [], **{name: [] for name in PERTURBATIONS}}
    for document_id, place, before, after in _in_turns(documents, encode, context, scored, per_subset):
        sample_id, behind = f"{document_id}@{place}", list(encode(after))[:scored]
        variants = {ORIGINAL: before} | {name: perturbed(before, name, seed=seed) for name in PERTURBATIONS}
        for name, text in variants.items():
            tokens = list(encode(text))[-context:]
            if len(tokens) == context and (text != before or name == ORIGINAL):
                found[name].append(_sample(subset, sample_id, document_id, [*tokens, *behind], scored, text))
    return found


def context_samples(
    documents: Mapping[str, str],
    *,
    subset: str,
    encode: Encode,
    training_length: int,
    lengths: Sequence[int],
    per_subset: int,
) -> dict[int, list[Sample]]:
    """Windows that end with the same scored tokens and see contexts of different lengths.

    A quarter of the shortest length is scored. Only places in documents that fill the longest context count, so that
    every length is scored on the same targets.

    Args:
        documents: id -> text, held out from training.
        subset: name.
        encode: text -> tokens.
        training_length: what the others are compared with.
        lengths: window lengths in tokens.
        per_subset: places at most, taken from the documents in turns.

    Returns:
        Length -> samples, the training length first; none where no document is long enough.
    """
    scored = max(min(lengths) // 4, 1)
    order = sorted({training_length, *lengths}, key=lambda n: (n != training_length, n))
    found: dict[int, list[Sample]] = {n: [] for n in order}
    streams = {d: list(encode(text)) for d, text in documents.items()}
    for document_id, end in _ends(streams, max(order), per_subset):
        for length in order:
            window = streams[document_id][end - length : end + 1]
            preview = documents[document_id]
            found[length].append(_sample(subset, f"{document_id}@{end}", document_id, window, scored, preview))
    return found


def _ends(streams: Mapping[str, Sequence[int]], longest: int, most: int) -> Iterator[tuple[str, int]]:
    """Places in documents that have `longest` tokens before them, the documents in turns, not overlapping."""
    places = {d: list(range(longest, len(tokens) - 1, longest)) for d, tokens in streams.items()}
    yield from _turns(places, most)


def _turns(places: Mapping[str, list[int]], most: int) -> Iterator[tuple[str, int]]:
    rounds = max((len(p) for p in places.values()), default=0)
    taken = 0
    for k in range(rounds):
        for document_id, own in places.items():
            if k < len(own) and taken < most:
                taken += 1
                yield document_id, own[k]


def _in_turns(
    documents: Mapping[str, str], encode: Encode, context: int, scored: int, most: int
) -> Iterator[tuple[str, int, str, str]]:
    """(document, place, text before, text behind) with enough tokens on both sides, with some to spare before."""
    sizes = {}
    for document_id, text in documents.items():
        per_token = len(text) / max(len(encode(text)), 1)
        sizes[document_id] = math.ceil(1.5 * context * per_token), math.ceil(1.2 * scored * per_token)
    places = {d: list(range(before, len(documents[d]) - after, before + after)) for d, (before, after) in sizes.items()}
    for document_id, place in _turns(places, most):
        (size_before, size_after), text = sizes[document_id], documents[document_id]
        before, after = text[place - size_before : place], text[place : place + size_after]
        if len(encode(before)) >= context and len(encode(after)) >= scored:
            yield document_id, place, before, after


def _sample(subset: str, sample_id: str, document_id: str, stream: Sequence[int], scored: int, preview: str) -> Sample:
    tokens = np.array(stream, np.int32)
    targets = np.full(len(tokens) - 1, IGNORED_TARGET, np.int32)
    targets[-scored:] = tokens[-scored:]
    return Sample(
        subset=subset,
        sample_id=sample_id,
        document_id=document_id,
        tokens=tokens[:-1],
        targets=targets,
        scored_bytes=0,  # only losses per token are compared
        preview=preview[:PREVIEW_CHARACTERS],
    )
