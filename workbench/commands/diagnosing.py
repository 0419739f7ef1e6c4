"""`workbench diagnose`: ranked causes of what is wrong with a run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from workbench.commands.command import Command


def _add_diagnose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, help="run directory, profile directory, folder of logs or CSV series, or one file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--step", type=int, default=None, help="look only at what had happened up to this training step"
    )


def run_diagnose(arguments: argparse.Namespace) -> int:
    """Print the causes, most costly first; return 1 if one is at warning or above, else 0."""
    from workbench.findings.diagnosis import diagnose

    found = diagnose(arguments.path, step=arguments.step)
    print(json.dumps(found.to_dict(), ensure_ascii=False, allow_nan=False) if arguments.json else found)
    return found.exit_status


COMMANDS = (
    Command(
        name="diagnose",
        summary="ranked causes of what is wrong with a run (exit status: 0 healthy, 1 causes found, 2 not readable)",
        examples=("workbench diagnose runs/demo", "workbench diagnose /data/profiles --json"),
        add_arguments=_add_diagnose,
        run=run_diagnose,
    ),
)
