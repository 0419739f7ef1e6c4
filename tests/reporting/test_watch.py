"""Watching: which files are reported, exactly once, and what every kind of trouble leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from reporting_parts import CKPT, EVALUATOR, end_run, make_notebook, make_run

from workbench.errors import CheckpointError, ReportFailedError, UnknownContentError, WorkbenchError
from workbench.processes import Outcome
from workbench.readers.checkpoints import Checkpoint
from workbench.reporting import checkpoint_report
from workbench.reporting import watch as watch_module
from workbench.reporting.archive import RunReports
from workbench.reporting.claims import take_claim
from workbench.reporting.report import Failure, Rendering
from workbench.reporting.run_progress import Settling, training_is_over
from workbench.reporting.watch import WatchOptions, report, watch

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _stand_in_on_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture
def quick_notebook(monkeypatch):
    """Reports without a kernel. The name of a checkpoint says how it goes: `raises` fails while the list holds it."""
    raising = ["raises"]

    def run_notebook(_notebook, output, parameters, *, page, title, index_href, tick):
        output.write_text("{}")
        page.write_text(title)
        outcome = Outcome(0, [], 0.1)
        if any(word in parameters["checkpoint"] for word in raising):
            return Rendering(Failure(problem="Cell 3 raised KeyError: 'loss'", fix="look"), outcome)
        return Rendering(None, outcome)

    monkeypatch.setattr(checkpoint_report, "run_notebook", run_notebook)
    return raising


def _options(**changes: object) -> WatchOptions:
    notebook = TESTS / "reporting_parts.py"  # any file: `quick_notebook` does not open it
    return WatchOptions(**{"notebook": notebook, "evaluator": EVALUATOR, "poll_s": 0.05, "settle_s": 0.1, **changes})


def _evaluated(run: Path) -> list[str]:
    log = run / "evaluations.log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def _leftovers(reports: RunReports, run: Path) -> list[Path]:
    folders = (reports.claims, reports.work, reports.work / "replaced", run / ".workbench" / "held")
    kept = {"evaluated", "replaced"}
    found = [p for folder in folders if folder.exists() for p in folder.iterdir() if p.name not in kept]
    return [p for p in found if not p.name.endswith(".next")]


def test_every_checkpoint_is_reported_once_in_step_order(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_10", "m-1_2", "m-1_4"], ended=True)
    reports = watch(run, tmp_path / "reports", _options(), until_done=True)
    assert [(r.step, r.status) for r in reports.records()] == [(2, "complete"), (4, "complete"), (10, "complete")]
    assert _evaluated(run) == ["m-1_2", "m-1_4", "m-1_10"]
    record = reports.record("m-1_2")
    assert record.sha256 == "592c879fa254c562849f2e3372186e708556d5c797d873fe9c69dfae72c336da"  # sha256sum of the file
    assert record.scores[0].value == 2.0 + 5.0 / 2  # the stand-in's loss at step 2
    assert record.evaluation_id
    assert (tmp_path / "reports" / "index.html").read_text().count("badge complete") == 3
    assert _leftovers(reports, run) == []
    watch(run, tmp_path / "reports", _options(), until_done=True)
    assert len(_evaluated(run)) == 3


def test_checkpoints_are_reported_while_training_goes_on(tmp_path, quick_notebook):
    run, said = make_run(tmp_path / "run", []), []

    def train():
        for step in (2, 4):
            temporary = run / "checkpoints" / f"m-1_{step}.tmp"
            temporary.write_bytes(CKPT.read_bytes())
            temporary.rename(temporary.with_suffix(".ckpt"))
            until = time.monotonic() + 30
            while time.monotonic() < until and not any(f"m-1_{step}: reported" in s for s in said):
                time.sleep(0.05)
        end_run(run)

    training = threading.Thread(target=train)
    training.start()
    reports = watch(run, tmp_path / "reports", _options(say=said.append), until_done=True)
    training.join()
    assert [r.step for r in reports.records()] == [2, 4]


def test_a_copy_in_progress_under_the_final_name_is_waited_for(tmp_path, quick_notebook):
    run, content = make_run(tmp_path / "run", [], ended=True), CKPT.read_bytes()
    path = run / "checkpoints" / "m-1_2.ckpt"
    states: list[str] = []

    def copy():
        with path.open("wb", buffering=0) as f:
            for i in range(0, len(content), 16):
                f.write(content[i : i + 16])
                state = RunReports(tmp_path / "reports", "demo").state()
                states.extend(w.status for w in state.waiting) if state else None
                time.sleep(0.03)

    path.touch()
    copying = threading.Thread(target=copy)
    copying.start()
    reports = watch(run, tmp_path / "reports", _options(settle_s=0.5), until_done=True)
    copying.join()
    assert reports.record("m-1_2").status == "complete"
    assert _evaluated(run) == ["m-1_2"]
    assert set(states) == {"writing"}


def test_damaged_checkpoints_are_never_evaluated_and_named(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)
    content = CKPT.read_bytes()
    (run / "checkpoints" / "m-1_4.ckpt").write_bytes(content[:200])
    (run / "checkpoints" / "m-1_6.ckpt").write_bytes(b"\x07" + content)
    (run / "checkpoints" / "m-1_8.ckpt").touch()
    reports = watch(run, tmp_path / "reports", _options(), until_done=True)
    assert _evaluated(run) == ["m-1_2"]
    assert [(r.step, r.status, r.damage) for r in reports.records()] == [
        (2, "complete", None),
        (4, "corrupt", "cut_short"),
        (6, "corrupt", "garbled"),
        (8, "corrupt", "cut_short"),
    ]
    index = (tmp_path / "reports" / "index.html").read_text()
    assert index.count(">half-written</span>") == 2
    assert index.count(">corrupt</span>") == 1


def test_a_damaged_checkpoint_is_looked_at_again_when_it_changes(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", [], ended=True)
    path = run / "checkpoints" / "m-1_2.ckpt"
    path.write_bytes(CKPT.read_bytes()[:200])
    reports = watch(run, tmp_path / "reports", _options(), until_done=True)
    assert reports.record("m-1_2").status == "corrupt"
    path.write_bytes(CKPT.read_bytes())
    watch(run, tmp_path / "reports", _options(), until_done=True)
    assert reports.record("m-1_2").status == "complete"
    assert _evaluated(run) == ["m-1_2"]


def test_without_an_evaluation_task_there_is_a_report_without_quality(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)
    reports = watch(run, tmp_path / "reports", _options(evaluator="workbench.probes.evaluate"), until_done=True)
    record = reports.record("m-1_2")
    assert (record.status, record.scores, record.evaluation_id) == ("complete", [], None)
    assert (reports.report("m-1_2") / "report.html").exists()


def test_what_the_evaluator_says_is_kept(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m_misfit-1_2", "m_crash-1_4"], ended=True)
    reports = watch(run, tmp_path / "reports", _options(), until_done=True)
    misfit, crash = reports.record("m_misfit-1_2"), reports.record("m_crash-1_4")
    assert (misfit.status, misfit.why) == ("corrupt", "It lacks 1 of the network's 3 parameters.")
    assert (crash.status, crash.stage, crash.why) == ("failed", "evaluation", "RuntimeError: the device went away")
    assert "Traceback" in (reports.report("m_crash-1_4") / "evaluation.log").read_text()
    assert len(_evaluated(run)) == 2  # a failure is not repeated by itself


def test_a_notebook_that_raises_is_kept_and_retried_on_request(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m_raises-1_2", "m-1_4"], ended=True)
    reports = watch(run, tmp_path / "reports", _options(), until_done=True)
    record = reports.record("m_raises-1_2")
    assert (record.status, record.stage, record.why) == ("failed", "report", "Cell 3 raised KeyError: 'loss'")
    assert (reports.report("m_raises-1_2") / "report.ipynb").exists()
    assert [r.status for r in report(run, tmp_path / "reports", _options())] == ["failed", "complete"]
    quick_notebook.clear()
    records = report(run, tmp_path / "reports", _options(), retry=True)
    assert [r.status for r in records] == ["complete", "complete"]
    assert _evaluated(run).count("m-1_4") == 1  # a complete report is made again only when it is named


def test_a_named_report_is_made_again_but_never_for_a_worse_one(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)
    first = report(run, tmp_path / "reports", _options(), name="2")[0]
    again = report(run, tmp_path / "reports", _options(), name="m-1_2", retry=True)[0]
    assert again.finished_ns > first.finished_ns
    quick_notebook.append("m-1_2")
    with pytest.raises(ReportFailedError, match="the earlier one is kept"):
        report(run, tmp_path / "reports", _options(), name="m-1_2", retry=True)
    assert RunReports(tmp_path / "reports", "demo").record("m-1_2").status == "complete"


def test_report_on_demand_names_what_is_wrong(tmp_path, quick_notebook):
    with pytest.raises(UnknownContentError, match="not a directory"):
        report(tmp_path / "absent", tmp_path / "reports", _options())
    run = make_run(tmp_path / "run", [])
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        report(run, tmp_path / "reports", _options())
    with pytest.raises(UnknownContentError, match="no notebook"):
        report(run, tmp_path / "reports", _options(notebook=tmp_path / "absent.ipynb"))


def test_a_checkpoint_that_is_being_written_is_not_reported_on_demand(tmp_path, quick_notebook, monkeypatch):
    run = make_run(tmp_path / "run", ["m-1_2"])
    path = run / "checkpoints" / "m-1_2.ckpt"

    def write_meanwhile(_seconds):
        path.write_bytes(path.read_bytes() + b"x")

    monkeypatch.setattr(watch_module.time, "sleep", write_meanwhile)
    with pytest.raises(CheckpointError, match="still being written"):
        report(run, tmp_path / "reports", _options(), name="m-1_2")
    assert report(run, tmp_path / "reports", _options()) == []


def test_a_finished_evaluation_is_not_repeated_after_a_kill(tmp_path, quick_notebook, monkeypatch):
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)

    def killed(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(checkpoint_report, "run_notebook", killed)
        report(run, tmp_path / "reports", _options())
    record = report(run, tmp_path / "reports", _options())[0]
    assert record.status == "complete"
    assert record.scores
    assert _evaluated(run) == ["m-1_2"]


def test_retention_may_remove_a_checkpoint_that_is_being_evaluated(tmp_path, quick_notebook, monkeypatch):
    monkeypatch.setenv("STAND_IN_SECONDS", "0.5")
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)

    def remove(text):
        if "evaluating" in text:
            (run / "checkpoints" / "m-1_2.ckpt").unlink(missing_ok=True)

    reports = watch(run, tmp_path / "reports", _options(show=remove), until_done=True)
    assert reports.record("m-1_2").status == "complete"
    assert _leftovers(reports, run) == []


def test_a_run_that_cannot_be_written_is_evaluated_in_place(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)
    (run / ".workbench").write_text("a file where a folder is wanted")
    reports = watch(run, tmp_path / "reports", _options(), until_done=True)
    assert reports.record("m-1_2").status == "complete"


def test_a_full_disk_is_said_and_tried_again(tmp_path, quick_notebook, monkeypatch):
    run, said = make_run(tmp_path / "run", ["m_full-1_2"], ended=True), []
    monkeypatch.setattr(watch_module, "RETRY_PAUSE_S", 0.2)

    def say(text):
        said.append(text)
        if "No disk space" in text:
            assert RunReports(tmp_path / "reports", "demo").names() == []
            (run / "space").touch()

    reports = watch(run, tmp_path / "reports", _options(say=say), until_done=True)
    assert said[0].startswith("No disk space for reports in")
    assert reports.record("m_full-1_2").status == "complete"
    assert _leftovers(reports, run) == []


def test_a_full_disk_on_demand_is_a_problem_with_a_fix(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m_full-1_2"], ended=True)
    with pytest.raises(WorkbenchError, match=r"No disk space[\s\S]*Fix: free space"):
        report(run, tmp_path / "reports", _options())
    assert RunReports(tmp_path / "reports", "demo").names() == []


def test_a_really_full_file_system_leaves_nothing_half(tmp_path, quick_notebook, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        run, said = make_run(tmp_path / "run", ["m-1_2"], ended=True), []
        filling = small / "filling"
        monkeypatch.setattr(watch_module, "RETRY_PAUSE_S", 0.2)
        with contextlib.suppress(OSError), filling.open("wb", buffering=0) as f:
            while True:
                f.write(bytes(4096))

        def say(text):
            said.append(text)
            if len(said) == 2:
                filling.unlink()

        reports = watch(run, small / "reports", _options(say=say), until_done=True)
        assert "No disk space" in said[0]
        assert reports.record("m-1_2").status == "complete"
        assert _leftovers(reports, run) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_what_another_process_works_on_is_left_to_it(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_2", "m-1_4"], ended=True)
    reports = RunReports(tmp_path / "reports", "demo")
    claim = take_claim(reports.claims, "m-1_2")
    shown: list[str] = []

    def show(text):
        shown.append(text)
        if "1 not reported yet" in text:
            claim.release()

    watch(run, tmp_path / "reports", _options(show=show), until_done=True)
    assert _evaluated(run) == ["m-1_4", "m-1_2"]


def test_an_unreadable_record_is_made_again(tmp_path, quick_notebook):
    run = make_run(tmp_path / "run", ["m-1_2"], ended=True)
    folder = tmp_path / "reports" / "demo" / "m-1_2"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text("{")
    assert watch(run, tmp_path / "reports", _options(), until_done=True).record("m-1_2").status == "complete"


CRASH_CALLS = ("link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync", "utime")


def _report_and_die(run: Path, root: Path, at: int) -> int:
    """In a fork: report, and be killed before the `at`-th change to the file system. The exit status, -9 if killed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _count_calls(at)
        report(run, root, _options(settle_s=0.0, say=lambda _text: None), retry=True)
        os._exit(0)
    finally:
        os._exit(1)


