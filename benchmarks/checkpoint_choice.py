"""Choose checkpoints of simulated trainings whose truth is known, and compare with taking the lowest loss.

    python benchmarks/checkpoint_choice.py --histories 500 --write docs/evaluation.md

A history has checkpoints with true losses per subset (falling curves, a subset that is over-optimised away in some, a
wobble from checkpoint to checkpoint), disturbed stretches in which gradients grow and spike, and scores of sampled
documents. Truth for the best set is the score with the losses of the whole population in place of the sampled ones.
Regret is counted twice: in that score, and in the mean loss after training on, where a checkpoint saved in a
disturbance is set back by 0.05 to 0.4 nats, a number that the choice never sees.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from document import write_section

from workbench.analyses.checkpoint_choice import SPREAD_WEIGHT, UNREST_WEIGHT, rank_checkpoints

SUBSETS = {"code": 1.6, "english": 2.6, "chinese": 3.2, "math": 2.1}
CHECKPOINTS, EVERY = 10, 120
DOCUMENTS, WINDOWS, TOKENS = 24, 2, 64


class History(NamedTuple):
    """One simulated training: what is recorded, and what is true."""

    samples: pd.DataFrame  # table eval_samples
    steps: pd.DataFrame  # table training_steps
    losses: np.ndarray  # subsets x checkpoints, of the population
    setback: np.ndarray  # per checkpoint, nats after training on


def history(seed: int) -> History:
    """A training with a truth that the seed chooses."""
    random = np.random.default_rng(seed)
    losses = true_losses(random)
    disturbed = np.zeros(CHECKPOINTS * EVERY + 1)
    for _ in range(random.integers(0, 4)):
        start = random.integers(EVERY, CHECKPOINTS * EVERY - 40)
        disturbed[start : start + random.integers(20, 120)] = random.uniform(0.2, 1.0)
    at = disturbed[np.arange(1, CHECKPOINTS + 1) * EVERY]
    losses = losses - random.uniform(0, 0.03, CHECKPOINTS) * (at > 0)  # a restless moment may look lucky
    return History(scored(random, losses), recorded(random, losses, disturbed), losses, 0.05 * (at > 0) + 0.35 * at)


def true_losses(random: np.random.Generator) -> np.ndarray:
    """Falling curves; in every second history a subset gets worse again while the others pay for it."""
    k = np.arange(1, CHECKPOINTS + 1)
    fall = random.uniform(0.4, 1.0) * np.exp(-k / random.uniform(1.5, 3.5))
    losses = np.array([level + fall * random.uniform(0.8, 1.2) for level in SUBSETS.values()])
    if random.random() < 0.5:
        turn, rate = random.integers(4, 9), random.uniform(0.01, 0.06)
        losses[random.integers(len(SUBSETS))] += rate * np.maximum(0, k - turn)
        losses -= rate / len(SUBSETS) * 1.3 * np.maximum(0, k - turn)
    return np.asarray(losses + random.normal(0, 0.006, losses.shape) + random.normal(0, 0.006, CHECKPOINTS))


def scored(random: np.random.Generator, losses: np.ndarray) -> pd.DataFrame:
    """Scores of sampled documents: levels per document, and gains that documents share among their windows."""
    parts = []
    for row, subset in enumerate(SUBSETS):
        document = np.repeat(np.arange(DOCUMENTS), WINDOWS)
        level = random.normal(0, 0.4, DOCUMENTS)[document] + random.normal(0, 0.2, len(document))
        for k in range(CHECKPOINTS):
            noise = random.normal(0, 0.05, DOCUMENTS)[document] + random.normal(0, 0.05, len(document))
            names = [f"{subset}{d}" for d in document]
            ids = [f"{n}#{i % WINDOWS}" for i, n in enumerate(names)]
            parts.append(pd.DataFrame({
                "checkpoint": f"c-{k + 1}", "step": (k + 1) * EVERY, "subset": subset, "sample_id": ids,
                "document_id": names, "scored_tokens": float(TOKENS),
                "loss_nats": TOKENS * (losses[row, k] + level + noise),
            }))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def recorded(random: np.random.Generator, losses: np.ndarray, disturbed: np.ndarray) -> pd.DataFrame:
    """Steps whose gradient norm grows with the disturbance and spikes in it."""
    step = np.arange(1, CHECKPOINTS * EVERY + 1)
    unrest = disturbed[1:]
    norm = np.exp(random.normal(0, 0.15, len(step)) + 1.2 * unrest)
    norm *= np.where(random.random(len(step)) < 0.03 * (unrest > 0), random.uniform(5, 20, len(step)), 1.0)
    loss = np.interp(step, np.arange(1, CHECKPOINTS + 1) * EVERY, losses.mean(0)) + random.normal(0, 0.05, len(step))
    return pd.DataFrame({"rank_id": 0, "step": step, "loss": loss, "gradient_norm": norm})


def judged(seed: int) -> dict[str, float]:
    """Whether the best set holds the truly best checkpoint, its size, and the regrets of both ways to choose."""
    made = history(seed)
    ranked = rank_checkpoints(made.samples, made.steps)
    excess = (made.losses - made.losses.min(1, keepdims=True)).max(0)
    truth = made.losses.mean(0) + SPREAD_WEIGHT * excess + UNREST_WEIGHT * ranked["unrest"].to_numpy()
    later = made.losses.mean(0) + made.setback
    chosen = int(ranked["recommended"].to_numpy().argmax())
    lowest = int(ranked["mean_loss"].to_numpy().argmin())
    return {
        "holds_best": float(ranked["in_best_set"].iloc[int(truth.argmin())]),
        "set_size": float(ranked["in_best_set"].sum()),
        "regret": truth[chosen] - truth.min(),
        "regret_lowest": truth[lowest] - truth.min(),
        "later_regret": later[chosen] - later.min(),
        "later_regret_lowest": later[lowest] - later.min(),
        "worst_subset": excess[chosen],
        "worst_subset_lowest": excess[lowest],
        "same": float(chosen == lowest),
    }


def as_markdown(results: pd.DataFrame) -> str:
    """The comparison as a section of the docs."""
    mean, count = results.mean(), len(results)
    rows = [
        ("regret in the score, nats", "regret"),
        ("regret in the loss after training on, nats", "later_regret"),
        ("loss of the worst subset above its own best, nats", "worst_subset"),
    ]
    lines = ["| mean over histories | recommended | lowest mean loss |", "|---|---|---|"]
    lines += [f"| {words} | {mean[name]:.4f} | {mean[name + '_lowest']:.4f} |" for words, name in rows]
    lines += ["", f"{count} histories of {CHECKPOINTS} checkpoints: the best set held the truly best one in "
              f"{mean['holds_best']:.1%}, with {mean['set_size']:.1f} checkpoints on average; the recommended one was "
              f"that with the lowest loss in {mean['same']:.0%}."]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Judge, print, and put the result into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--write", type=Path, help="document whose section to replace")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.histories)
    text = as_markdown(pd.DataFrame([judged(seed) for seed in seeds]))
    print(text)
    if arguments.write:
        write_section(arguments.write, "choice", text)


if __name__ == "__main__":
    main()
