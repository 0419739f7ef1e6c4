"""Parts of the fault lab's trainings: losses, schedules and steps that are right or, by a switch, wrong."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from workbench.probes.language_model import NextTokenLoss

CHAIN = 20
SMALL_SIZE = 8  # numbers that a tiny operator works on


class AccumulatedLoss(nn.Cell):
    """Loss of a batch in micro-batches: their mean, or (`is_summed`) their sum, which scales it by their number."""

    def __init__(self, loss: NextTokenLoss, micro_batches: int, *, is_summed: bool) -> None:
        super().__init__(auto_prefix=False)
        self.loss, self.micro_batches = loss, micro_batches
        self.factor = 1.0 if is_summed else 1.0 / micro_batches

    def construct(self, tokens: ms.Tensor, targets: ms.Tensor) -> ms.Tensor:
        """Loss of one batch, whose size the micro-batches divide."""
        size = tokens.shape[0] // self.micro_batches
        total = self.loss(tokens[:size], targets[:size])
        for part in range(1, self.micro_batches):
            rows = slice(part * size, (part + 1) * size)
            total = total + self.loss(tokens[rows], targets[rows])
        return total * self.factor


class HalfPrecisionLogits(nn.Cell):
    """A network whose logits, and so their gradients, pass through half precision."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, tokens: ms.Tensor) -> ms.Tensor:
        """Logits of the network."""
        return ops.cast(ops.cast(self.network(tokens), ms.float16), ms.float32)


class TinyChain(nn.Cell):
    """`CHAIN` operators on a handful of numbers."""

    def construct(self, small: ms.Tensor) -> ms.Tensor:
        """The numbers, squashed."""
        for _ in range(CHAIN):
            small = ops.tanh(small)
        return small


class TinyOperators(nn.Cell):
    """A loss behind some `count` operators on a handful of numbers each: launching them costs more than their work."""

    def __init__(self, loss: nn.Cell, count: int) -> None:
        super().__init__(auto_prefix=False)
        self.loss = loss
        self.chains = nn.CellList([TinyChain() for _ in range(count // CHAIN)])  # the compiler limits one loop's length
        self.small = ms.Parameter(ops.ones((SMALL_SIZE,), ms.float32), name="small")

    def construct(self, tokens: ms.Tensor, targets: ms.Tensor) -> ms.Tensor:
        """The loss, plus nothing that matters."""
        small = self.small
        for chain in self.chains:
            small = chain(small)
        return self.loss(tokens, targets) + 1e-9 * small.sum()


class ScaledStep(nn.TrainOneStepCell):
    """A training step with a dynamic loss scale: steps whose gradients overflow are skipped and halve the scale.

    MindSpore's `TrainOneStepWithLossScaleCell` asks for an operator that the CPU lacks; outputs are the same,
    `(loss, overflow, scale)`. The scale doubles after `window` good steps.
    """

    def __init__(self, network: nn.Cell, optimizer: nn.Optimizer, *, scale: float, window: int) -> None:
        super().__init__(network, optimizer)
        self.scale = ms.Parameter(ms.Tensor(scale, ms.float32), name="loss_scale", requires_grad=False)
        self.update = nn.DynamicLossScaleUpdateCell(loss_scale_value=scale, scale_factor=2, scale_window=window)
        self.l2_loss = ops.L2Loss()

    def construct(self, *inputs: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor, ms.Tensor]:
        """Train on one batch, unless it overflows."""
        loss = self.network(*inputs)
        scale = self.scale * 1.0
        gradients = self.grad(self.network, self.weights)(*inputs, ops.fill(loss.dtype, loss.shape, 1.0) * scale)
        squares = []
        scaled = []
        for gradient in gradients:
            squares.append(self.l2_loss(gradient / scale))
            scaled.append(gradient / scale)
        overflow = ops.logical_not(ops.isfinite(ops.stack(squares).sum()))
        overflow = self.update(self.scale, overflow)
        if not overflow:
            loss = ops.depend(loss, self.optimizer(tuple(scaled)))
        return loss, overflow, scale


class PlannedRate(nn.learning_rate_schedule.LearningRateSchedule):
    """Linear warm-up to `peak`, then a straight line to 0 at `total_steps`, on a clock that runs `speed` times as fast.

    Beyond its end the line goes on below 0, as in schedules that nobody stopped.
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int, *, speed: int = 1) -> None:
        super().__init__()
        self.peak, self.warmup_steps, self.total_steps, self.speed = peak, warmup_steps, total_steps, speed

    def construct(self, global_step: ms.Tensor) -> ms.Tensor:
        """Learning rate of the step after `global_step` finished ones."""
        position = ops.cast(global_step, ms.float32) * self.speed + 1.0
        rising = self.peak * position / max(self.warmup_steps, 1)
        falling = self.peak * (self.total_steps - position) / max(self.total_steps - self.warmup_steps, 1)
        return ops.select(position < self.warmup_steps, rising, falling)