def _count_calls(at: int) -> None:
    """Let the `at`-th call kill this process; only ever used in a fork."""
    left = [at]

    def counted(real):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CRASH_CALLS:
        setattr(os, name, counted(getattr(os, name)))


@pytest.mark.parametrize("before", ["nothing", "failed report"])
def test_a_kill_at_any_change_to_the_file_system_loses_and_doubles_nothing(tmp_path, quick_notebook, before):
    killed = 0
    for at in range(1, 200):
        folder = tmp_path / str(at)
        run, root = make_run(folder / "run", ["m_raises-1_2"], ended=True), folder / "reports"
        quick_notebook[:] = ["raises"]
        if before == "failed report":
            report(run, root, _options(settle_s=0.0))
        quick_notebook.clear()
        status = _report_and_die(run, root, at)
        reports = RunReports(root, "demo")
        for name in reports.names():  # whatever is visible is whole
            assert reports.record(name) is not None
            assert (reports.report(name) / "report.html").exists()
        records = report(run, root, _options(settle_s=0.0), retry=True)
        assert [r.status for r in records] == ["complete"]
        assert len(_evaluated(run)) <= (2 if before == "nothing" else 3)
        assert _leftovers(reports, run) == []
        assert "badge complete" in (root / "index.html").read_text()
        if status == 0:
            break
        assert status == -signal.SIGKILL
        killed += 1
    assert status == 0
    assert killed >= 15


