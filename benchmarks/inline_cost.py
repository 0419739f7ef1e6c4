"""What inline evaluation costs a real training, with its controller on and off, at the same initial interval.

    python benchmarks/inline_cost.py [--mode graph] [--steps 1000] [--every 10] [--write docs/inline_evaluation.md]

Trains a small rehearsal model (CPU) once per setting, in a process of its own, and reads the cost back from
the run's events: evaluation seconds (compiling and writing included) over training seconds (evaluation left out).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from document import write_section


def child(folder: Path, arguments: argparse.Namespace) -> None:
    """Train once."""
    os.environ.setdefault("GLOG_v", "4")
    import mindspore as ms

    from workbench.probes.language_model import ModelConfig
    from workbench.probes.rehearsal import RehearsalConfig, train

    ms.set_device("CPU")
    config = RehearsalConfig(
        steps=arguments.steps,
        batch_size=32,
        model=ModelConfig(width=64, layers=1, context_length=64),
        inline_samples_per_subset=8,
        text_bytes=200_000,
        checkpoints=1,
        profile_steps=None,
        inline_every=arguments.every,
        inline_controlled=arguments.child == "on",
        pynative=arguments.mode == "pynative",
    )
    (folder / "work").mkdir(parents=True)
    os.chdir(folder / "work")  # MindSpore leaves compiler output in the working directory
    train(folder / "run", config)


def measured(setting: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Run one setting and read its cost."""
    from workbench.run import open_run

    with tempfile.TemporaryDirectory() as folder:
        print(f"training with the controller {setting}", file=sys.stderr, flush=True)
        words = [sys.executable, __file__, "--steps", str(arguments.steps), "--every", str(arguments.every)]
        words += ["--mode", arguments.mode, "--child", setting, "--folder", folder]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = open_run(Path(folder) / "run", quiet=True)
        events, steps = run.table("events"), run.table("training_steps")
    evals = events[events["kind"] == "eval"]
    if evals.empty:
        raise SystemExit(f"Controller {setting}: no evaluation was affordable. Fix: more --steps")
    seconds = evals["duration_us"].sum() / 1e6
    begin = int(events.loc[events["kind"] == "start", "start_ns"].iloc[0])
    whole = (int(steps["time_ns"].max()) - begin) / 1e9
    gaps = evals["step"].diff().dropna()
    return {
        "controller": setting,
        "evaluations": len(evals),
        "first, s": round(evals["duration_us"].iloc[0] / 1e6, 2),
        "others, median ms": round(evals["duration_us"].iloc[1:].median() / 1e3, 1),
        "steps between them": f"{gaps.min():.0f} to {gaps.max():.0f}" if len(gaps) else "",
        "first at step": int(evals["step"].iloc[0]),
        "training, s": round(whole - seconds, 1),
        "evaluation, s": round(seconds, 2),
        "cost": f"{seconds / (whole - seconds):.2%}",
    }


def main() -> None:
    """Run both settings, print the table, and put it into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=10, help="initial interval in steps")
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    parser.add_argument("--child", choices=["on", "off"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.folder, arguments)
        return
    rows = pd.DataFrame([measured(setting, arguments) for setting in ("on", "off")])
    lines = [f"| {' | '.join(rows.columns)} |", f"|{' --- |' * len(rows.columns)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows.itertuples(index=False)]
    mode = {"graph": "Graph mode", "pynative": "PyNative mode"}[arguments.mode]
    text = "\n".join(
        [f"{mode}, {arguments.steps} steps, initial interval {arguments.every} steps, budget 5 %:", "", *lines]
    )
    print(text)
    if arguments.write:
        write_section(arguments.write, "inline cost", text)


if __name__ == "__main__":
    main()
