"""Seed faults into data sets and samplings, look at them, and print which cause was found, per fault.

    python benchmarks/data_faults.py --seeds 1 2 3 --write docs/data_health.md

Data sets are JSON Lines of generated text in four subsets, looked at as `workbench data health` does. Samplings are the
ids that a real `mindspore.dataset` pipeline hands out, shuffled and mixed as the case says, recorded as the Recorder
records them. A case is right if its fault is found and nothing else is; a healthy one if nothing is found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GLOG_v", "4")

import mindspore.dataset as ds
import numpy as np
import pandas as pd
from document import write_section

from workbench.findings.data_health import find_bad_samples
from workbench.findings.finding import Finding
from workbench.findings.sampling import find_sampling_faults
from workbench.probes.data_set import probe_data_set
from workbench.tables import SAMPLE_IDS, SETTINGS

SUBSETS = {"code": 0.3, "math": 0.2, "chinese": 0.1, "english": 0.4}
WORDS = [f"w{n:04d}" for n in range(4000)]
SAMPLES, BATCH = 6000, 16
TRAINING_LENGTH = 1024


class Case(NamedTuple):
    """One data set or sampling to make, and what a right verdict names."""

    fault: str  # "healthy" for none
    cause: str | None
    subset: str | None
    make: Callable[[random.Random], Any]


# data sets
def samples(pick: random.Random, count: int = 1200) -> list[dict[str, str]]:
    """Healthy samples: random words, 200 to 900 bytes, in the proportions of SUBSETS."""
    names = pick.choices(list(SUBSETS), weights=list(SUBSETS.values()), k=count)
    return [{"text": " ".join(pick.choices(WORDS, k=pick.randint(35, 150))), "source": name} for name in names]


def copied(pick: random.Random, share: float, edits: int, subset: str | None = None) -> list[dict[str, str]]:
    """A share of the samples (of a subset) follows again elsewhere, with a few words changed."""
    rows = samples(pick)
    sources = [r for r in rows if subset in (None, r["source"])]
    for row in pick.sample(sources, int(share * len(sources))):
        words = row["text"].split()
        for place in pick.sample(range(len(words)), edits):
            words[place] = pick.choice(WORDS)
        rows.insert(pick.randrange(len(rows)), {**row, "text": " ".join(words)})
    return rows


def emptied(pick: random.Random, share: float, subset: str | None = None) -> list[dict[str, str]]:
    """A share of the samples (of a subset) has no text but white space."""
    rows = samples(pick)
    for row in rows:
        if subset in (None, row["source"]) and pick.random() < share:
            row["text"] = pick.choice(["", " ", "\n\t"])
    return rows


def lengthened(pick: random.Random, share: float, subset: str) -> list[dict[str, str]]:
    """A share of the samples of a subset is far longer than the training length."""
    rows = samples(pick)
    for row in rows:
        if row["source"] == subset and pick.random() < share:
            row["text"] = " ".join(pick.choices(WORDS, k=pick.randint(400, 900)))
    return rows


def broken(pick: random.Random, share: float) -> list[Any]:
    """A share of the lines is cut off."""
    return [json.dumps(r)[: pick.randint(5, 60)] if pick.random() < share else r for r in samples(pick)]


# samplings
def ids_of(pick: random.Random, *, order: str = "mixed", buffer: int | None = None, epochs: int = 2) -> pd.DataFrame:
    """Ids that a real pipeline over a data set in `order` hands out through a shuffle buffer, with their subsets."""
    names = pick.choices(list(SUBSETS), weights=list(SUBSETS.values()), k=SAMPLES)
    subsets = np.array(sorted(names) if order == "sorted" else names)
    ds.config.set_seed(pick.randrange(1 << 30))
    pipeline = ds.NumpySlicesDataset(np.arange(SAMPLES), ["sample"], shuffle=False)
    if buffer != 1:
        pipeline = pipeline.shuffle(buffer or SAMPLES)
    batches = pipeline.batch(BATCH).create_tuple_iterator(num_epochs=epochs, output_numpy=True)
    drawn = [np.concatenate([b[0] for b in batches]) for _ in range(epochs)]
    return as_table(np.concatenate(drawn), subsets, epoch=np.repeat(np.arange(1, epochs + 1), SAMPLES))


def mixed_ids(pick: random.Random, weights: Callable[[float], dict[str, float]], steps: int = 800) -> pd.DataFrame:
    """Ids drawn with the weights that hold at each share of training; every subset has samples enough."""
    generator = np.random.default_rng(pick.randrange(1 << 30))
    names = list(SUBSETS)
    chosen = []
    for step in range(steps):
        wanted = weights(step / steps)
        shares = np.array([wanted[n] for n in names])
        chosen.append(generator.choice(len(names), BATCH, p=shares / shares.sum()))
    subset = np.concatenate(chosen)
    order = np.empty(len(subset), dtype=np.int64)
    for number in range(len(names)):  # each subset in a shuffled order of its own
        places = np.flatnonzero(subset == number)
        order[places] = number * 10**6 + generator.permutation(len(places))
    return as_table(order, np.array(names)[subset], by_place=True)


def same_on_ranks(pick: random.Random) -> pd.DataFrame:
    """Two ranks that read the same samples in the same order: the shard was forgotten."""
    one = ids_of(pick, epochs=1)
    return pd.concat([one, one.assign(rank_id=1)], ignore_index=True)


def repeated(pick: random.Random) -> pd.DataFrame:
    """A third of the draws comes from a few samples."""
    table = ids_of(pick, epochs=1)
    few = pick.sample(range(SAMPLES), 30)
    again = np.random.default_rng(pick.randrange(1 << 30)).random(len(table)) < 1 / 3
    table.loc[again, "sample"] = np.array(few)[np.arange(int(again.sum())) % len(few)]
    return table


def as_table(ids: np.ndarray, subsets: np.ndarray, *, epoch: Any = 1, by_place: bool = False) -> pd.DataFrame:
    """Table `sample_ids` of one rank; `subsets` by sample, or by place in the sequence."""
    place = np.arange(len(ids))
    rows = {"rank_id": 0, "step": place // BATCH + 1, "epoch": epoch, "position": place % BATCH, "sample": ids}
    return SAMPLE_IDS.check(pd.DataFrame(rows | {"subset": subsets if by_place else subsets[ids]}))


def cut_at(share: float, subset: str, factor: float) -> Callable[[float], dict[str, float]]:
    """The weight of a subset is multiplied from a share of training on."""
    return lambda at: SUBSETS | ({subset: SUBSETS[subset] * factor} if at >= share else {})


def sliding(share: float, subset: str, factor: float) -> Callable[[float], dict[str, float]]:
    """The weight of a subset goes to a multiple little by little from a share of training on."""
    return lambda at: SUBSETS | {subset: SUBSETS[subset] * (1 + (factor - 1) * max(0.0, (at - share) / (1 - share)))}


def cases(seed: int) -> Iterator[Case]:
    """All faults, their strength and place chosen by the seed, and healthy data beside them."""
    pick = random.Random(seed)
    subset, onset = pick.choice(["code", "math", "english"]), pick.uniform(0.2, 0.7)
    yield Case("healthy data set", None, None, samples)
    yield Case("exact duplicates", "duplicate_data", None, lambda p: copied(p, pick.uniform(0.05, 0.3), 0))
    yield Case("near duplicates", "duplicate_data", None, lambda p: copied(p, pick.uniform(0.05, 0.3), 1))
    yield Case("duplicates in a subset", "duplicate_data", subset, lambda p: copied(p, 0.4, 0, subset))
    yield Case("empty samples", "empty_data", None, lambda p: emptied(p, pick.uniform(0.02, 0.1)))
    yield Case("empty samples in a subset", "empty_data", subset, lambda p: emptied(p, 0.15, subset))
    yield Case("long samples in a subset", "truncated_samples", subset, lambda p: lengthened(p, 0.3, subset))
    yield Case("broken lines", "dropped_samples", None, lambda p: broken(p, pick.uniform(0.01, 0.1)))
    yield Case("healthy shuffle", None, None, lambda p: ids_of(p))
    yield Case("healthy shuffle of sorted data", None, None, lambda p: ids_of(p, order="sorted"))
    yield Case("small buffer, sorted data", "small_shuffle_buffer", None,
               lambda p: ids_of(p, order="sorted", buffer=pick.choice([32, 100, 300])))  # fmt: skip
    yield Case(
        "small buffer, mixed data", "small_shuffle_buffer", None, lambda p: ids_of(p, buffer=pick.choice([32, 300]))
    )
    yield Case("no shuffle", "small_shuffle_buffer", None, lambda p: ids_of(p, order="sorted", buffer=1))
    yield Case("same samples on ranks", "duplicate_data", None, same_on_ranks)
    yield Case("samples repeat", "duplicate_data", None, repeated)
    yield Case("healthy mix", None, None, lambda p: mixed_ids(p, lambda at: SUBSETS))
    yield Case("mix cut at once", "data_mix_shift", subset, lambda p: mixed_ids(p, cut_at(onset, subset, 0.3)))
    yield Case("mix slides away", "data_mix_shift", subset, lambda p: mixed_ids(p, sliding(onset, subset, 0.1)))
    yield Case("mix off target", "data_mix_shift", subset, lambda p: mixed_ids(p, cut_at(0.0, subset, 2.0)))


def verdicts(case: Case, seed: int, folder: Path) -> list[Finding]:
    """What the rules find in the case."""
    made = case.make(random.Random(f"{seed}:{case.fault}"))
    if isinstance(made, list):
        path = folder / "data.jsonl"
        path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in made))
        table = probe_data_set(path, tokenizer="bytes", training_length=TRAINING_LENGTH, show_progress=False)
        return find_bad_samples(table)
    weights = pd.DataFrame(
        {"name": [f"sampling_weights.{n}" for n in SUBSETS], "value": [str(w) for w in SUBSETS.values()]}
    )
    return find_sampling_faults({"sample_ids": made, "settings": SETTINGS.check(weights)})


def judged(case: Case, seed: int) -> dict[str, Any]:
    """The case's row: what was found, and whether that is right."""
    with tempfile.TemporaryDirectory() as folder:
        found = [f for f in verdicts(case, seed, Path(folder)) if f.severity != "info"]
    named = [f.cause for f in found]
    right = named == ([] if case.cause is None else [case.cause])
    if right and case.subset is not None:
        right = found[0].culprit.subset == case.subset
    return {"case": case.fault, "seed": seed, "found": ", ".join(named) or "nothing", "right": right,
            "culprit": found[0].culprit.subset if found else None}  # fmt: skip


