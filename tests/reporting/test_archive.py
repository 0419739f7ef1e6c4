"""Reports appear whole or not at all, whoever publishes and whenever it is killed."""

import os
from pathlib import Path

import pytest

from workbench.errors import UnknownContentError, WorkbenchError
from workbench.processes import this_process
from workbench.reporting.archive import ReportRecord, RunReports, RunState, folder_name, remove_abandoned, reports_of


def _record(name: str = "m-1_2", **changes: object) -> ReportRecord:
    fields = {"file": f"{name}.ckpt", "step": 2, "status": "complete", "size_bytes": 1, "mtime_ns": 1, **changes}
    return ReportRecord(name=name, **fields)


def _publish(reports: RunReports, record: ReportRecord, text: str, *, replace: bool = False) -> bool:
    with reports.scratch() as scratch:
        (scratch / "report" / "report.html").write_text(text)
        return reports.publish(scratch, record, replace=replace)


def test_the_first_to_publish_has_done_it(tmp_path):
    reports = RunReports(tmp_path, "run")
    assert _publish(reports, _record(), "first")
    assert not _publish(reports, _record(), "second")
    assert (reports.report("m-1_2") / "report.html").read_text() == "first"
    assert list(reports.work.glob("*~*")) == []


def test_work_that_is_not_published_leaves_nothing(tmp_path):
    reports = RunReports(tmp_path, "run")

    def work_and_fail():
        with reports.scratch() as scratch:
            (scratch / "report" / "report.html").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work_and_fail()
    assert reports.names() == []
    assert list(reports.work.iterdir()) == []


def test_a_report_is_replaced_as_a_whole(tmp_path):
    reports = RunReports(tmp_path, "run")
    _publish(reports, _record(status="failed", why="no"), "old")
    assert _publish(reports, _record(), "new", replace=True)
    assert reports.record("m-1_2").status == "complete"
    assert (reports.report("m-1_2") / "report.html").read_text() == "new"
    assert list((reports.work / "replaced").iterdir()) == []


def test_an_interrupted_replacement_brings_the_old_report_back(tmp_path):
    reports = RunReports(tmp_path, "run")
    _publish(reports, _record(), "old")
    aside = reports.work / "replaced" / "m-1_2"
    aside.parent.mkdir(parents=True)
    reports.report("m-1_2").rename(aside)  # killed here: before the new one arrived
    reports.recover("m-1_2")
    assert (reports.report("m-1_2") / "report.html").read_text() == "old"
    reports.report("m-1_2").rename(aside)
    _publish(reports, _record(), "new")  # killed here: the new one is there, the old one not yet removed
    reports.recover("m-1_2")
    assert (reports.report("m-1_2") / "report.html").read_text() == "new"
    assert not aside.exists()


def test_a_publication_that_fails_brings_the_old_report_back(tmp_path, monkeypatch):
    reports = RunReports(tmp_path, "run")
    _publish(reports, _record(), "old")
    real = Path.rename

    def fail_to_arrive(self, target):
        if self.name == "report":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_arrive)
    with pytest.raises(OSError, match="No space"):
        _publish(reports, _record(), "new", replace=True)
    assert (reports.report("m-1_2") / "report.html").read_text() == "old"


def test_only_the_work_of_dead_processes_is_removed(tmp_path):
    reports = RunReports(tmp_path, "run")
    me = this_process()
    dead = reports.work / f"{me.host}~{me.pid}~{me.started_s - 3600:.2f}~abc"  # the same number, an earlier process
    foreign = reports.work / "else.where~1~0.00~abc"
    old_foreign = reports.work / "else.where~1~0.00~def"
    for folder in (dead, foreign, old_foreign):
        folder.mkdir(parents=True)
    os.utime(old_foreign, (1, 1))
    with reports.scratch() as mine:
        remove_abandoned(reports.work)
        assert sorted(p.name for p in reports.work.iterdir()) == sorted([mine.name, foreign.name])


def test_records_are_in_step_order(tmp_path):
    reports = RunReports(tmp_path, "run")
    for name, step, mtime_ns in (("b", 20, 1), ("a", 3, 2), ("c", 100, 3)):
        _publish(reports, _record(name, step=step, mtime_ns=mtime_ns), "")
    assert [r.step for r in reports.records()] == [3, 20, 100]
    _publish(reports, _record("d", step=None, mtime_ns=0), "")  # a step is unknown: by time of writing
    assert [r.name for r in reports.records()] == ["d", "b", "a", "c"]


def test_two_runs_of_one_id_do_not_mix(tmp_path):
    reports = RunReports(tmp_path, "run")
    assert reports.save_state(RunState(run_id="run", run_path="/a", started="1"))
    assert not reports.save_state(RunState(run_id="run", run_path="/a", started="1"))  # nothing changed
    assert reports.save_state(RunState(run_id="run", run_path="/moved", started="1"))
    with pytest.raises(WorkbenchError, match="another run"):
        reports.save_state(RunState(run_id="run", run_path="/b", started="2"))


@pytest.mark.parametrize(
    ("run_id", "name"),
    [("demo", "demo"), ("../../etc", "_.._etc"), ("a/b\\c\0d", "a_b_c_d"), ("..", "run"), (".hidden", "hidden")],
)
def test_a_run_id_is_one_folder_below_the_reports(run_id, name):
    assert folder_name(run_id) == name


def test_a_run_without_description_goes_by_its_name(tmp_path):
    (tmp_path / "some_run").mkdir()
    assert reports_of(tmp_path / "some_run", tmp_path).run_id == "some_run"
    with pytest.raises(UnknownContentError):
        reports_of(tmp_path / "absent", tmp_path)
