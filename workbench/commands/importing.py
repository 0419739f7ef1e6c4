"""`workbench import` and `workbench tables`: read a directory, show what is in it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from workbench.commands.command import Command


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="run directory, profile directory, folder of logs, or one file")
    parser.add_argument("--jobs", type=int, default=None, help="worker processes (default: all cores)")


def run_import(arguments: argparse.Namespace) -> int:
    """Read everything under a path into Parquet, and say what was found, what is missing and where it lies."""
    from workbench.run import open_run

    run = open_run(arguments.path, quiet=True, jobs=arguments.jobs)
    where = run.read_all(quiet=False)
    print(run)
    print(f"Tables are in {where}")
    path = shlex.quote(str(arguments.path))
    print(f"Next: workbench diagnose {path}  or  workbench open {path}")
    return 0


def _add_tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="run directory, profile directory, folder of logs, or one file")
    parser.add_argument("table", nargs="?", help="show the first rows of this table")
    parser.add_argument("--rows", type=int, default=20, help="rows to show (default 20)")


def run_tables(arguments: argparse.Namespace) -> int:
    """List the tables of a run with their rows, or show the first rows of one."""
    from workbench.run import open_run

    run = open_run(arguments.path, quiet=True)
    if arguments.table:
        print(run.table(arguments.table).head(arguments.rows).to_string(max_colwidth=60))
        return 0
    run.read_all(quiet=False)
    for name in run.tables:
        print(f"{name:20} {run.count(name):>12,} rows")
    return 0


COMMANDS = (
    Command(
        name="import",
        summary="recognise and read everything in a directory; say what is there and what is missing",
        examples=("workbench import runs/demo", "workbench import /data/profiles --jobs 8"),
        add_arguments=_add_import,
        run=run_import,
    ),
    Command(
        name="tables",
        summary="list the tables of a run, or show one",
        examples=("workbench tables runs/demo", "workbench tables runs/demo training_steps --rows 5"),
        add_arguments=_add_tables,
        run=run_tables,
    ),
)
