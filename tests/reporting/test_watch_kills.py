"""Fifty kills of two watchers over a real run: in the end each checkpoint has one complete report, never a half one."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import nbformat
import psutil
import pytest
from offline_page import OfflinePage

from workbench.reporting.archive import RunReports
from workbench.reporting.report import read_findings

KILLS, SEED = 50, 20
CHECKPOINTS = 8
PAUSE_SHARE, MAX_PAUSE_S = 0.2, 2.5  # mean time between two kills, as a share of the time of one report here
TRAINING = {
    "steps": 16, "checkpoints": CHECKPOINTS, "width": 16, "layers": 1, "context-length": 32, "samples-per-subset": 4,
    "batch-size": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A real training with eight checkpoints."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    words = [word for name, value in TRAINING.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "workbench.probes.rehearsal", str(folder), *words, "--no-profile"]
    subprocess.run(command, check=True, capture_output=True)
    assert len(list((folder / "checkpoints").glob("*.safetensors"))) == CHECKPOINTS
    return folder


def _seconds_of_one_report(run: Path, folder: Path) -> float:
    begin = time.monotonic()
    words = ["report", str(run), "--checkpoint", "2", "--reports", str(folder / "trial"), "--settle", "0.2"]
    subprocess.run([sys.executable, "-m", "workbench.cli", *words], check=True, capture_output=True)
    return time.monotonic() - begin


def _watcher(run: Path, root: Path) -> subprocess.Popen[bytes]:
    words = ["watch", str(run), "--reports", str(root), "--until-done", "--settle", "0.2", "--poll", "0.2"]
    with (root.parent / "watchers.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "workbench.cli", *words], stdout=log, stderr=log)


def _check_what_is_visible(reports: RunReports) -> int:
    """Every report that can be seen is whole; how many there are."""
    names = reports.names()
    for name in names:
        record, folder = reports.record(name), reports.report(name)
        assert record is not None
        assert record.status == "complete", record
        assert (folder / "report.html").read_text().endswith("</html>\n")
        assert nbformat.read(folder / "report.ipynb", as_version=4).cells
        assert isinstance(read_findings(folder / "findings.json"), list)
    return len(names)


def _processes_of(run: Path) -> list[psutil.Process]:
    """Evaluators and notebooks of this run that are alive, whoever started them."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(run) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


class Survived(NamedTuple):
    """What the watchers left: how many reports were there at each kill, and how the last two watchers ended."""

    reports: RunReports
    seen: list[int]
    statuses: list[int]
    log: str


@pytest.fixture(scope="module")
def survived(run, tmp_path_factory) -> Survived:
    """Two watchers over the run, killed fifty times in all and started again, then left to finish."""
    folder, chance = tmp_path_factory.mktemp("watched"), random.Random(SEED)
    root = folder / "reports"
    reports = RunReports(root, json.loads((run / "run.json").read_text())["run_id"])
    pause_s = min(PAUSE_SHARE * _seconds_of_one_report(run, folder), MAX_PAUSE_S)
    watchers = [_watcher(run, root) for _ in range(2)]
    seen = []
    for _ in range(KILLS):
        time.sleep(chance.expovariate(1 / pause_s))
        victim = chance.randrange(2)
        watchers[victim].kill()
        watchers[victim].wait()
        seen.append(_check_what_is_visible(reports))
        watchers[victim] = _watcher(run, root)
    statuses = [w.wait(timeout=900) for w in watchers]
    return Survived(reports, seen, statuses, (folder / "watchers.log").read_text())


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.timeout(1800)
def test_fifty_kills_of_two_watchers_lose_and_double_nothing(run, survived):
    reports = survived.reports
    assert survived.statuses == [0, 0], survived.log[-3000:]
    assert survived.seen == sorted(survived.seen)  # no report was lost again
    assert _check_what_is_visible(reports) == CHECKPOINTS
    records = reports.records()
    assert [r.step for r in records] == [2, 4, 6, 8, 10, 12, 14, 16]
    evals = [json.loads(line) for line in (run / "evals" / "checkpoint.jsonl").read_text().splitlines()]
    for record in records:
        rows = [r for r in evals if r["evaluation_id"] == record.evaluation_id]
        assert {r["checkpoint"] for r in rows} == {record.name}
        assert len(record.scores) == len(rows) > 0
    assert (reports.root / "index.html").read_text().count("badge complete") == CHECKPOINTS
    assert [*reports.work.glob("*~*"), *reports.claims.glob("[!.]*"), *reports.claims.glob(".*.tmp")] == []
    assert _processes_of(run) == []


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.browser
@pytest.mark.timeout(1800)
def test_the_real_reports_show_every_chart_without_network(survived):
    last = survived.reports.records()[-1]
    report = survived.reports.report(last.name) / "report.html"
    assert report.stat().st_size <= 3_000_000
    charts = report.read_text().count('<figure class="chart">')
    assert charts >= 5
    with OfflinePage(report) as (page, requests, problems):
        page.wait_for_function(f"document.querySelectorAll('figure.chart .live svg.marks').length == {charts}")
        for picture in page.locator("figure.chart .live svg.marks").all():
            box = picture.bounding_box()
            assert box["width"] > 100
            assert box["height"] > 50
    assert (requests, problems) == ([report.as_uri()], [])
    with OfflinePage(survived.reports.root / "index.html") as (page, requests, problems):
        assert page.locator("a", has_text=last.name).first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert (len(requests), problems) == (1, [])
