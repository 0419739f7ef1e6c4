"""Keep the last batches of a training, and write them down when the loss jumps: which samples were they?"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import Callback, RunContext

from workbench.analyses.statistics import MAD_TO_SIGMA, mad
from workbench.errors import UnknownParameterError
from workbench.probes.language_model import TokenScores
from workbench.probes.recorder import Recorder
from workbench.probes.recorder_options import batch_parts
from workbench.probes.signals import read_outputs

WINDOW = 50  # losses that tell what is usual
FEWEST = 20
JUMP_SIGMAS = 8.0
QUIET_STEPS = 10  # after a jump: the same episode
Preview = Callable[[Sequence[np.ndarray]], str]
RowLosses = Callable[[Sequence[ms.Tensor]], np.ndarray]


class BatchWatch(Callback):
    """Record the samples of the batch at which the loss jumped, and of those before it, into `batches/rank_<r>.jsonl`.

    A jump is a loss `JUMP_SIGMAS` robust deviations above the median of the last `WINDOW`, or one that is not finite.
    Between jumps the cost is a list of references.

    Args:
        recorder: of the run; stands before this in the callback list.
        before: batches before the jump that are kept.
        id_column: number of the input that holds sample ids, if one does; by default none, and the hash of a sample's
            inputs stands for it.
        preview: inputs of one sample -> text; by default its first numbers.
        row_losses: scores a batch row by row after a jump, to tell which sample it was; see `token_losses`.
        most: jumps that are recorded at most.

    Raises:
        UnknownParameterError: `before` or `most` makes no sense.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        before: int = 3,
        id_column: int | None = None,
        preview: Preview | None = None,
        row_losses: RowLosses | None = None,
        most: int = 20,
    ) -> None:
        super().__init__()
        if before < 0 or most < 1:
            raise UnknownParameterError(
                f"before={before!r} and most={most!r} are no counts.", fix="give before >= 0 and most >= 1"
            )
        self.recorder, self.most = recorder, most
        self._id_column, self._preview, self._row_losses = id_column, preview or first_numbers, row_losses
        self._batches: deque[tuple[int, float, Sequence[Any]]] = deque(maxlen=before + 1)
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._last_jump = -QUIET_STEPS
        self._jumps = 0

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Keep the batch; write all that are kept if the loss jumped."""
        params = run_context.original_args()
        loss = read_outputs(params.net_outputs).loss
        if loss is None:
            return
        step = self.recorder.step
        self._batches.append((step, loss, batch_parts(params.train_dataset_element)))
        if is_jump(self._losses, loss) and step - self._last_jump >= QUIET_STEPS and self._jumps < self.most:
            self._last_jump, self._jumps = step, self._jumps + 1
            for record in self._records(step):
                self.recorder.writer.extra("batches", record)
        if math.isfinite(loss):
            self._losses.append(loss)

    def _records(self, spike_step: int) -> Iterator[dict[str, object]]:
        for step, batch_loss, inputs in self._batches:
            arrays = [part.asnumpy() if isinstance(part, ms.Tensor) else np.asarray(part) for part in inputs]
            losses = self._row_losses(inputs) if self._row_losses else None
            for row in range(len(arrays[0]) if arrays and arrays[0].ndim else 0):
                own = [a[row] for a in arrays if a.ndim and len(a) > row]
                named = None if self._id_column is None else str(arrays[self._id_column][row])
                yield {
                    "spike_step": spike_step, "step": step, "row": row, "sample_id": named,
                    "fingerprint": fingerprint(own), "batch_loss": batch_loss,
                    "loss": None if losses is None else float(losses[row]), "preview": self._preview(own),
                }  # fmt: skip


def is_jump(losses: Sequence[float] | deque[float], loss: float) -> bool:
    """Whether `loss` stands out from those before it; never with fewer than `FEWEST`, unless it is not finite."""
    if not math.isfinite(loss):
        return True
    if len(losses) < FEWEST:
        return False
    usual = float(np.median(losses))
    return loss > usual + JUMP_SIGMAS * max(MAD_TO_SIGMA * mad(np.array(losses)), 1e-6)


def fingerprint(inputs: Sequence[np.ndarray]) -> str:
    """Hash of a sample's inputs."""
    digest = hashlib.blake2b(digest_size=8)
    for array in inputs:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def first_numbers(inputs: Sequence[np.ndarray], *, count: int = 16) -> str:
    """The beginning of a sample's first input."""
    return " ".join(str(x) for x in np.ravel(inputs[0])[:count])


def token_losses(network: nn.Cell) -> RowLosses:
    """Rows' losses of a language model whose batches are (tokens, targets, ...), nats per token.

    In graph mode this compiles a forward graph at the first jump.
    """
    scores = TokenScores(network)

    def losses(inputs: Sequence[ms.Tensor]) -> np.ndarray:
        was_training = bool(network.training)
        scores.set_train(False)
        loss, _ = scores(inputs[0], inputs[1])
        if was_training:
            network.set_train(True)
        scored = (inputs[1].asnumpy() >= 0).sum(1)
        return np.where(inputs[1].asnumpy() >= 0, loss.asnumpy(), 0.0).sum(1) / np.maximum(scored, 1)

    return losses
