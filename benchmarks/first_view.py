"""How long the explorer takes in JupyterLab: until its first chart is seen, and until the causes are there.

    python -m benchmarks.first_view [RUN ...]

In a headless Chromium that reaches nothing but this machine, in a new kernel: the first cell imports, the second one is
`wb.explore(run)`; the times of the view begin when that one is run. Each run is copied and opened twice: as never seen
before, and again with its derived tables at hand. A cluster of 64 ranks comes from a simulator, or from anywhere else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import nbformat
from playwright.sync_api import Page

from tests.lab import lab_server, watched_page
from workbench.cache import CACHE_VARIABLE
from workbench.charts.theme import chart_scripts
from workbench.files import RunFiles

DEMO = Path(__file__).parents[1] / "data_samples" / "rehearsal_run"
CHART = ".jp-Cell .vega-embed svg.marks, .jp-Cell .vega-embed canvas.marks"
CAUSES = ".jp-Cell button:has-text('Show evidence'), .jp-Cell b:has-text('Nothing found')"
WAIT_MS = 300_000


class Times(NamedTuple):
    """Seconds of importing; and from running the explorer's cell."""

    import_s: float
    first_chart_s: float
    causes_s: float


def main() -> int:
    """Measure the runs, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, default=[DEMO], help="runs to open; default: the demo run")
    given = parser.parse_args()
    print(f"{'run':30} {'opened':>8} {'import, s':>10} {'first chart, s':>15} {'causes, s':>10}")
    for run in given.runs:
        with _as_never_seen(run.resolve()) as fresh:
            for opened in ("first", "again"):
                times = first_view(fresh)
                name = run.resolve().name[:30]
                print(
                    f"{name:30} {opened:>8} {times.import_s:10.1f} {times.first_chart_s:15.1f} {times.causes_s:10.1f}"
                )
    return 0


def first_view(run: Path) -> Times:
    """Open a run in the explorer of a new kernel."""
    with tempfile.TemporaryDirectory() as place:
        notebook = Path(place) / "explore.ipynb"
        sources = ("import workbench as wb\nwb.explore\n'imported'", f"wb.explore({str(run)!r})")
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), notebook)
        with lab_server(notebook, Path(place)) as address, watched_page() as (page, blocked):
            times = _watch(page, address)
            if blocked:
                raise SystemExit(f"The page wanted to reach {blocked}.")
            return times


def _watch(page: Page, address: str) -> Times:
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=WAIT_MS)
    page.wait_for_selector("text=| Idle", timeout=WAIT_MS)
    page.locator(".jp-Cell .cm-content").first.click()
    importing = time.perf_counter()
    page.keyboard.press("Shift+Enter")
    page.locator(".jp-OutputArea-output:has-text('imported')").first.wait_for(state="visible", timeout=WAIT_MS)
    began = time.perf_counter()
    page.keyboard.press("Control+Enter")
    page.locator(CHART).first.wait_for(state="visible", timeout=WAIT_MS)
    chart_s = time.perf_counter() - began
    page.locator(CAUSES).first.wait_for(state="visible", timeout=WAIT_MS)
    return Times(began - importing, chart_s, time.perf_counter() - began)


@contextmanager
def _as_never_seen(run: Path) -> Iterator[Path]:
    """A copy of a run without derived tables; kernels keep theirs in a folder that goes with it."""
    before = os.environ.get(CACHE_VARIABLE)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / run.name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns(RunFiles(run).cache.name))
        os.environ[CACHE_VARIABLE] = str(Path(place) / "cache")
        chart_scripts()  # `workbench open` bundles them before JupyterLab starts
        try:
            yield copy
        finally:
            os.environ.pop(CACHE_VARIABLE)
            if before is not None:
                os.environ[CACHE_VARIABLE] = before


if __name__ == "__main__":
    sys.exit(main())
