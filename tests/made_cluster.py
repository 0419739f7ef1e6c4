"""Runs of the cluster simulator in the sample collection, small, with the truth that it wrote."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.run import Run, open_run

NAMES = ("kernels", "collectives", "step_time", "links")


def make_cluster(shared: Path, out: Path, *faults: str, **options: Any) -> tuple[Run, dict[str, Any]]:
    """Simulate a cluster and open it. Options are those of make_cluster.py, `_` for `-`. Traces only if `trace`."""
    given = {"ranks": 8, "steps": 4, **options}
    no_trace = [] if given.pop("trace", False) else ["--no-trace"]
    words = [str(w) for name, value in given.items() for w in (f"--{name.replace('_', '-')}", value)]
    words += [w for fault in faults for w in ("--fault", fault)]
    tool = shared / "tools" / "make_cluster.py"
    subprocess.run([sys.executable, str(tool), str(out), *no_trace, *words], check=True, capture_output=True)
    return open_run(out, quiet=True), json.loads((out / "truth.json").read_text())


def profile_tables(run: Run) -> dict[str, pd.DataFrame]:
    """The tables that a what-if takes."""
    return {name: run.table(name) for name in NAMES if name in run.tables}
