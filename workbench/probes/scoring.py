"""A network and samples -> rows of table `eval_samples`; keeps its compiled graphs from one scoring to the next."""

from __future__ import annotations

import bisect
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import mindspore as ms
import numpy as np
from mindspore import nn

from workbench.analyses.position_loss import FIRST_POSITIONS
from workbench.errors import UnknownParameterError
from workbench.probes.corpus import Sample
from workbench.probes.language_model import IGNORED_TARGET, TokenScores

MakeScores = Callable[[nn.Cell], nn.Cell]
Progress = Callable[[str, int], None]


class _Given(nn.Cell):
    """Stands for a network whose output is there already."""

    def construct(self, logits: ms.Tensor) -> ms.Tensor:
        """What came in."""
        return logits


class Scorer:
    """Scores samples with the network's present parameters; each shape is compiled once in the scorer's life.

    An exported graph (`nn.GraphCell`) cannot be a part of another graph (MindSpore 2.10 fails: "The pointer[context] is
    null"), so it is called by itself and its logits are scored by a second, small graph.

    Args:
        network: logits for tokens; a Cell, or the GraphCell of a loaded MindIR.
        batch_size: samples per call; a partial batch is filled up with its last sample, whose extra scores are dropped.
        buckets: lengths to which shorter samples are padded on the right, so that few graphs are compiled; none by
            default: a graph per shape. Right for networks in which a token does not see later ones.
        pad_token: token to pad with; its target is not scored.
        scores: makes the cell that returns, for (tokens, targets), per target its loss in nats and whether it was the
            most likely one.
    """

    def __init__(
        self,
        network: nn.Cell,
        *,
        batch_size: int = 16,
        buckets: Sequence[int] = (),
        pad_token: int = 0,
        scores: MakeScores = TokenScores,
    ) -> None:
        self.network, self.batch_size = network, batch_size
        self.buckets, self.pad_token = sorted(buckets), pad_token
        self._graph = network if isinstance(network, nn.GraphCell) else None
        self._scores = scores(_Given() if self._graph is not None else network)
        self._compiled: set[object] = set()

    def compile(self, samples: Sequence[Sample]) -> float:
        """Compile what the samples need and is not compiled yet, on blank batches; return the seconds it took."""
        start = time.perf_counter()
        for form, one in self._new_forms(samples).items():
            blanks = (np.zeros((self.batch_size, *a.shape), a.dtype) for a in (one.tokens, one.targets))
            self._call(*blanks)
            self._compiled.add(form)
        return time.perf_counter() - start

    def is_compiled(self, samples: Sequence[Sample]) -> bool:
        """Whether scoring the samples needs no graph that is not there yet."""
        return not self._new_forms(samples)

    def _new_forms(self, samples: Sequence[Sample]) -> dict[object, Sample]:
        forms = {_form(s): s for s in map(self._padded, samples)}
        return {form: s for form, s in forms.items() if form not in self._compiled}

    def score(self, samples: Sequence[Sample], *, progress: Progress | None = None) -> list[dict[str, object]]:
        """Rows of table `eval_samples` without model state, a row per sample."""
        rows: list[dict[str, object]] = []
        for batch in self._batches(samples):
            rows.extend(self._score_batch(batch))
            if progress:
                progress(batch[0].subset, len(batch))
        return rows

    def _padded(self, sample: Sample) -> Sample:
        if not self.buckets:
            return sample
        place = bisect.bisect_left(self.buckets, len(sample.tokens))
        if place == len(self.buckets):
            raise UnknownParameterError(
                f"Sample {sample.sample_id} has {len(sample.tokens)} tokens, more than the largest bucket "
                f"({self.buckets[-1]}).",
                fix="add a larger bucket, or cut the samples",
            )
        missing = self.buckets[place] - len(sample.tokens)
        return replace(
            sample,
            tokens=np.pad(sample.tokens, (0, missing), constant_values=self.pad_token),
            targets=np.pad(sample.targets, (0, missing), constant_values=IGNORED_TARGET),
        )

    def _batches(self, samples: Sequence[Sample]) -> Iterator[list[Sample]]:
        by_form: dict[object, list[Sample]] = {}
        for sample in samples:
            by_form.setdefault(_form(self._padded(sample)), []).append(sample)
        for group in by_form.values():
            for start in range(0, len(group), self.batch_size):
                yield group[start : start + self.batch_size]

    def _score_batch(self, batch: Sequence[Sample]) -> Iterator[dict[str, object]]:
        padded = [self._padded(s) for s in batch]
        filled = [*padded, *[padded[-1]] * (self.batch_size - len(batch))]
        targets = np.stack([s.targets for s in filled])
        loss, correct = self._call(np.stack([s.tokens for s in filled]), targets)
        scored = targets >= 0
        by_token = np.where(scored, loss.asnumpy().astype(np.float64), 0.0)
        losses = by_token.sum(1)
        hits = (correct.asnumpy() & scored).sum(1)
        for k, sample in enumerate(batch):
            yield {
                "subset": sample.subset,
                "sample_id": sample.sample_id,
                "document_id": sample.document_id,
                "length_tokens": len(sample.tokens),
                "scored_tokens": int(scored[k].sum()),
                "scored_bytes": sample.scored_bytes,
                "loss_nats": float(losses[k]),
                "correct_tokens": int(hits[k]),
                "position_losses": position_losses(by_token[k], scored[k]),
                "preview": sample.preview,
            }

    def _call(self, tokens: np.ndarray, targets: np.ndarray) -> tuple[ms.Tensor, ms.Tensor]:
        """Score in evaluation mode, and leave the network in the mode it was in: it may be in training."""
        first, last = ms.Tensor(tokens), ms.Tensor(targets)
        was_training = bool(self.network.training)
        self._scores.set_train(False)
        try:
            loss, correct = self._scores(self._graph(first) if self._graph is not None else first, last)
        finally:
            if was_training:
                self.network.set_train(True)
        return loss, correct


def position_losses(by_token: np.ndarray, scored: np.ndarray) -> str | None:
    """Losses of one sample summed in bins of places that end at powers of two, for column `position_losses`.

    Args:
        by_token: loss per target, nats; 0 where it is not scored. Without an order of places (not one-dimensional, or a
            single target) there is nothing to tell.
        scored: which targets are scored.
    """
    if by_token.ndim != 1 or len(by_token) < 2:
        return None
    ends = [FIRST_POSITIONS]
    while ends[-1] < len(by_token):
        ends.append(2 * ends[-1])
    parts = [(end, by_token[start:end], scored[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    rows = [[end, round(float(losses.sum()), 6), int(known.sum())] for end, losses, known in parts if known.any()]
    return json.dumps(rows, separators=(",", ":"))


def _form(sample: Sample) -> object:
    """What a graph is compiled for; inputs need not be token ids, nor have a target each (a classifier's)."""
    return sample.tokens.shape, sample.tokens.dtype.str, sample.targets.shape
