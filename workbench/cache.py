"""Where derived data lies: beside our own runs, else in the user's cache."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from workbench.files import RunFiles

CACHE_VARIABLE = "WORKBENCH_CACHE"


def cache_directory(root: Path, *, is_ours: bool) -> Path:
    """Where the derived data of the run at `root` belongs: beside our own runs, else in the user's cache.

    The variable WORKBENCH_CACHE names another place for the latter.
    """
    if is_ours and os.access(root, os.W_OK) and str(root).isprintable():
        return RunFiles(root).cache
    key = hashlib.sha256(str(root.resolve()).encode(errors="surrogateescape")).hexdigest()[:20]
    return user_cache() / key


def usable_directory(wanted: Path) -> Path:
    """`wanted`, made if needed; a temporary directory, which dies with this process, if it cannot be written to."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        temporary = tempfile.mkdtemp(prefix="workbench-")
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return Path(temporary)


def user_cache() -> Path:
    """The user's cache directory for the workbench."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mindspore-workbench"
