"""Truncated, windowed and bucketed batches of real text, trained on with the small model: tokens kept, waste, speed.

    python benchmarks/long_samples.py --write docs/data_health.md

The text is that of the rehearsal (sources, licences, sums, Chinese) in whole documents. The policies take turns in one
process, so that a machine that drifts hits all alike; each shape is compiled before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

import mindspore as ms
import numpy as np
import pandas as pd
from document import write_section
from mindspore import nn

from workbench.analyses.lengths import length_policies
from workbench.probes.corpus import load_documents
from workbench.probes.language_model import (
    BEGIN,
    IGNORED_TARGET,
    PAD,
    ByteTransformer,
    ModelConfig,
    NextTokenLoss,
    adamw,
)
from workbench.probes.length_batches import WindowSource, bucketed_batches, padded_batches

LENGTH, OVERLAP, BATCH, BOUNDARIES = 256, 64, 8, (32, 64, 128)


def sequences(seed: int, count: int) -> list[np.ndarray]:
    """Whole documents, many short and some long, as training data have them."""
    pick = np.random.default_rng(seed)
    documents = load_documents(limit_bytes=300_000)
    chosen = [documents[i] for i in pick.choice(len(documents), min(count, len(documents)), replace=False)]
    lengths = np.exp(pick.normal(np.log(120), 1.1, len(chosen))).astype(int) + 8
    return [
        np.frombuffer(bytes([0]) + d.text[:n], np.uint8).astype(np.int32) for d, n in zip(chosen, lengths, strict=True)
    ]


def policies(data: list[np.ndarray]) -> dict[str, Any]:
    """The four pipelines by name."""
    for sequence in data:
        sequence[0] = BEGIN
    made = {}
    for name, overlap in (("truncate", None), ("windows", OVERLAP)):
        source = WindowSource(data, LENGTH, overlap=overlap)
        made[name] = padded_batches(source, batch_size=BATCH)
        made[f"{name} + buckets"] = bucketed_batches(source, boundaries=BOUNDARIES, batch_size=BATCH)
    return made


def timed(pipelines: dict[str, Any], rounds: int, steps: int) -> dict[str, dict[str, list[float]]]:
    """Seconds, scored targets, positions and padding of each step, per policy; the policies take turns."""
    network = NextTokenLoss(ByteTransformer(ModelConfig(width=96, layers=3, heads=4, context_length=LENGTH)))
    step = nn.TrainOneStepCell(network, adamw(network, 1e-3)).set_train()
    for batch in (b for p in pipelines.values() for b in p.create_tuple_iterator(num_epochs=1)):
        if batch[0].shape not in timed.compiled:
            timed.compiled.add(batch[0].shape)
            step(batch[0], batch[1]).asnumpy()
    found = {name: {"seconds": [], "targets": [], "positions": [], "padded": []} for name in pipelines}
    running = {name: forever(p) for name, p in pipelines.items()}
    for _ in range(rounds):
        for name, stream in running.items():
            for _ in range(steps):
                tokens, targets, _sample = next(stream)
                start = time.perf_counter()
                step(tokens, targets).asnumpy()
                record = found[name]
                record["seconds"].append(time.perf_counter() - start)
                record["targets"].append(int((targets.asnumpy() != IGNORED_TARGET).sum()))
                record["positions"].append(tokens.size)
                record["padded"].append(int((tokens.asnumpy() == PAD).sum()))
    return found


timed.compiled = set()


def forever(pipeline: Any) -> Any:
    """Batches without an end."""
    while True:
        yield from pipeline.create_tuple_iterator(num_epochs=1)


def table(data: list[np.ndarray], found: dict[str, dict[str, list[float]]]) -> pd.DataFrame:
    """Per policy: tokens kept, padding, step time, and training speed in tokens that are learned from."""
    predicted = length_policies([len(s) - 1 for s in data], training_length=LENGTH, overlap=OVERLAP,
                                boundaries=BOUNDARIES, batch_size=BATCH).set_index("policy")  # fmt: skip
    rows = []
    for name, record in found.items():
        seconds, targets = np.array(record["seconds"]), np.array(record["targets"])
        rows.append(
            {
                "policy": name,
                "tokens kept": f"{predicted.loc[name, 'kept_share']:.0%}",
                "padding, from lengths": f"{predicted.loc[name, 'padded_share']:.0%}",
                "padding, measured": f"{sum(record['padded']) / sum(record['positions']):.0%}",
                "median step (ms)": f"{np.median(seconds) * 1e3:.0f}",
                "learned tokens per s": f"{targets.sum() / seconds.sum():,.0f}",
                "epoch (s)": f"{predicted.loc[name, 'tokens'] / (targets.sum() / seconds.sum()):.1f}",
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Train with all policies in turns, print the table, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=12, help="steps of a policy per round")
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    data = sequences(0, arguments.documents)
    result = table(data, timed(policies(data), arguments.rounds, arguments.steps))
    lines = [f"| {' | '.join(result.columns)} |", f"|{' --- |' * len(result.columns)}"]
    lines += [f"| {' | '.join(row)} |" for row in result.itertuples(index=False)]
    lengths = np.array([len(s) - 1 for s in data])
    text = "\n".join(
        [*lines, "", f"{len(data)} documents of {np.median(lengths):.0f} tokens (median, longest {lengths.max():,}); "
         f"training length {LENGTH}, overlap {OVERLAP}, buckets up to {', '.join(map(str, BOUNDARIES))}, {LENGTH}; "
         f"batches of {BATCH} x {LENGTH} positions; {arguments.rounds * arguments.steps} steps per policy."]
    )  # fmt: skip
    print(text)
    if arguments.write:
        write_section(arguments.write, "long samples", text)


if __name__ == "__main__":
    main()
