"""What a command of the command line is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Command:
    """One subcommand: its words in `--help`, its arguments, and the function that runs it.

    `run` returns the exit status and prints where its result is. A `WorkbenchError` that it raises is printed as
    `problem / Fix:`, with exit status 2.
    """

    name: str
    summary: str  # one line for `workbench --help`
    examples: tuple[str, ...]  # full command lines
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_commands(subparsers: Any, commands: Iterable[Command], *, run_as: str) -> None:
    """Give each command a parser below `subparsers`; the chosen one's function is the argument `run_as`."""
    for command in commands:
        sub = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog="examples:\n" + "\n".join(f"  {line}" for line in command.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(**{run_as: command.run})