def test_settling():
    def checkpoint(size: int) -> Checkpoint:
        return Checkpoint(path=Path("m"), size_bytes=size, mtime_ns=0, step=1)

    settling = Settling(3.0)
    assert not settling.is_settled(checkpoint(1), 10.0)
    assert not settling.is_settled(checkpoint(1), 12.9)
    assert not settling.is_settled(checkpoint(2), 13.0)
    assert not settling.is_settled(checkpoint(2), 15.9)
    assert settling.is_settled(checkpoint(2), 16.0)


def test_a_training_that_was_killed_is_over(tmp_path):
    import socket

    host, process = socket.gethostname(), subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    attempt = {"process_id": process.pid, "start_ns": time.time_ns()}
    run = make_run(tmp_path / "run", [], host=host, attempts=[attempt])
    assert not training_is_over(run)
    process.kill()
    process.wait()
    assert training_is_over(run)
    other = make_run(tmp_path / "other", [], host="elsewhere", attempts=[attempt])
    assert not training_is_over(other)


@pytest.mark.parametrize("attempts", [[1], {"a": 1}, [{"process_id": -1, "start_ns": 1}], [{"process_id": 10**12}]])
def test_damaged_attempts_tell_of_no_process(tmp_path, attempts):
    import socket

    assert not training_is_over(make_run(tmp_path / "run", [], host=socket.gethostname(), attempts=attempts))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_ends_cleanly_when_interrupted(tmp_path, monkeypatch, number, status):
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    run = make_run(tmp_path / "run", ["m-1_2"])
    command = [sys.executable, "-m", "workbench.cli", "watch", str(run), "--reports", str(tmp_path / "reports")]
    notebook = make_notebook(tmp_path / "n.ipynb")
    options = ["--evaluator", EVALUATOR, "--settle", "0", "--notebook", str(notebook)]
    watcher = subprocess.Popen([*command, *options], stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not _evaluated(run) and time.monotonic() < until:
        time.sleep(0.05)
    evaluator = int((run / "evaluations.log").read_text().split()[1])
    watcher.send_signal(number)
    errors = watcher.communicate(timeout=60)[1]
    assert watcher.returncode == status, errors
    assert b"Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(evaluator, 0)
    assert _leftovers(RunReports(tmp_path / "reports", "demo"), run) == []
    assert RunReports(tmp_path / "reports", "demo").names() == []
