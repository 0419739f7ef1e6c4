"""`workbench open`: JupyterLab at a copy of the start notebook, filled in for one run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec

from workbench.commands.command import Command
from workbench.errors import UnknownParameterError
from workbench.files import share_dir, write_atomic
from workbench.notebook_copies import fill_notebooks, is_ours, work_folder

DEFAULT_NOTEBOOK = "start"
SAMPLE = "rehearsal_run"
# No look at the net: announcements, updates and the extension manager would wait for a time-out on a cluster.
LAB_CONFIG = {
    "jupyter_lab_config.json": {
        "LabApp": {
            "news_url": None,
            "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            "extension_manager": "readonly",
        }
    },
    "labconfig/page_config.json": {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}},
}


def run_open(arguments: argparse.Namespace) -> int:
    """Copy the notebooks for the run, say where, and become JupyterLab."""
    from workbench.charts.theme import chart_scripts

    run = default_run(Path.cwd()) if arguments.run is None else arguments.run
    folder = work_folder(run)
    notebook = folder / f"{arguments.notebook.removesuffix('.ipynb')}.ipynb"
    fill_notebooks(share_dir() / "notebooks", folder, run, fresh=arguments.fresh)
    if not notebook.is_file():
        known = sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.ipynb") if is_ours(p))
        raise UnknownParameterError(
            f"There is no notebook {arguments.notebook!r}.", fix=f"use one of {', '.join(known)}"
        )
    print(f"Run: {run}\nNotebook: {notebook}\nJupyterLab starts; stop it with Ctrl-C.", flush=True)
    chart_scripts()  # the first time ever: here, where one waits anyway, and not before the first chart
    command, environment = lab_command(notebook, folder, browser=not arguments.no_browser, port=arguments.port)
    os.execve(command[0], command, environment)


def default_run(folder: Path) -> Path:
    """The newest recorded run in `runs/` (or of the folder itself), else the sample that is shipped."""
    from workbench.readers.run_list import list_runs

    for place in (folder / "runs", folder):
        if len(found := list_runs(place)):
            return Path(found["path"].iloc[0])
    return share_dir() / "data_samples" / SAMPLE


def lab_command(
    notebook: Path, folder: Path, *, browser: bool = True, port: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a JupyterLab at `notebook` that asks nothing of the internet."""
    config = folder / ".jupyter"
    for name, content in LAB_CONFIG.items():
        write_atomic(config / name, msgspec.json.encode(content))
    command = [sys.executable, "-m", "jupyterlab", str(notebook), f"--ServerApp.root_dir={folder}"]
    command += [f"--LabApp.default_url=/lab/tree/{quote(notebook.relative_to(folder).as_posix())}"]  # the address shown
    command += [f"--LabApp.workspaces_dir={config / 'workspaces'}"]  # no tabs of other runs
    command += [] if browser else ["--no-browser"]
    command += [] if port is None else [f"--port={port}"]
    command += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    paths = [str(config), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return command, {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(paths)}


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", type=Path, help="run directory, profile, or folder of logs (default: newest run)"
    )
    parser.add_argument("--notebook", default=DEFAULT_NOTEBOOK, help="notebook to open, e.g. reports/checkpoint")
    parser.add_argument("--fresh", action="store_true", help="replace earlier copies of the notebooks for this run")
    parser.add_argument("--no-browser", action="store_true", help="only start the server and print its address")
    parser.add_argument("--port", type=int, help="port of the server (default: a free one from 8888)")


COMMANDS = (
    Command(
        name="open",
        summary="start JupyterLab at a start notebook for a run",
        examples=("workbench open runs/demo", "workbench open /data/logs --no-browser --port 9000"),
        add_arguments=_add_open,
        run=run_open,
    ),
)
