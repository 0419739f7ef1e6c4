"""`workbench diagnose`: ranked causes of what is wrong with a run."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.command import Command
from workbench.errors import UnknownParameterError

if TYPE_CHECKING:
    from workbench.findings.finding import Finding


def _add_diagnose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        help="run directory, profile directory, folder of logs or CSV series, or one file",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of that object, and nothing else")
    parser.add_argument(
        "--step", type=int, default=None, help="look only at what had happened up to this training step"
    )
    parser.add_argument(
        "--checkpoint", default=None, help="look only at what had happened up to this checkpoint (its file stem)"
    )


def run_diagnose(arguments: argparse.Namespace) -> int:
    """Print the causes, most costly first; return 1 if one is at warning or above, else 0."""
    from workbench.findings.diagnosis import diagnose, diagnosis_schema
    from workbench.overview import notes_text

    if arguments.schema:
        print(json.dumps(diagnosis_schema(), indent=2))
        return 0
    if arguments.path is None:
        raise UnknownParameterError("No path is given.", fix="name a run directory, a folder of logs, or a file")
    found = diagnose(arguments.path, step=arguments.step, checkpoint=arguments.checkpoint)
    print(json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False) if arguments.json else found)
    if not arguments.json and (playbook := _first_playbook(found.causes)):
        print(f"Next: workbench playbook {playbook} {shlex.quote(str(arguments.path))}")
    if arguments.json:
        for line in (*found.jobs, *notes_text(found.notes)):
            print(line, file=sys.stderr)
    return found.exit_status


def _first_playbook(causes: Sequence[Finding]) -> str | None:
    """The playbook of the first cause that has one."""
    return next((c.playbook for c in causes if c.playbook != "none"), None)


COMMANDS = (
    Command(
        name="diagnose",
        summary="ranked causes of what is wrong with a run (exit status: 0 healthy, 1 causes found, 2 not readable)",
        examples=("workbench diagnose runs/demo", "workbench diagnose /data/profiles --json"),
        add_arguments=_add_diagnose,
        run=run_diagnose,
    ),
)
