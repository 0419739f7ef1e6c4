"""`workbench rehearse`: the whole chain on a small model."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from workbench.commands.command import Command

EXIT_NOT_ALL_COMPLETE = 1


def _add_rehearse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, nargs="?", help="new run directory (default: runs/demo, or runs/demo-2 ... when taken)"
    )
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="folder of all reports (reports)")
    parser.add_argument("--steps", type=int, default=600, help="training steps (600: about three minutes on two cores)")
    parser.add_argument("--checkpoints", type=int, default=5, help="checkpoints over the training (5)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (1)")
    parser.add_argument("--width", type=int, default=96, help="width of the network (96)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the network (4)")
    parser.add_argument("--context-length", type=int, default=128, help="bytes of a training window (128)")
    parser.add_argument("--pynative", action="store_true", help="PyNative mode: several times slower")
    parser.add_argument("--webhook", help="address that alerts are posted to (default: $WORKBENCH_ALERT_WEBHOOK)")


def run_rehearse(arguments: argparse.Namespace) -> int:
    """Rehearse, then say what was found and where everything is."""
    from workbench.alert_delivery import webhook_address
    from workbench.rehearse import free_run_dir, rehearse
    from workbench.reporting.watch import WatchOptions

    _check_numbers(arguments)
    run_dir = arguments.run or free_run_dir(Path("runs/demo"))
    print(f"Rehearsing in {run_dir}: train, record, profile, evaluate, report.", flush=True)
    records, alert, diagnosis = rehearse(
        run_dir,
        arguments.reports,
        WatchOptions(webhook=webhook_address(arguments.webhook), settle_s=1.0, poll_s=1.0),
        steps=arguments.steps,
        words=_training_words(arguments),
    )
    complete = sum(r.status == "complete" for r in records)
    print(f"\nReports: {complete} of {len(records)} checkpoints complete.")
    for record in records:
        scores = ", ".join(f"{s.subset} {s.value:.2f}" for s in record.scores if s.metric == "perplexity")
        print(f"  step {record.step}: perplexity {scores}" if scores else f"  step {record.step}: {record.why}")
    print(f"Test alert: written to the run's alert file, webhook {alert.webhook}")
    print(f"\nDiagnosis:\n{diagnosis}")
    print(
        f"\nRun:      {run_dir}\nReports:  {arguments.reports / 'index.html'}\n"
        f"Explore:  {_program()} open {run_dir}      (starts JupyterLab at a notebook for this run)"
    )
    return 0 if complete == len(records) and records else EXIT_NOT_ALL_COMPLETE


def _program() -> str:
    """How this shell starts the command line: by its name, or by its place in an environment that is not active."""
    return "workbench" if shutil.which("workbench") else os.path.relpath(Path(sys.executable).with_name("workbench"))


def _check_numbers(arguments: argparse.Namespace) -> None:
    from workbench.errors import UnknownParameterError

    for name in ("steps", "checkpoints", "width", "layers", "context_length"):
        if (value := getattr(arguments, name)) < 1:
            option = name.replace("_", "-")
            raise UnknownParameterError(f"--{option} {value} is no number to train with.", fix="give 1 or more")
    if arguments.checkpoints > arguments.steps:
        raise UnknownParameterError(
            f"{arguments.steps} step(s) cannot give {arguments.checkpoints} checkpoints.",
            fix=f"give --checkpoints {min(arguments.steps, 5)}, or more --steps",
        )


def _training_words(arguments: argparse.Namespace) -> list[str]:
    names = ("checkpoints", "seed", "width", "layers", "context_length")
    words = [word for n in names for word in (f"--{n.replace('_', '-')}", str(getattr(arguments, n)))]
    return [*words, "--pynative"] if arguments.pynative else words


COMMANDS = (
    Command(
        name="rehearse",
        summary="train a small model and run the whole chain on it: record, profile, evaluate, report, alert",
        examples=("workbench rehearse", "workbench rehearse runs/trial --steps 200 --checkpoints 4"),
        add_arguments=_add_rehearse,
        run=run_rehearse,
    ),
)
