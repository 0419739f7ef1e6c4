"""Diagnose simulated clusters with known faults and print which cause was named first, per fault.

    python benchmarks/fault_matrix.py --tool make_cluster.py --seeds 1 2 --ranks 8 --write docs/fault_matrix.md

Every fault is made anew for each seed and number of ranks, its place chosen by the seed; healthy clusters of several
layouts stand beside them. A diagnosis is right if its first cause is the fault and names its place (rank, operator,
link, stage, steps).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from workbench.findings.diagnosis import diagnose
from workbench.findings.finding import Finding

HEALTHY = ([], ["--pp", "2"], ["--pp", "4"], ["--comm-layer", "Communication"])
OPS = ("FlashAttentionScore", "MatMulV3", "SwiGluGrad")
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"


class Case(NamedTuple):
    """One cluster to make, and what a right diagnosis names."""

    kind: str
    arguments: list[str]
    culprit: dict[str, Any]


def cases(ranks: int, seed: int) -> Iterator[Case]:
    """All fault kinds at places that the seed chooses, and healthy layouts."""
    pick = random.Random(1000 * ranks + seed)
    rank, other = pick.sample(range(8), 2)
    op, stage = pick.choice(OPS), pick.randrange(4)
    faults = [
        ("slow_rank", f":{rank}:1.4", {"rank": rank}),
        ("slow_op", f":{rank}:{op}:2.0", {"rank": rank, "op": op}),
        ("slow_link", f":{rank}:{other}:4.0", {"link": f"{rank}-{other}"}),
        ("data_starved", "", {}),
        ("data_starved", f":60:{rank}", {"rank": rank}),
        ("stall_steps", f":2:200:{rank}", {"rank": rank}),
        ("unfused_allreduce", ":32", {}),
        ("no_overlap", "", {}),
        ("pipeline_bubble", ":4", {}),
        ("pipeline_bubble", f":16:{stage}:1.5", {"stage": stage}),
        ("fragmentation", "", {}),
        ("memory_leak", "", {}),
        ("small_ops", ":2000", {}),
        ("recompile", ":2", {}),
    ]
    for kind, where, culprit in faults:
        yield Case(kind, ["--fault", kind + where], culprit)
    for layout in HEALTHY:
        yield Case("healthy", list(layout), {})


def is_right(case: Case, causes: list[Finding], steps: object) -> bool:
    """Whether the first cause is the fault, at its place."""
    if case.kind == "healthy" or not causes:
        return case.kind == "healthy" and not causes
    first = causes[0]
    place = all(getattr(first.culprit, name) == value for name, value in case.culprit.items())
    when = steps == "all" or list(first.steps.list or ()) == steps
    return first.cause == case.kind and place and when


def diagnosed(tool: Path, case: Case, *, ranks: int, steps: int, seed: int) -> dict[str, Any]:
    """Make the cluster of a case, diagnose it, and compare with its truth."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(tool), folder, "--ranks", str(ranks), "--steps", str(steps), "--seed", str(seed)]
        subprocess.run([*command, "--no-trace", *case.arguments], check=True, capture_output=True)
        truth = json.loads((Path(folder) / "truth.json").read_text())["faults"]
        causes = [f for f in diagnose(folder).causes if f.severity != "info"]
    wanted_us = truth[0]["saved_ms_per_step"] * 1e3 if truth else float("nan")
    given_us = (causes[0].saves_us_per_step if causes else None) or float("nan")
    return {
        "fault": case.kind,
        "arguments": " ".join(case.arguments),
        "ranks": ranks,
        "seed": seed,
        "first": causes[0].cause if causes else "healthy",
        "others": ", ".join(f.cause for f in causes[1:]),
        "right": is_right(case, causes, truth[0]["steps"] if truth else "all"),
        "saves_off_share": given_us / wanted_us - 1 if wanted_us > 0 else float("nan"),
    }


def as_markdown(results: pd.DataFrame, *, steps: int) -> str:
    """The confusion matrix and what is wrong in it, as a section of the docs."""
    matrix = pd.crosstab(results["fault"], results["first"])
    table = matrix.reset_index().rename(columns={"fault": "fault, first cause"})
    lines = [f"| {' | '.join(map(str, table.columns))} |", f"|{' --- |' * len(table.columns)}"]
    lines += [f"| {' | '.join('' if v == 0 else str(v) for v in row)} |" for row in table.itertuples(index=False)]
    right, whole = int(results["right"].sum()), len(results)
    ranks, seeds = (", ".join(map(str, sorted(results[c].unique()))) for c in ("ranks", "seed"))
    off = results["saves_off_share"].abs()
    wrong = results[~results["right"]]
    said = [
        f"Ran with {ranks} ranks, seeds {seeds}, {steps} steps: {right} of {whole} right, place and steps included."
    ]
    said += [f"Estimated gain against the truth: median {off.median():.0%} off, worst {off.max():.0%}."]
    said += [
        f"- wrong: {r.arguments or 'healthy'} ({r.ranks} ranks, seed {r.seed}): {r.first} {r.others}"
        for r in wrong.itertuples()
    ]
    return "\n".join([*lines, "", *said])


def main() -> None:
    """Run all cases, print the matrix, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", type=Path, required=True, help="make_cluster.py")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", nargs="+", help="only these faults")
    parser.add_argument("--write", type=Path, help="document whose matrix to replace")
    arguments = parser.parse_args()
    rows = []
    for ranks in arguments.ranks:
        for seed in arguments.seeds:
            for case in cases(ranks, seed):
                if arguments.only and case.kind not in arguments.only:
                    continue
                rows.append(diagnosed(arguments.tool, case, ranks=ranks, steps=arguments.steps, seed=seed))
                print({k: v for k, v in rows[-1].items() if v != ""}, flush=True)
    text = as_markdown(pd.DataFrame(rows), steps=arguments.steps)
    print(text)
    if arguments.write:
        before, _, rest = arguments.write.read_text().partition(BEGIN)
        arguments.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
