"""Read the same samples from JSON Lines and from MindRecord, in order and shuffled, and print both rates of one run.

    python benchmarks/mindrecord.py --write docs/mindrecord.md

The samples hold a text and its tokens. Before: a source with random access over the file (an index of line offsets, one
`json.loads` a sample), which is what a script has that shuffles completely. After: `MindDataset` over the shards of
`convert_to_mindrecord`. Both go into batches of 32 rows of tokens; the ways take turns, so that a machine that drifts
hits all alike; processor time counts all threads and hardly depends on what else runs.
Files lie in the page cache, so the disk plays no part.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

os.environ.setdefault("GLOG_v", "4")

import mindspore.dataset as ds
import numpy as np
import pandas as pd
from document import write_section

from workbench.probes.mindrecord import convert_to_mindrecord, mindrecord_files
from workbench.probes.mindrecord_schema import fields_from_words

TOKENS, BATCH = 256, 32
WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not")


def write_samples(path: Path, count: int) -> None:
    """Text of about 1 kB and its 256 tokens a line."""
    generator = np.random.default_rng(0)
    with path.open("w") as f:
        for _ in range(count):
            text = " ".join(generator.choice(WORDS, 220))
            f.write(json.dumps({"text": text, "tokens": generator.integers(0, 32_000, TOKENS).tolist()}) + "\n")


class JsonLines:
    """Random access to the lines of a file by their offsets."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.offsets = [0]
        for line in self.file:
            self.offsets.append(self.offsets[-1] + len(line))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        self.file.seek(self.offsets[index])
        return np.array(json.loads(self.file.readline())["tokens"], dtype=np.int32)


def lines_in_order(path: Path) -> Callable[[], np.ndarray]:
    """A source that reads the file from top to bottom: what a script has that does not shuffle."""

    def source():
        with path.open() as f:
            for line in f:
                yield (np.array(json.loads(line)["tokens"], dtype=np.int32),)

    return source


def ways(path: Path, shards: list[str], workers: int) -> dict[tuple[str, str], ds.Dataset]:
    """(order, source) -> pipeline."""
    options = {"num_parallel_workers": workers}
    threads = {**options, "python_multiprocessing": False}
    made = {
        ("in order", "JSON Lines"): ds.GeneratorDataset(lines_in_order(path), ["tokens"], python_multiprocessing=False),
        ("shuffled", "JSON Lines"): ds.GeneratorDataset(JsonLines(path), ["tokens"], shuffle=True, **threads),
        ("in order", "MindRecord"): ds.MindDataset(shards, ["tokens"], shuffle=False, **options),
        ("shuffled", "MindRecord"): ds.MindDataset(shards, ["tokens"], shuffle=True, **options),
    }
    return {way: data.batch(BATCH, drop_remainder=True) for way, data in made.items()}


def reading_rates(pipeline: ds.Dataset, batches: int) -> tuple[float, float]:
    """Samples per second, and per second of processor time, of the batches after the first (threads start there)."""
    stream = pipeline.create_tuple_iterator(num_epochs=1, output_numpy=True)
    next(stream)
    start, start_cpu = time.perf_counter(), time.process_time()
    for _ in range(batches):
        next(stream)
    samples = batches * BATCH
    return samples / (time.perf_counter() - start), samples / (time.process_time() - start_cpu)


def as_markdown(rates: pd.DataFrame, *, head: str) -> str:
    """Rates and the gain of each order, with the range over the rounds."""
    lines = [
        "| order | measure | JSON Lines | MindRecord | gain (lowest to highest round) |",
        "| --- | --- | --- | --- | --- |",
    ]
    words = {"rate": "samples per s", "cpu_rate": "samples per s of processor time"}
    for (order, part), (column, measure) in product(rates.groupby("order", sort=False), words.items()):
        table = part.pivot_table(index="round", columns="source", values=column)
        gain = table["MindRecord"] / table["JSON Lines"]
        before, after = table["JSON Lines"].median(), table["MindRecord"].median()
        lines.append(
            f"| {order} | {measure} | {before:,.0f} | {after:,.0f} | "
            f"{gain.median():.1f} times ({gain.min():.1f} to {gain.max():.1f}) |"
        )
    return "\n".join([*lines, "", head])


def main() -> None:
    """Write, convert, read in turns, print the table, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=250, help="batches timed per way and round")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        write_samples(path, arguments.samples)
        start = time.perf_counter()
        fields = fields_from_words(["text", "tokens:int32 array"])
        convert_to_mindrecord(path, Path(folder) / "out", fields=fields, show_progress=False)
        seconds = time.perf_counter() - start
        shards = mindrecord_files(Path(folder) / "out")
        used = sum(os.stat(s).st_blocks * 512 for s in shards)
        made = ways(path, shards, arguments.workers)
        rows = [
            {"round": number, "order": order, "source": source}
            | dict(zip(("rate", "cpu_rate"), reading_rates(pipeline, arguments.batches), strict=True))
            for number in range(arguments.rounds)
            for (order, source), pipeline in made.items()
        ]
        head = (
            f"{arguments.samples:,} samples of 1 kB of text and {TOKENS} tokens, {arguments.workers} worker(s), median "
            f"of {arguments.rounds} rounds that take turns. Size: {path.stat().st_size / 1e6:.0f} MB of JSON Lines, "
            f"{used / 1e6:.0f} MB of MindRecord. Conversion: {arguments.samples / seconds:,.0f} samples per s."
        )
        text = as_markdown(pd.DataFrame(rows), head=head)
    print(text)
    if arguments.write:
        write_section(arguments.write, "reading", text)


if __name__ == "__main__":
    main()
