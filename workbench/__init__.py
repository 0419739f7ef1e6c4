"""MindSpore Workbench: is this run good, healthy and fast, what holds it back, and did the change help.

The names below load their modules on first use, so that `import workbench` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.findings.diagnosis import diagnose
    from workbench.run import open_run
    from workbench.widgets.explorer import explore

__version__ = "0.1.0"
__all__ = ["__version__", "diagnose", "explore", "open_run"]

_HOMES = {
    "open_run": "workbench.run",
    "diagnose": "workbench.findings.diagnosis",
    "explore": "workbench.widgets.explorer",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
