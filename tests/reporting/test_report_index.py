"""The overview: every checkpoint by status and number, made from the folders alone."""

import re
import threading

import pytest

from workbench.reporting import report_index
from workbench.reporting.archive import ReportRecord, RunReports, RunState, Score, TopFinding, Waiting
from workbench.reporting.report_index import index_html, refresh_index

NASTY = "<script>alert(1)</script>\"'&"


def _publish(reports: RunReports, name: str, step: int | None, **changes: object) -> None:
    fields = {"file": f"{name}.ckpt", "status": "complete", "size_bytes": 1, "mtime_ns": 1, **changes}
    with reports.scratch() as scratch:
        (scratch / "report" / "report.html").write_text("x")
        reports.publish(scratch, ReportRecord(name=name, step=step, finished_ns=10**18, **fields))


def _scores(loss: float) -> list[Score]:
    return [
        Score(subset="code", metric="loss", value=loss),
        Score(subset="code", metric="perplexity", value=2**loss, low=2**loss - 0.5, high=2**loss + 0.5),
    ]


def test_an_empty_folder_says_what_to_do(tmp_path):
    assert "workbench watch RUN" in index_html(tmp_path / "absent")


def test_checkpoints_are_listed_newest_first_with_status_and_reason(tmp_path):
    reports = RunReports(tmp_path, "demo")
    _publish(reports, "m-1_2", 2, scores=_scores(3.0))
    _publish(
        reports, "m-1_10", 10, scores=_scores(2.0), findings=[TopFinding(severity="critical", cause="c", title="Bad.")]
    )
    _publish(reports, "m-1_4", 4, status="corrupt", damage="cut_short", why="It ends early.", fix="call `x` again")
    _publish(reports, "m-1_6", 6, status="corrupt", damage="garbled", why="No parameter.")
    _publish(reports, "m-1_8", 8, status="failed", why="Cell 3 raised.")
    waiting = [Waiting(name="m-1_12", file="f", step=12, status="writing", why="half-written so far")]
    reports.save_state(RunState(run_id="demo", run_path="/runs/demo", waiting=waiting))
    text = index_html(tmp_path)
    steps = re.findall(r'<tr><td class="number">(\d+)</td>', text)
    labels = re.findall(r'class="badge \w+">([^<]+)<', text)
    assert steps == ["12", "10", "8", "6", "4", "2"]
    assert labels == ["being written", "complete", "failed", "corrupt", "half-written", "complete"]
    for words in ("half-written so far", "Cell 3 raised.", "It ends early.", "<code>x</code>", "Bad.", "nothing found"):
        assert words in text
    assert "8.000" in text  # 2 to the power of 3
    assert "7.5 – 8.5" in text
    assert "2 reported · 1 failed · 2 damaged · 1 waiting · training goes on · /runs/demo" in text
    assert "code: 8 → 4<svg" in text


def test_names_are_text_everywhere(tmp_path):
    reports = RunReports(tmp_path, NASTY.replace("/", "_"))
    scores = [Score(subset=NASTY, metric="perplexity", value=1.5)]
    name = NASTY.replace("/", "_")
    _publish(reports, name, 2, scores=scores, findings=[TopFinding(severity=NASTY, cause="c", title=NASTY)])
    _publish(reports, "b", 3, status="failed", why=NASTY, fix=NASTY)
    waiting = [Waiting(name=NASTY + "w", file="f", step=None, status="pending", why=NASTY)]
    reports.save_state(RunState(run_id=NASTY, run_path=NASTY, waiting=waiting))
    text = index_html(tmp_path)
    assert "<script" not in text
    assert f'"{NASTY}' not in text
    assert "script-src 'none'" in text


def test_links_lead_to_the_reports(tmp_path):
    reports = RunReports(tmp_path, "run 1")
    _publish(reports, "m#1?", 2)
    address = re.search(r'<a href="([^"]+)">', index_html(tmp_path))[1]
    assert address == "run%201/m%231%3F/report.html"


def test_the_page_is_the_same_when_made_again(tmp_path):
    reports = RunReports(tmp_path, "demo")
    _publish(reports, "m-1_2", 2, scores=_scores(3.0))
    first = refresh_index(tmp_path).read_bytes()
    (tmp_path / "index.html").unlink()
    assert refresh_index(tmp_path).read_bytes() == first


def test_a_report_that_arrives_while_the_page_is_written_is_on_it(tmp_path, monkeypatch):
    reports = RunReports(tmp_path, "demo")
    _publish(reports, "m-1_2", 2)
    real, calls = report_index.write_atomic, []

    def write_late(path, text):
        if not calls:
            _publish(reports, "m-1_4", 4)
        calls.append(1)
        real(path, text)

    monkeypatch.setattr(report_index, "write_atomic", write_late)
    assert "m-1_4" in refresh_index(tmp_path).read_text()
    assert len(calls) == 2


def test_readers_never_see_half_a_page(tmp_path):
    reports = RunReports(tmp_path, "demo")
    refresh_index(tmp_path)
    stop, seen = threading.Event(), set()

    def read():
        while not stop.is_set():
            seen.add((tmp_path / "index.html").read_text().endswith("</html>\n"))

    thread = threading.Thread(target=read)
    thread.start()
    for i in range(20):
        _publish(reports, f"m-1_{i}", i)
        refresh_index(tmp_path)
    stop.set()
    thread.join()
    assert seen == {True}


def test_a_damaged_record_does_not_hide_the_others(tmp_path):
    reports = RunReports(tmp_path, "demo")
    _publish(reports, "m-1_2", 2)
    reports.report("m-1_4").mkdir()
    (reports.report("m-1_4") / "report.json").write_text("{")
    text = index_html(tmp_path)
    assert "m-1_2" in text


@pytest.mark.parametrize("values", [[1.0, 1.0], [3.0, 2.0, 2.5]])
def test_a_trend_stays_inside_its_picture(values):
    points = re.search(r'points="([^"]+)"', report_index._sparkline(values))[1]
    pairs = [tuple(map(float, p.split(","))) for p in points.split()]
    assert all(0 <= x <= 150 and 0 <= y <= 36 for x, y in pairs)
    assert len(pairs) == len(values)
