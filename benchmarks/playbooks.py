"""Run every playbook under papermill, on its faulty sample and on a healthy run, and write the verdicts into the docs.

python benchmarks/playbooks.py --keep FOLDER --write docs/playbooks.md
"""

import argparse
import tempfile
import time
from pathlib import Path

import nbformat
from document import write_section

from workbench.files import share_dir
from workbench.findings.playbooks import PLAYBOOKS
from workbench.reporting.report import render_report

SECTION = "verdicts"
HEALTHY = {
    "T3": "simulated_devices/healthy", "T4": "simulated_cluster_healthy", "T7": "simulated_devices/healthy",
    "T9": "simulated_devices/healthy", "T10": "upgrade_fixed",
}  # fmt: skip
OTHERS = "rehearsal_run"


def main() -> None:
    """Run, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(PLAYBOOKS))
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "playbooks_executed")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    lines = ["| playbook | faulty sample | verdict | proof | a healthy run | verdict | run in |", "|---" * 7 + "|"]
    for name in arguments.only:
        lines.append(row(name, arguments.keep))
        print(lines[-1], flush=True)
    if arguments.write:
        write_section(arguments.write, SECTION, "\n".join(lines))


def row(name: str, keep: Path) -> str:
    """One playbook on two runs, as a line of the table."""
    healthy = HEALTHY.get(name, OTHERS)
    before = time.monotonic()
    faulty_shown = executed(name, keep / f"{name}_faulty.ipynb")
    seconds = time.monotonic() - before
    healthy_shown = executed(name, keep / f"{name}_healthy.ipynb", share_dir() / "data_samples" / healthy)
    verdict = faulty_shown["case.verdict()"].splitlines()[0].split(" Fix: ")[0]
    proof = faulty_shown["case.proof()"].splitlines()[0]
    calm = healthy_shown["case.verdict()"].splitlines()[0]
    return f"| {name} | `{PLAYBOOKS[name].sample}` | {verdict} | {proof} | `{healthy}` | {calm} | {seconds:.0f} s |"


def executed(name: str, out: Path, run: Path | None = None) -> dict[str, str]:
    """What each cell of the executed notebook shows as text, by its source."""
    notebook = share_dir() / "notebooks" / "troubleshoot" / f"{PLAYBOOKS[name].notebook}.ipynb"
    options = {} if run is None else {"run_path": str(run)}
    cells = nbformat.read(render_report(notebook, out, **options), as_version=4).cells
    shown = ((c.source, o.data["text/plain"]) for c in cells if c.cell_type == "code" for o in c.outputs if "data" in o)
    return dict(shown)


if __name__ == "__main__":
    main()
