"""Export a network as MindIR, load it again, and compare the two on samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from workbench.errors import CheckpointError
from workbench.probes.corpus import Sample
from workbench.probes.scoring import Scorer

TOLERANCE_NATS = 1e-3  # of a sample's loss per token; on CPU the two were equal to the last bit


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The graph to evaluate with, or the reason why the live cell is used instead."""

    network: nn.Cell
    is_graph: bool
    reason: str  # why not; empty for a graph
    largest_difference_nats: float | None  # per token, against the live cell


def export_mindir(network: nn.Cell, path: Path) -> Path:
    """Write `network` (tokens (batch, length) -> logits) as MindIR for any batch and length.

    Raises:
        CheckpointError: MindSpore cannot export it; the reason is in the text.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    was_training = bool(network.training)
    network.set_train(False)
    tokens = ms.Tensor(shape=[None, None], dtype=ms.int32)
    try:
        ms.export(network, tokens, file_name=str(path.with_suffix("")), file_format="MINDIR")
    except (RuntimeError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{type(network).__name__} cannot be exported as MindIR: {_first_line(error)}",
            fix="evaluate the live cell, which is what happens without an export",
        ) from error
    finally:
        if was_training:
            network.set_train(True)
    return path.with_suffix(".mindir")


def load_mindir(path: Path) -> nn.GraphCell:
    """The network in a MindIR file; it needs no Python code of the model.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        return nn.GraphCell(ms.load(str(path)))
    except (RuntimeError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path.name} cannot be read as MindIR: {_first_line(error)}", fix="export the model again"
        ) from error


def exported(network: nn.Cell, samples: Sequence[Sample], path: Path, *, batch_size: int = 16) -> Exported:
    """Export, load and compare on `samples`; the live cell with the reason where any of it fails.

    The graph is taken if each sample's loss per token differs by at most `TOLERANCE_NATS`.
    """
    try:
        graph = load_mindir(export_mindir(network, path))
        difference = largest_difference(network, graph, samples, batch_size=batch_size)
    except (CheckpointError, RuntimeError) as error:
        return Exported(network=network, is_graph=False, reason=_first_line(error), largest_difference_nats=None)
    if not difference <= TOLERANCE_NATS:
        reason = f"losses differ by up to {difference:.2g} nats per token"
        return Exported(network=network, is_graph=False, reason=reason, largest_difference_nats=difference)
    return Exported(network=graph, is_graph=True, reason="", largest_difference_nats=difference)


def largest_difference(first: nn.Cell, second: nn.Cell, samples: Sequence[Sample], *, batch_size: int = 16) -> float:
    """Largest absolute difference of a sample's loss per token between two networks, nats."""
    losses = []
    for network in (first, second):
        rows = Scorer(network, batch_size=batch_size).score(samples)
        losses.append(np.array([float(str(r["loss_nats"])) / max(int(str(r["scored_tokens"])), 1) for r in rows]))
    return float(np.abs(losses[0] - losses[1]).max(initial=0.0))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
