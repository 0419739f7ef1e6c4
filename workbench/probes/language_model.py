"""A small byte-level decoder-only transformer: the network to rehearse on before the big run.

Tokens are bytes 0-255 plus `PAD` and `BEGIN`. Pre-norm blocks (attention, two-layer MLP with GELU), learned positions,
tied output weights. Runs in graph mode and in PyNative mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.common.initializer import Normal, initializer

PAD = 256
BEGIN = 257
VOCABULARY_SIZE = 258
IGNORED_TARGET = -100


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Size of the network. The defaults have 0.48 M parameters."""

    width: int = 96
    layers: int = 4
    heads: int = 4
    context_length: int = 128
    vocabulary_size: int = VOCABULARY_SIZE

    def parameter_count(self) -> int:
        """Parameters of the network: embeddings, positions, blocks (weights, biases, norms), final norm."""
        block = 12 * self.width**2 + 13 * self.width
        return (self.vocabulary_size + self.context_length) * self.width + self.layers * block + 2 * self.width


class Attention(nn.Cell):
    """Causal multi-head self-attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.head_width = config.heads, config.width // config.heads
        self.scale = 1.0 / math.sqrt(self.head_width)
        self.qkv = nn.Dense(config.width, 3 * config.width, weight_init=Normal(0.02))
        self.out = nn.Dense(config.width, config.width, weight_init=Normal(0.02 / math.sqrt(2 * config.layers)))

    def construct(self, x: ms.Tensor, mask: ms.Tensor) -> ms.Tensor:
        """Attend within (batch, length, width) where `mask` (length, length) is 0, not where it is hugely negative."""
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, self.head_width).transpose(2, 0, 3, 1, 4)
        scores = ops.matmul(qkv[0], qkv[1].swapaxes(-2, -1)) * self.scale + mask
        mixed = ops.matmul(ops.softmax(scores, -1), qkv[2])
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(batch, length, width))


class Block(nn.Cell):
    """Pre-norm transformer block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm((config.width,))
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm((config.width,))
        self.mlp_in = nn.Dense(config.width, 4 * config.width, weight_init=Normal(0.02))
        self.activation = nn.GELU(approximate=True)
        self.mlp_out = nn.Dense(4 * config.width, config.width, weight_init=Normal(0.02 / math.sqrt(2 * config.layers)))

    def construct(self, x: ms.Tensor, mask: ms.Tensor) -> ms.Tensor:
        """Map (batch, length, width) to the same shape."""
        x = x + self.attention(self.attention_norm(x), mask)
        return x + self.mlp_out(self.activation(self.mlp_in(self.mlp_norm(x))))


class ByteTransformer(nn.Cell):
    """Next-byte logits (batch, length, vocabulary) for tokens (batch, length); length <= context_length."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = ms.Parameter(
            initializer(Normal(0.02), (config.vocabulary_size, config.width)), name="embedding"
        )
        self.position = ms.Parameter(initializer(Normal(0.02), (config.context_length, config.width)), name="position")
        self.blocks = nn.CellList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm((config.width,))
        future = np.triu(np.full((config.context_length, config.context_length), -1e9, np.float32), k=1)
        self.mask = ms.Tensor(future)

    def construct(self, tokens: ms.Tensor) -> ms.Tensor:
        """Logits of the byte after each position."""
        length = tokens.shape[1]
        x = ops.gather(self.embedding, tokens, 0) + self.position[:length]
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return ops.matmul(self.norm(x), self.embedding.T)


class NextTokenLoss(nn.Cell):
    """Mean cross entropy, nats per token, of targets (batch, length) that are not IGNORED_TARGET."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, tokens: ms.Tensor, targets: ms.Tensor) -> ms.Tensor:
        """Loss of one batch."""
        logits = self.network(tokens)
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED_TARGET)


class TokenScores(nn.Cell):
    """Per token: its loss in nats (0 where ignored), and whether it was the most likely one; both (batch, length)."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, tokens: ms.Tensor, targets: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor]:
        """Scores of one batch."""
        logits = self.network(tokens)
        flat = logits.reshape(-1, logits.shape[-1])
        loss = ops.cross_entropy(flat, targets.reshape(-1), ignore_index=IGNORED_TARGET, reduction="none")
        correct = ops.argmax(flat, -1).astype(targets.dtype) == targets.reshape(-1)
        return loss.reshape(targets.shape), correct.reshape(targets.shape)


class WarmupCosine(nn.learning_rate_schedule.LearningRateSchedule):
    """Linear warm-up to `peak` over `warmup_steps`, then cosine decay to `end_share * peak` at `total_steps`."""

    def __init__(self, peak: float, warmup_steps: int, total_steps: int, end_share: float = 0.1) -> None:
        super().__init__()
        self.warmup_steps = warmup_steps
        self.warmup = nn.WarmUpLR(peak, warmup_steps)
        self.cosine = nn.CosineDecayLR(peak * end_share, peak, max(total_steps - warmup_steps, 1))

    def construct(self, global_step: ms.Tensor) -> ms.Tensor:
        """Learning rate of the step after `global_step` finished ones; the first step already learns."""
        position = global_step + 1
        return ops.select(
            position < self.warmup_steps,
            self.warmup(position),
            self.cosine(ops.maximum(position - self.warmup_steps, ops.zeros_like(position))),
        )


def adamw(
    network: nn.Cell,
    learning_rate: object,
    *,
    weight_decay: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.95,
    epsilon: float = 1e-8,
) -> nn.Optimizer:
    """AdamW with decay on matrices only (no norms, biases)."""
    matrices = [p for p in network.trainable_params() if p.ndim > 1]
    vectors = [p for p in network.trainable_params() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
        {"order_params": network.trainable_params()},
    ]
    return nn.AdamWeightDecay(groups, learning_rate=learning_rate, beta1=beta1, beta2=beta2, eps=epsilon)
