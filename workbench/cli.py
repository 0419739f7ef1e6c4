"""The command line: `workbench COMMAND ...`. Commands live in `workbench.commands`, one module per topic."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from workbench import __version__
from workbench.commands import (
    alerting,
    checkpoints,
    data,
    diagnosing,
    evaluating,
    importing,
    opening,
    playbooks,
    rehearsing,
    reporting,
)
from workbench.commands.command import Command, add_commands
from workbench.errors import WorkbenchError, missing_mindspore

# a module of workbench.commands with COMMANDS is named here
MODULES = (rehearsing, opening, importing, data, diagnosing, playbooks, reporting, evaluating, checkpoints, alerting)
COMMANDS: tuple[Command, ...] = tuple(command for module in MODULES for command in module.COMMANDS)

EXIT_PROBLEM = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
PATH_FIX = "check the path, that you may read and write there, and that there is space; or name another folder"


def build_parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="workbench", description="Is this run good, healthy and fast, what holds it back, and did the change help."
    )
    parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    parser.set_defaults(run_command=lambda _arguments: _show_help(parser))
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    add_commands(subparsers, commands, run_as="run_command")
    return parser


def _show_help(parser: argparse.ArgumentParser) -> int:
    """What a call without a command gives: the list of commands, as a problem."""
    parser.print_help(sys.stderr)
    return EXIT_PROBLEM


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status.

    2 is a problem that the user can fix, printed with its fix; 130 follows Ctrl-C; 141 a reader that closed the pipe.
    """
    try:
        arguments = build_parser().parse_args(argv)
        status: int = arguments.run_command(arguments)
        sys.stdout.flush()
    except WorkbenchError as error:
        print(error, file=sys.stderr)
        return EXIT_PROBLEM
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mindspore":
            raise
        print(missing_mindspore(f"workbench {arguments.command}"), file=sys.stderr)
        return EXIT_PROBLEM
    except KeyboardInterrupt:
        print("Interrupted. What was finished is kept; call the same command again to go on.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing may complain at exit
        return EXIT_PIPE_CLOSED
    except OSError as error:
        if error.filename is None:  # no path that the user could do something about
            raise
        print(f"{error.filename} cannot be used: {error.strerror}.\nFix: {PATH_FIX}", file=sys.stderr)
        return EXIT_PROBLEM
    return status


if __name__ == "__main__":
    sys.exit(main())
