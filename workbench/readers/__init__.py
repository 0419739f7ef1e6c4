"""Readers: files -> tables. `ALL_KINDS` joins the kinds of all reader modules; the first kind that matches a file wins.

A reader module lists its kinds in `KINDS` and is named here, the more specific modules first.
"""

from __future__ import annotations

from workbench.readers import run_directory, trace
from workbench.readers.kinds import FileContext, FileKind

MODULES = (run_directory, trace)
ALL_KINDS: tuple[FileKind, ...] = tuple(kind for module in MODULES for kind in module.KINDS)

__all__ = ["ALL_KINDS", "FileContext", "FileKind"]
