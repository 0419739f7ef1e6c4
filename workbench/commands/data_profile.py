"""`workbench data profile`: which operator holds a recorded data pipeline back."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.commands.command import Command


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="run directory or folder with the MindData profiling files")


def run_profile(arguments: argparse.Namespace) -> int:
    """Print the operators of the pipeline with their queues."""
    from workbench.run import open_run

    print(open_run(arguments.path, quiet=True).table("data_ops").to_string(index=False))
    return 0


SUBCOMMANDS = (
    Command(
        name="profile",
        summary="which operator of a data pipeline holds it back",
        examples=("workbench data profile runs/demo",),
        add_arguments=_add_profile,
        run=run_profile,
    ),
)
