"""`workbench data ...`: the data side of a training: profile and tune its pipeline, convert and check its files.

A module of `workbench.commands` with SUBCOMMANDS of this group is named in MODULES.
"""

from __future__ import annotations

import argparse

from workbench.commands import data_convert, data_health, data_profile, data_tune
from workbench.commands.command import Command, add_commands

MODULES = (data_profile, data_tune, data_convert, data_health)


def _add_data(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="data_command", metavar="WHAT", required=True)
    commands = (command for module in MODULES for command in module.SUBCOMMANDS)
    add_commands(subparsers, commands, run_as="run_data_command")


def run_data(arguments: argparse.Namespace) -> int:
    """Run the chosen subcommand; return its exit status."""
    status: int = arguments.run_data_command(arguments)
    return status


COMMANDS = (
    Command(
        name="data",
        summary="the data of a training: profile its pipeline, tune it; convert and check its files",
        examples=tuple(example for module in MODULES for command in module.SUBCOMMANDS for example in command.examples),
        add_arguments=_add_data,
        run=run_data,
    ),
)
