"""Train with every fault of the lab, diagnose each run from its files alone, and print which cause came first.

    python benchmarks/fault_lab.py --seeds 1 2 3 --write docs/fault_lab.md
    python benchmarks/fault_lab.py --only lr_too_high plain --keep runs/lab

Runs that stand in the folder of `--keep` and came to their end are diagnosed again, but not trained again.

A diagnosis is right if its first cause at warning or above is the fault, at its onset, rank or subset; for a healthy
training if there is none.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from document import write_section
from tqdm.auto import tqdm

from workbench.files import RunFiles
from workbench.findings.diagnosis import diagnose
from workbench.findings.lab_truth import compared, first_alarm
from workbench.probes.lab import FAULTS, HEALTHY, lab_directory, planned, run_lab


def has_ended(folder: Path) -> bool:
    """Whether a training in the folder was recorded to its end."""
    events = RunFiles(folder).events(0)
    return events.is_file() and '"finished"' in events.read_text(encoding="utf-8").splitlines()[-1]


def trained(fault: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train unless that was done, diagnose, compare."""
    plan, seconds = planned(fault, seed), float("nan")
    if not has_ended(folder):
        start = time.perf_counter()
        run_lab(folder, fault, seed=seed, show_progress=False)
        seconds = time.perf_counter() - start
    causes = [f for f in diagnose(folder).causes if f.severity != "info"]
    first = first_alarm(causes)
    return {
        "fault": fault if fault in FAULTS else "healthy",
        "variant": fault,
        "seed": seed,
        "first": first.cause if first else "healthy",
        "others": ", ".join(f.cause for f in causes[1:]),
        "right": bool(compared(fault, plan, causes)["agrees"].all()),
        "onset": plan.onset,
        "seen": first.steps.first if first else None,
        "train_seconds": round(seconds, 1),
    }


def as_markdown(results: pd.DataFrame) -> str:
    """The confusion matrix and what is wrong in it, as a section of the docs."""
    rows = results.groupby("fault").apply(_row, include_groups=False).reset_index()
    lines = ["| fault | runs | right | first cause named |", "| --- | --- | --- | --- |"]
    lines += [f"| {r.fault} | {r.runs} | {r.right} | {r.named} |" for r in rows.itertuples()]
    lines += ["", f"{int(results['right'].sum())} of {len(results)} right, place and onset included. "
              f"Seeds {', '.join(str(s) for s in sorted(set(results['seed'])))}."]  # fmt: skip
    if results["train_seconds"].notna().any():
        lines[-1] += f" A training took {results['train_seconds'].median():.0f} s (median)."
    for r in results[~results["right"]].itertuples():
        lines.append(f"- wrong: {r.variant}, seed {r.seed}: {r.first} from step {r.seen} (onset {r.onset}); {r.others}")
    return "\n".join(lines)


def _row(group: pd.DataFrame) -> pd.Series:
    named = ", ".join(f"{cause} {count}" for cause, count in group["first"].value_counts().items())
    return pd.Series({"runs": len(group), "right": int(group["right"].sum()), "named": named})


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep:
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> None:
    """Run the lab, print the table, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", help="only these faults or healthy variants")
    parser.add_argument("--keep", type=Path, help="keep the runs here")
    parser.add_argument("--write", type=Path, help="document whose matrix to replace")
    arguments = parser.parse_args()
    names = arguments.only or [*FAULTS, *HEALTHY]
    rows = []
    with _folder(arguments.keep) as folder:
        for name, seed in tqdm([(n, s) for n in names for s in arguments.seeds], unit="training"):
            rows.append(trained(name, seed, lab_directory(folder, name, seed)))
            tqdm.write(str({k: v for k, v in rows[-1].items() if v not in ("", None)}))
    text = as_markdown(pd.DataFrame(rows))
    print(text)
    if arguments.write:
        write_section(arguments.write, "matrix", text)


if __name__ == "__main__":
    main()
