"""Read loss, gradient norms, learning rate and loss scale out of whatever a training step returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.probes.train_step import split_signals


@dataclass(frozen=True, kw_only=True)
class StepSignals:
    """Numbers of one step; None where the step does not give them. Norms are L2, before clipping."""

    loss: float | None = None
    gradient_norms: np.ndarray | None = None  # per parameter
    names: Sequence[str] = ()
    learning_rate: float | None = None
    overflow: bool | None = None
    loss_scale: float | None = None
    groups: Mapping[str, float] = field(default_factory=dict)


def read_outputs(outputs: object, names: Sequence[str] = ()) -> StepSignals:
    """Signals of a step's outputs.

    Known forms: the loss; `(loss, signals)` of RecordedStep; `(loss, {name: gradient})` of
    `nn.TrainOneStepCell(return_grad=True)`; `(loss, overflow, scale, ...)` of the loss-scale cells; a mapping with
    `loss`. Of other forms the first part is the loss; it is missing where that is not a number. Waits for the device.
    """
    parts = outputs if isinstance(outputs, tuple | list) else (outputs,)
    loss = _loss(parts[0] if parts else None)
    if len(parts) == 2 and isinstance(parts[1], Mapping):
        norms = np.array([_norm(g) for g in parts[1].values()])
        return StepSignals(loss=loss, gradient_norms=norms, names=list(parts[1]), overflow=_overflows(norms))
    if len(parts) == 2 and names and isinstance(parts[1], ms.Tensor) and len(names) + 1 == parts[1].size:
        norms, rate = split_signals(_array(parts[1]))
        return StepSignals(
            loss=loss,
            gradient_norms=norms,
            names=names,
            overflow=_overflows(norms),
            learning_rate=None if np.isnan(rate) else rate,
        )
    if len(parts) >= 3 and _is_flag(flag := _array(parts[1])) and (scale := _array(parts[2])).size == 1:
        return StepSignals(loss=loss, overflow=bool(flag.item()), loss_scale=float(scale.item()))
    return StepSignals(loss=loss)


def _loss(output: object) -> float | None:
    array = _array(output.get("loss") if isinstance(output, Mapping) else output)
    return float(array.mean()) if array.size and array.dtype.kind in "fiu" else None


def _is_flag(array: np.ndarray) -> bool:
    """Whether it can be an overflow flag; networks also return (loss, logits, labels)."""
    return array.size == 1 and (array.dtype.kind == "b" or array.item() in (0, 1))


def _array(value: object) -> np.ndarray:
    return value.asnumpy() if isinstance(value, ms.Tensor) else np.asarray(value)


def _norm(gradient: ms.Tensor) -> float:
    return float(np.linalg.norm(gradient.asnumpy().astype(np.float64).ravel()))


def _overflows(norms: np.ndarray) -> bool:
    return not bool(np.isfinite(norms).all())


def learning_rate(optimizer: nn.Optimizer | None) -> float | None:
    """Rate of the coming step; the largest where groups have their own. Costs about 1 ms with a schedule."""
    if optimizer is None:
        return None
    rates = optimizer.get_lr()
    values = [float(np.max(_array(r))) for r in (rates if isinstance(rates, tuple | list) else (rates,))]
    return max(values, default=None)


def layer_group(name: str) -> str:
    """Default parameter group: the path up to the first number (`blocks.3.x.weight` is `blocks.3`), else the module."""
    match = re.match(r"(.*?\.\d+)(\.|$)", name)
    if match:
        return match.group(1)
    return name.split(".")[0] if "." in name else name


class SquaredNorms(nn.Cell):
    """Sum of squares / 2 of each parameter, computed on the device: only as many numbers as parameters travel."""

    def __init__(self, parameters: Sequence[ms.Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.parameters = ms.ParameterTuple(tuple(parameters))
        self.l2_loss = ops.L2Loss()

    def construct(self) -> ms.Tensor:
        """Vector with one number per parameter."""
        squares = []
        for parameter in self.parameters:
            squares.append(self.l2_loss(ops.cast(parameter, ms.float32)))
        return ops.stack(squares)


class ParameterNorms:
    """L2 norms of the parameters, measured again every `every` steps."""

    def __init__(self, parameters: Sequence[ms.Parameter], every: int) -> None:
        self._cell = SquaredNorms(parameters)
        self.names = [p.name for p in parameters]
        self.every = every
        self.norms: np.ndarray | None = None

    def update(self, step: int) -> np.ndarray | None:
        """Norms as last measured; None before the first measurement."""
        if self.every > 0 and (self.norms is None or step % self.every == 0):
            self.norms = np.sqrt(2.0 * self._cell().asnumpy().astype(np.float64))
        return self.norms


def group_norms(names: Sequence[str], norms: np.ndarray | None, group_of: Callable[[str], str]) -> dict[str, float]:
    """L2 norm per parameter group from the norms per parameter: the root of the sum of squares."""
    if norms is None:
        return {}
    squares: dict[str, float] = {}
    for name, norm in zip(names, norms, strict=True):
        group = group_of(name)
        squares[group] = squares.get(group, 0.0) + float(norm) ** 2
    return {group: float(np.sqrt(total)) for group, total in squares.items()}


def norm_fields(
    signals: StepSignals, parameter_norms: ParameterNorms | None, group_of: Callable[[str], str], step: int
) -> dict[str, object]:
    """Fields of a step's record: `parameter_norm`, and `groups` as {group: [gradient norm, parameter norm]}."""
    if signals.gradient_norms is None:
        return {}
    norms = parameter_norms.update(step) if parameter_norms else None
    gradients = group_norms(signals.names, signals.gradient_norms, group_of)
    parameters = group_norms(parameter_norms.names, norms, group_of) if parameter_norms else {}
    return {
        "parameter_norm": None if norms is None else float(np.sqrt(np.sum(norms**2))),
        "groups": {g: [n if np.isfinite(n) else None, parameters.get(g)] for g, n in gradients.items()},
    }


def device_memory() -> dict[str, object]:
    """Fields of a step's record: bytes allocated and reserved on the device; none on CPU, whose counters stay 0."""
    if ms.get_context("device_target") == "CPU":
        return {}
    return {
        "device_allocated_bytes": float(ms.runtime.memory_allocated()),
        "device_reserved_bytes": float(ms.runtime.memory_reserved()),
    }
