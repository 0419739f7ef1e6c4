"""The rehearsal model's post-training task: held-out documents, generation by bytes, sums as instructions."""

from __future__ import annotations

import random
from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import nn

from workbench.errors import UnknownParameterError
from workbench.probes.corpus import fingerprint, load_documents
from workbench.probes.generation import Prompt
from workbench.probes.language_model import BEGIN, PAD, ByteTransformer, ModelConfig
from workbench.probes.post_training import PostTrainingTask

SUMS = 40


def post_training_task(
    *, model: dict[str, int], text_bytes: int, samples_per_subset: int, seed: int, weights: dict[str, float]
) -> PostTrainingTask:
    """The network, and the held-out documents of every subset; arguments as in run.json."""
    config = ModelConfig(**model)
    documents = load_documents(list(weights), limit_bytes=text_bytes)
    held_out: dict[str, dict[str, str]] = {subset: {} for subset in weights}
    for document in documents:
        if document.is_held_out:
            held_out[document.subset][document.document_id] = document.text.decode("utf-8", "replace")
    return PostTrainingTask(
        network=ByteTransformer(config),
        documents=held_out,
        encode=lambda text: list(text.encode()),
        decode=decode_bytes,
        context_length=config.context_length,
        longer=with_interpolated_positions,
        begin=(BEGIN,),
        pad_token=PAD,
        stop_tokens=frozenset({BEGIN, PAD}),
        instructions=sums(seed),
        per_subset=samples_per_subset,
        seed=seed,
        description={"seed": seed, "data": fingerprint(documents)},
    )


def decode_bytes(tokens: Sequence[int]) -> str:
    """Text of byte tokens; special tokens are left out."""
    return bytes(t for t in tokens if t < PAD).decode("utf-8", "replace")


def sums(seed: int, *, count: int = SUMS) -> list[Prompt]:
    """Sums in the form of the arithmetic subset, whose first line must be the result."""
    pick = random.Random(f"sums:{seed}")
    prompts = []
    for k in range(count):
        left, right = pick.randint(0, 99), pick.randint(0, 99)
        text = f"{left} + {right} ="
        must = {"kind": "first_line_equals", "value": str(left + right)}
        tokens = [BEGIN, *text.encode()]
        prompts.append(Prompt(subset="sums", prompt_id=f"sum {k}", text=text, tokens=tokens, constraints=[must]))
    return prompts


def with_interpolated_positions(network: nn.Cell, context_length: int) -> ByteTransformer:
    """The trained network for a longer context: its learned positions are stretched linearly over it.

    Raises:
        UnknownParameterError: the network has no learned positions.

    Source: Chen et al., Extending Context Window of Large Language Models via Positional Interpolation, 2023 (for
    learned positions instead of rotary ones).
    """
    if not isinstance(network, ByteTransformer):
        raise UnknownParameterError(
            f"A {type(network).__name__} has no learned positions to stretch.", fix="give the ByteTransformer itself"
        )
    old = network.config
    sizes = {"width": old.width, "layers": old.layers, "heads": old.heads, "vocabulary_size": old.vocabulary_size}
    longer = ByteTransformer(ModelConfig(context_length=context_length, **sizes))
    longer.set_train(False)
    own = {p.name: p.asnumpy() for p in network.get_parameters()}
    places = np.linspace(0, old.context_length - 1, context_length)
    columns = [np.interp(places, np.arange(old.context_length), column) for column in own["position"].T]
    own["position"] = np.stack(columns, axis=1).astype(np.float32)
    for parameter in longer.get_parameters():
        parameter.set_data(ms.Tensor(own[parameter.name]))
    return longer