def as_markdown(results: pd.DataFrame) -> str:
    """Right verdicts per case, and what is wrong."""
    counts = results.groupby("case", sort=False)["right"].agg(["sum", "size"])
    words = results.groupby("case", sort=False)["found"].agg(lambda f: f.mode().iloc[0])
    lines = ["| case | found | right |", "| --- | --- | --- |"]
    lines += [f"| {name} | {words[name]} | {row['sum']} of {row['size']} |" for name, row in counts.iterrows()]
    seeds = results["seed"].nunique()
    said = [f"{int(results['right'].sum())} of {len(results)} right, {seeds} seeds."]
    wrong = results[~results["right"]]
    said += [f"- wrong: {r.case}, seed {r.seed}: {r.found} ({r.culprit})" for r in wrong.itertuples()]
    return "\n".join([*lines, "", *said])


def main() -> None:
    """Run all cases, print the table, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", help="only cases whose name holds this")
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    arguments = parser.parse_args()
    chosen = [(c, s) for s in arguments.seeds for c in cases(s) if not arguments.only or arguments.only in c.fault]
    text = as_markdown(pd.DataFrame([judged(case, seed) for case, seed in chosen]))
    print(text)
    if arguments.write:
        write_section(arguments.write, "faults", text)


if __name__ == "__main__":
    main()
