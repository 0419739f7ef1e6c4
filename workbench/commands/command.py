"""What a command of the command line is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


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
