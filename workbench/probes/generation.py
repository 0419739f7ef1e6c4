"""Let a network write: greedy or sampled continuations of prompts, in batches of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mindspore as ms
import msgspec
import numpy as np
from mindspore import nn

from workbench.errors import UnknownParameterError
from workbench.files import write_atomic

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What the network is given."""

    subset: str
    prompt_id: str
    text: str
    tokens: Sequence[int]  # of the text, with what begins a document
    expects: str | None = None  # python, json, text; None: judged by the subset's name
    constraints: Sequence[Mapping[str, object]] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How tokens are chosen. Temperature 0 takes the most likely one."""

    new_tokens: int = 64
    temperature: float = 0.0
    most_likely: int = 0  # sample among so many; 0: all
    repeats: int = 1  # texts per prompt
    seed: int = 0
    stop_tokens: frozenset[int] = frozenset()


def generate(
    network: nn.Cell,
    prompts: Sequence[Prompt],
    decoding: Decoding,
    *,
    context_length: int,
    decode: Callable[[Sequence[int]], str],
    batch_size: int = 16,
    pad_token: int = 0,
    progress: Progress | None = None,
) -> list[dict[str, object]]:
    """Continue each prompt `decoding.repeats` times; return records of table `generations` without model state.

    Each token costs a forward pass over (batch_size, context_length), padded on the right, so one graph is compiled. Of
    a text longer than the context its end counts. The random numbers of a text depend on the seed, prompt and repeat
    alone, not on its neighbours in the batch. A text stops before a token of `stop_tokens`, which is left out.

    Args:
        network: logits (batch, length, vocabulary) for tokens (batch, length), each from tokens up to its own.
        prompts: what to continue.
        decoding: how.
        context_length: tokens that the network sees.
        decode: tokens -> text.
        batch_size: texts at once.
        pad_token: fills up; never seen by the tokens before it.
        progress: called with the number of texts that are done after each batch.

    Raises:
        UnknownParameterError: the decoding makes no sense.
    """
    if decoding.new_tokens < 1 or decoding.repeats < 1 or decoding.temperature < 0:
        raise UnknownParameterError(
            f"{decoding} cannot be decoded.", fix="give new_tokens and repeats from 1 on and a temperature from 0 on"
        )
    texts = [(prompt, repeat) for prompt in prompts for repeat in range(decoding.repeats)]
    network.set_train(False)
    records: list[dict[str, object]] = []
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        written = _write(network, batch, decoding, context_length, batch_size, pad_token)
        records.extend(_records(batch, written, decoding, decode))
        if progress:
            progress(len(batch))
    return records


def _write(
    network: nn.Cell,
    batch: Sequence[tuple[Prompt, int]],
    decoding: Decoding,
    context_length: int,
    batch_size: int,
    pad_token: int,
) -> list[tuple[list[int], str]]:
    """New tokens of each text, and why it ended."""
    texts = [list(prompt.tokens) for prompt, _ in batch]
    begun = [len(t) for t in texts]
    pickers = [np.random.default_rng(_seed(decoding.seed, prompt.prompt_id, repeat)) for prompt, repeat in batch]
    ended = [False] * len(batch)
    for _ in range(decoding.new_tokens):
        window = np.full((batch_size, context_length), pad_token, np.int32)
        for k, text in enumerate(texts):
            seen = text[-context_length:]
            window[k, : len(seen)] = seen
        logits = network(ms.Tensor(window)).asnumpy()
        for k, text in enumerate(texts):
            if not ended[k]:
                token = choose(logits[k, min(len(text), context_length) - 1], decoding, pickers[k])
                ended[k] = token in decoding.stop_tokens
                text.extend([] if ended[k] else [token])
        if all(ended):
            break
    return [(t[b:], "stop" if e else "length") for t, b, e in zip(texts, begun, ended, strict=True)]


def choose(logits: np.ndarray, decoding: Decoding, picker: np.random.Generator) -> int:
    """The next token from its logits (vocabulary)."""
    if decoding.temperature == 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / decoding.temperature
    if 0 < decoding.most_likely < len(scaled):
        scaled[scaled < np.sort(scaled)[-decoding.most_likely]] = -np.inf
    shares = np.exp(scaled - scaled.max())
    return int(picker.choice(len(shares), p=shares / shares.sum()))


def _seed(seed: int, prompt_id: str, repeat: int) -> list[int]:
    return [seed, repeat, *prompt_id.encode()]


def _records(
    batch: Sequence[tuple[Prompt, int]],
    written: Sequence[tuple[list[int], str]],
    decoding: Decoding,
    decode: Callable[[Sequence[int]], str],
) -> Iterator[dict[str, object]]:
    for (prompt, repeat), (tokens, reason) in zip(batch, written, strict=True):
        yield {
            "subset": prompt.subset,
            "sample_id": prompt.prompt_id,
            "repeat": repeat,
            "prompt": prompt.text,
            "output": decode(tokens),
            "finish_reason": reason,
            "output_tokens": len(tokens),
            "expects": prompt.expects,
            "constraints": list(prompt.constraints) or None,
            "temperature": decoding.temperature,
        }


def write_generations(path: Path, records: Sequence[Mapping[str, object]]) -> Path:
    """Write records of table `generations` as JSON Lines, all or nothing."""
    write_atomic(path, b"".join(msgspec.json.encode(dict(r)) + b"\n" for r in records))
    return path
