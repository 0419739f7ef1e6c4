"""Check the subset regression test by simulation: false alarms, power, and what stated power is worth.

    python benchmarks/eval_statistics.py --nulls 4000 --write docs/evaluation.md

Each null is a subset scored at two checkpoints that do not differ: documents of uneven length are cut into windows, and
what a document gains or loses is shared by its windows (intraclass correlation 0.5). The naive test beside it is the
paired t test over windows. The product's own functions decide: `paired_changes`, `score_drops`, `visible_changes`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from document import write_section
from scipy import stats

from workbench.analyses.evaluation import paired_changes
from workbench.analyses.subset_course import score_drops
from workbench.analyses.subset_sampling import visible_changes

NOISE_NATS = 0.05  # standard deviation of the change of one window
CORRELATION = 0.5
LEVEL = 0.05


class Layout(NamedTuple):
    """Documents of a subset, windows per document in the middle, and how uneven they are (sigma of the logarithm)."""

    documents: int
    windows: float
    sigma: float


LAYOUTS = (Layout(12, 8, 1.2), Layout(12, 8, 0.6), Layout(30, 7, 0.8), Layout(60, 4, 0.8), Layout(100, 2, 0.6),
           Layout(200, 1, 0.0))  # fmt: skip


def scored_twice(
    random: np.random.Generator, layout: Layout, *, change: float = 0.0, subset: str = "s"
) -> pd.DataFrame:
    """Per-sample scores of two checkpoints, `a` and `b`, whose true losses differ by `change` nats per token."""
    middle = np.log(layout.windows)
    sizes = np.maximum(1, np.round(random.lognormal(middle, layout.sigma, layout.documents))).astype(int)
    document = np.repeat(np.arange(layout.documents), sizes)
    n = len(document)
    level = random.normal(2.5, 0.4, layout.documents)[document] + random.normal(0, 0.3, n)
    shared = random.normal(0, NOISE_NATS * CORRELATION**0.5, layout.documents)[document]
    gain = change + shared + random.normal(0, NOISE_NATS * (1 - CORRELATION) ** 0.5, n)
    tokens = random.integers(32, 129, n).astype(float)
    ids = [f"{subset}{k}" for k in range(n)]
    base = {"subset": subset, "sample_id": ids, "document_id": [f"{subset}{d}" for d in document],
            "scored_tokens": tokens}  # fmt: skip
    parts = [
        pd.DataFrame({**base, "checkpoint": name, "step": step, "loss_nats": tokens * loss})
        for name, step, loss in (("a", 1, level), ("b", 2, level + gain))
    ]
    return pd.concat(parts, ignore_index=True)


def false_alarms(layout: Layout, nulls: int, seed: int = 0) -> dict[str, float]:
    """Share of nulls that the test and the naive test reject at `LEVEL`."""
    random = np.random.default_rng([seed, layout.documents])
    ours = naive = 0
    for _ in range(nulls):
        samples = scored_twice(random, layout)
        ours += paired_changes(samples, "a", "b").p_value.iloc[0] < LEVEL
        naive += naive_p_value(samples) < LEVEL
    return {"documents": layout.documents, "windows per document": layout.windows, "unevenness": layout.sigma,
            "nulls": nulls, "ours": ours / nulls, "naive": naive / nulls}  # fmt: skip


def naive_p_value(samples: pd.DataFrame) -> float:
    """Paired t test over windows, as if they were independent."""
    losses = (samples["loss_nats"] / samples["scored_tokens"]).groupby(samples["checkpoint"]).agg(list)
    return float(stats.ttest_rel(losses["b"], losses["a"]).pvalue)


def family_alarms(nulls: int, subsets: int = 6, seed: int = 1) -> float:
    """Share of comparisons of `subsets` unchanged subsets in which Holm lets any one through."""
    random = np.random.default_rng(seed)
    alarms = 0
    for _ in range(nulls):
        parts = [scored_twice(random, LAYOUTS[2], subset=f"s{k}") for k in range(subsets)]
        alarms += paired_changes(pd.concat(parts), "a", "b").p_holm.min() < LEVEL
    return alarms / nulls


def course_alarms(nulls: int, *, evaluations: int = 8, subsets: int = 6, n: int = 1000, seed: int = 2) -> float:
    """Share of runs with steady scores (sampled anew at each evaluation) in which any subset is said to drop."""
    random = np.random.default_rng(seed)
    alarms = 0
    for _ in range(nulls):
        rows = [
            ("imported", step, f"s{k}", "score", random.binomial(n, p) / n, n)
            for k, p in enumerate(np.linspace(0.2, 0.8, subsets))
            for step in range(evaluations)
        ]
        frame = pd.DataFrame(rows, columns=["kind", "step", "subset", "metric", "value", "n"])
        alarms += score_drops(frame).p_holm.min() < LEVEL
    return alarms / nulls


def power_curve(layout: Layout, runs: int, seed: int = 3) -> pd.DataFrame:
    """Share of runs in which a true change is found, and the change that a pilot says is visible with 80 %."""
    random = np.random.default_rng(seed)
    rows = [
        {"change": c, "found": np.mean([
            paired_changes(scored_twice(random, layout, change=c), "a", "b").p_value.iloc[0] < LEVEL
            for _ in range(runs)
        ])}
        for c in (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def stated_power(layout: Layout, runs: int, seed: int = 4) -> tuple[float, float]:
    """The change that a pilot states as visible (median over pilots), and how often a change of that size is found."""
    random = np.random.default_rng(seed)
    n = int(layout.documents * layout.windows)
    plans = [
        visible_changes(scored_twice(random, layout), "a", "b", samples=(n,), per_document=layout.windows)
        for _ in range(30)
    ]
    stated = float(np.median([p.visible_change.iloc[0] for p in plans]))
    found = [
        paired_changes(scored_twice(random, layout, change=stated), "a", "b").p_value.iloc[0] < LEVEL
        for _ in range(runs)
    ]
    return stated, float(np.mean(found))


def as_markdown(nulls: int, runs: int) -> str:
    """All tables as a section of the docs."""
    rows = [false_alarms(layout, nulls) for layout in LAYOUTS]
    lines = ["| documents | windows each | unevenness | nulls | rejected | naive paired t test |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    lines += [
        f"| {r['documents']:.0f} | {r['windows per document']:g} | {r['unevenness']} | {r['nulls']:.0f} "
        f"| {r['ours']:.1%} | {r['naive']:.1%} |"
        for r in rows
    ]
    curve = power_curve(LAYOUTS[3], runs)
    stated, found = stated_power(Layout(100, 2, 0.0), runs)
    points = ", ".join(f"{r.change:g} nats {r.found:.0%}" for r in curve.itertuples())
    lines += [
        "",
        f"Any false alarm among 6 unchanged subsets after Holm: {family_alarms(nulls // 4):.1%} of {nulls // 4}. "
        f"Any drop in the courses of 6 steady subsets over 8 evaluations: {course_alarms(nulls // 8):.1%} of "
        f"{nulls // 8}.",
        "",
        f"Found with 60 documents of about 4 windows each ({runs} runs a point): {points}. With 200 windows of 100 "
        f"documents a pilot states {stated:.3f} nats as visible with 80 %; that change was found in {found:.0%} of "
        f"{runs} runs.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Simulate, print, and put the result into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nulls", type=int, default=4000, help="nulls per layout")
    parser.add_argument("--runs", type=int, default=400, help="runs per point of the power curve")
    parser.add_argument("--write", type=Path, help="document whose section to replace")
    arguments = parser.parse_args()
    text = as_markdown(arguments.nulls, arguments.runs)
    print(text)
    if arguments.write:
        write_section(arguments.write, "statistics", text)


if __name__ == "__main__":
    main()
