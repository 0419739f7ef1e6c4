"""Activation statistics per layer while training: hooks on cells, a record every k steps into `layers/rank_<r>.jsonl`.

Off unless it stands in the callback list. In PyNative mode the hooks compute on the recorded steps only. In graph mode
a hook is compiled into the graph, so it computes at every step and leaves its numbers in a Parameter; only reading them
is rare. What that costs is in docs/layers.md.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.train import Callback, RunContext

from workbench.errors import UnknownParameterError
from workbench.probes.recorder import Recorder

log = logging.getLogger(__name__)
LISTS = (nn.CellList, nn.SequentialCell)
STATISTICS = 5  # mean, mean of squares, largest absolute value, share of zeros, tokens per range
Select = Callable[[str, nn.Cell], bool]


class LayerProbe(Callback):
    """Record mean, spread, largest value and share of zeros of layers' outputs, over all tokens and by position.

    Make it before the first step: a hook on a cell that is compiled already does nothing. In the callback list it
    stands behind the Recorder and before InlineEval, which runs the same cells on other data.

    Args:
        network: cell whose layers are watched (the model inside the loss cell).
        recorder: of the run.
        every: steps between records.
        position_ranges: equal ranges of token positions (axis 1 of outputs with three axes) that are recorded one by
            one; a layer whose length is no multiple of it has only its whole.
        select: which cells, by name and cell; by default `default_layers`. In graph mode MindSpore skips hooks on the
            elements of CellList and SequentialCell themselves: choose cells inside them.

    Raises:
        UnknownParameterError: no cell is selected, or `every` or `position_ranges` is below 1.
    """

    def __init__(
        self,
        network: nn.Cell,
        recorder: Recorder,
        *,
        every: int = 50,
        position_ranges: int = 8,
        select: Select | None = None,
    ) -> None:
        super().__init__()
        if every < 1 or position_ranges < 1:
            raise UnknownParameterError(
                f"every={every!r} and position_ranges={position_ranges!r} are no counts.", fix="give numbers from 1 on"
            )
        chosen = default_layers(network) if select is None else _selected(network, select)
        if not chosen:
            raise UnknownParameterError(
                "No layer of the network is selected.", fix="let select(name, cell) choose some of cells_and_names()"
            )
        self.recorder, self.every = recorder, every
        self._unseen_told = False
        self._is_due = True  # read by hooks in PyNative mode; a compiled hook does not see it change
        self._eager = ms.get_context("mode") == ms.PYNATIVE_MODE
        self._buffers = {name: self._watch(name, cell, position_ranges) for name, cell in chosen.items()}

    def on_train_begin(self, run_context: RunContext) -> None:
        """Check the order of the callbacks."""
        names = [type(c).__name__ for c in run_context.original_args().list_callback or ()]
        if "InlineEval" in names[: names.index(type(self).__name__)]:
            raise UnknownParameterError(
                "InlineEval stands before LayerProbe: the layers' numbers would be those of the evaluation.",
                fix="order the callbacks Recorder, LayerProbe, InlineEval",
            )

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Let the hooks compute at this step, if it is to be recorded."""
        self.arm(self.recorder.step)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Write the record of the step, if it is due."""
        if self._due_at(self.recorder.step):
            self.record(self.recorder.step)

    def arm(self, step: int) -> None:
        """For hand-written loops: call it before the step, and `record` behind it where `step` is due."""
        self._is_due = self._due_at(step)

    def record(self, step: int) -> None:
        """Write the statistics of the last step."""
        layers: dict[str, list[list[object]]] = {}
        widths = [0]
        for name, buffer in self._buffers.items():
            raw = buffer.asnumpy()
            rows = layer_rows(raw)
            if rows:
                layers[name] = [[_plain(v) for v in row] for row in rows]
            if len(rows) > 1:
                widths.append(int(raw[0, -1]))
        self._tell_unseen(set(self._buffers) - set(layers))
        ranges = max((len(rows) - 1 for rows in layers.values()), default=0)
        positions = [[k * widths[-1], (k + 1) * widths[-1] - 1] for k in range(ranges)]
        self.recorder.writer.extra("layers", {"step": step, "positions": positions, "layers": layers})
        self._is_due = False

    def _due_at(self, step: int) -> bool:
        return step % self.every == 0 or step == 1

    def _watch(self, name: str, cell: nn.Cell, ranges: int) -> ms.Parameter:
        blank = np.full((ranges, STATISTICS), np.nan, np.float32)
        buffer = ms.Parameter(ms.Tensor(blank), name=f"layer_probe.{name}", requires_grad=False)

        def hook(_cell: nn.Cell, _inputs: object, output: object) -> None:
            x = ops.stop_gradient(output[0] if isinstance(output, tuple) else output)
            parts = ranges if x.ndim >= 3 and x.shape[1] % ranges == 0 else 1
            ops.assign(buffer, range_statistics(x, parts, ranges))

        def eager_hook(cell: nn.Cell, inputs: object, output: object) -> None:
            if self._is_due:
                hook(cell, inputs, output)

        cell.register_forward_hook(eager_hook if self._eager else hook)
        return buffer

    def _tell_unseen(self, unseen: set[str]) -> None:
        if unseen and not self._unseen_told:
            self._unseen_told = True
            log.warning(
                "No statistics of %d layer(s) (%s ...): their hooks do not run. In graph mode choose cells inside the "
                "elements of CellList and SequentialCell, and make the LayerProbe before the first step.",
                len(unseen), sorted(unseen)[0],
            )  # fmt: skip


def range_statistics(x: ms.Tensor, parts: int, rows: int) -> ms.Tensor:
    """(rows, 5) statistics of `parts` equal ranges of axis 1; rows beyond them are NaN. Runs inside a graph."""
    x = ops.cast(x, ms.float32)
    tokens = ops.fill(ms.float32, (parts,), x.shape[1] // parts if x.ndim > 1 else 1)
    if parts > 1:
        batch, length = x.shape[0], x.shape[1]
        x = x.reshape(batch, parts, length // parts, -1).transpose(1, 0, 2, 3)
    flat = x.reshape(parts, -1)
    zeros = ops.cast(flat == 0, ms.float32).mean(1)
    found = ops.stack([flat.mean(1), (flat * flat).mean(1), ops.amax(ops.abs(flat), 1), zeros, tokens], 1)
    if parts == rows:
        return found
    return ops.concat((found, ops.fill(ms.float32, (rows - parts, STATISTICS), float("nan"))))


def layer_rows(raw: np.ndarray) -> list[list[float]]:
    """[mean, spread, max_abs, zero_share] over all ranges, then of each; nothing where the hook never ran.

    Args:
        raw: (ranges, 5) as `range_statistics` gives them; ranges hold equally many elements.
    """
    known = raw.astype(np.float64)
    if np.isnan(known[0]).all():
        return []
    if len(known) > 1 and np.isnan(known[1]).all():
        return [_row(known[:1])]
    parts = [_row(known[k : k + 1]) for k in range(len(known))] if len(known) > 1 else []
    return [_row(known), *parts]


def _row(rows: np.ndarray) -> list[float]:
    mean, square, zeros = (float(rows[:, k].mean()) for k in (0, 1, 3))
    return [mean, math.sqrt(max(square - mean**2, 0.0)) if math.isfinite(square) else square, float(rows[:, 2].max()),
            zeros]  # fmt: skip


def _plain(value: float) -> object:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity"


def default_layers(network: nn.Cell) -> dict[str, nn.Cell]:
    """The network's own parts, those of list elements instead of the elements: {name: cell}."""
    return dict(_parts("", network))


def _parts(prefix: str, cell: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    for name, part in cell.name_cells().items():
        path = f"{prefix}{name}"
        if not isinstance(part, LISTS):
            yield path, part
            continue
        for number, element in part.name_cells().items():
            inner = dict(_parts(f"{path}.{number}.", element))
            yield from inner.items() if inner else {f"{path}.{number}": element}.items()


def _selected(network: nn.Cell, select: Select) -> dict[str, nn.Cell]:
    return {name: cell for name, cell in network.cells_and_names() if name and select(name, cell)}
