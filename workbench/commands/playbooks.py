"""`workbench playbook`: run a troubleshooting notebook on a run, without JupyterLab."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.commands.command import Command
from workbench.errors import ReportFailedError, UnknownContentError, UnknownParameterError


def _add_playbook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("playbook", help="T1 to T10, or E7; `list` prints them with their symptoms")
    parser.add_argument(
        "run_path", metavar="RUN", type=Path, nargs="?", help="run directory, profile, or folder of logs"
    )
    parser.add_argument("--compare-with", metavar="RUN", type=Path, help="the run after the fix, for the proof")
    parser.add_argument(
        "--reports", type=Path, default=Path("reports"), help="folder of all reports (default: reports)"
    )


def run_playbook(arguments: argparse.Namespace) -> int:
    """Run the notebook, print what it found; return 1 if the run has one of its causes, else 0."""
    from workbench.findings.playbooks import PLAYBOOKS

    if arguments.playbook == "list":
        for name, known in PLAYBOOKS.items():
            print(f"{name:4} {known.symptom}")
        return 0
    if arguments.playbook not in PLAYBOOKS:
        raise UnknownParameterError(
            f"There is no playbook {arguments.playbook!r}.", fix=f"use one of {', '.join(PLAYBOOKS)}"
        )
    if arguments.run_path is None:
        raise UnknownParameterError("No run is given.", fix="name a run directory, a profile, or a folder of logs")
    folder = _rendered(arguments)
    return _print_causes(arguments.playbook, folder, proof=arguments.compare_with is not None)


def _rendered(arguments: argparse.Namespace) -> Path:
    """Run the notebook; the folder that then holds its page, the executed notebook and the findings."""
    from tqdm.auto import tqdm

    from workbench.files import share_dir
    from workbench.findings.playbooks import PLAYBOOKS
    from workbench.notebook_copies import run_key
    from workbench.reporting.report import run_notebook
    from workbench.run import open_run

    open_run(arguments.run_path, quiet=True, eager=False)  # what cannot be read is told before a notebook runs
    notebook = share_dir() / "notebooks" / "troubleshoot" / f"{PLAYBOOKS[arguments.playbook].notebook}.ipynb"
    folder = arguments.reports / "playbooks" / run_key(arguments.run_path) / arguments.playbook
    folder.mkdir(parents=True, exist_ok=True)
    other = arguments.compare_with
    if other is not None and not other.exists():
        raise UnknownContentError(
            f"There is no {other}.", fix="name the run after the fix, or leave --compare-with out"
        )
    parameters = {
        "run_path": str(arguments.run_path.resolve()),
        "compare_with": None if other is None else str(other.resolve()),
        "findings_path": str((folder / "findings.json").resolve()),
    }
    title = f"{arguments.playbook} · {arguments.run_path.resolve().name}"
    with tqdm(desc=f"running {notebook.name}", bar_format="{desc} {elapsed}", mininterval=2.0, leave=False) as bar:
        done = run_notebook(
            notebook, folder / "report.ipynb", parameters, page=folder / "report.html", title=title, tick=bar.update
        )
    if done.failure is not None:
        raise ReportFailedError(done.failure.problem, fix=done.failure.fix)
    return folder


def _print_causes(playbook: str, folder: Path, *, proof: bool) -> int:
    from workbench.findings.playbooks import PLAYBOOKS
    from workbench.reporting.report import read_findings

    grave = [f for f in read_findings(folder / "findings.json") if f["severity"] != "info"]
    own = [f for f in grave if f["cause"] in PLAYBOOKS[playbook].causes]
    for found in own:
        print(f"[{found['severity']}] {found['cause']}: {found['title']}\n   Fix: {found['fix']}")
    if not own:
        print(_sentence(folder / "report.ipynb", "case.verdict()"))
    elif proof:
        print(_sentence(folder / "report.ipynb", "case.proof()"))
    print(f"Page: {folder / 'report.html'}")
    return int(bool(own))


def _sentence(executed: Path, call: str) -> str:
    """What the notebook concluded: first line of what its cell with `call` shows."""
    import nbformat

    cells = nbformat.read(executed, as_version=4).cells
    cell = next(c for c in cells if c.cell_type == "code" and c.source.startswith(call))
    return str(cell.outputs[0].data["text/plain"]).splitlines()[0]


COMMANDS = (
    Command(
        name="playbook",
        summary="run a troubleshooting notebook on a run (exit status: 0 none of its causes, 1 found, 2 a problem)",
        examples=(
            "workbench playbook list",
            "workbench playbook T4 /data/profiles --compare-with /data/profiles_fixed",
        ),
        add_arguments=_add_playbook,
        run=run_playbook,
    ),
)
