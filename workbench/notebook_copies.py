"""The packaged notebooks -> copies filled in for a run, in the user's folders."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from workbench.cache import usable_directory, user_cache
from workbench.errors import UnknownContentError, UnknownParameterError
from workbench.files import share_dir, write_atomic

PARAMETER = "run_path"
PLAYBOOK_FOLDER = "playbooks"


def work_folder(run: Path) -> Path:
    """Where the copies for a run lie: in the user's cache, so that run directories are left as they are.

    Raises:
        UnknownContentError: there is no such path.
    """
    return usable_directory(user_cache() / "notebooks" / run_key(run))


def run_key(run: Path) -> str:
    """Name of a folder for one run: its own name, made plain, and a few characters that tell it from others.

    Raises:
        UnknownContentError: there is no such path.
    """
    if not run.exists():
        raise UnknownContentError(f"There is no {run}.", fix="name a run directory, a profile, or a folder of logs")
    place = run.resolve()
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", place.name)[:40]
    return f"{plain}-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"


def fill_notebooks(source: Path, folder: Path, run: Path, *, fresh: bool = False) -> None:
    """Copy all notebooks of `source` into `folder`, filled in for a run. Earlier copies are kept, unless `fresh`.

    Args:
        source: folder of notebooks, searched in depth.
        folder: where the copies go, under the same names.
        run: the run that their parameter `run_path` gets.
        fresh: replace copies, losing what the user changed in them.
    """
    for path in sorted(source.rglob("*.ipynb")):
        copy = folder / path.relative_to(source)
        if is_ours(path) and (fresh or not copy.exists()):
            fill_notebook(path, copy, run)


def fill_notebook(source: Path, copy: Path, run: Path) -> None:
    """Write `copy`, the notebook `source` with the run in its parameters cell."""
    notebook = msgspec.json.decode(source.read_bytes())
    for cell in notebook["cells"]:
        if "parameters" in cell.get("metadata", {}).get("tags", ()):
            cell["source"] = _filled("".join(cell["source"]), run)
    write_atomic(copy, msgspec.json.format(msgspec.json.encode(notebook), indent=1))


def fill_playbook(notebook: str, run: Path, folder: Path) -> Path:
    """The playbook's copy for a run, `folder/playbooks/<run>/<notebook>.ipynb`; an earlier copy is kept.

    Args:
        notebook: stem of a file in notebooks/troubleshoot.
        run: the run that its parameter `run_path` gets.
        folder: the user's working folder.

    Raises:
        UnknownParameterError: there is no such notebook.
        UnknownContentError: there is no such run.
    """
    source = share_dir() / "notebooks" / "troubleshoot" / f"{notebook}.ipynb"
    if not source.is_file():
        known = ", ".join(sorted(p.stem for p in source.parent.glob("*.ipynb")))
        raise UnknownParameterError(f"There is no playbook notebook {notebook!r}.", fix=f"use one of {known}")
    copy = folder / PLAYBOOK_FOLDER / run_key(run) / source.name
    if not copy.exists():
        fill_notebook(source, copy, run)
    return copy


def is_ours(path: Path) -> bool:
    """Whether a notebook is no copy that Jupyter keeps as a checkpoint."""
    return ".ipynb_checkpoints" not in path.parts


def _filled(source: str, run: Path) -> str:
    return re.sub(rf"(?m)^{PARAMETER} = .*$", lambda _match: f"{PARAMETER} = {str(run.resolve())!r}", source)
