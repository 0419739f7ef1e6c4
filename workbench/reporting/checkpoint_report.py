"""One checkpoint -> one report: claim it, check the file, evaluate it in another process, run the notebook, publish.

At most one process does this for a checkpoint at a time, and whatever moment it is killed at, the report is there as a
whole or not at all; an evaluation that was finished before the kill is used by whoever goes on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from workbench import __version__
from workbench.errors import ReportFailedError, UnknownContentError, UnreadableFileError
from workbench.files import RunFiles, share_dir, write_atomic, write_json_atomic
from workbench.findings.finding import SEVERITIES
from workbench.processes import Outcome, run_child, this_process
from workbench.readers.checkpoint_files import find_damage
from workbench.readers.checkpoints import Checkpoint, file_sha256, read_info
from workbench.readers.kinds import FileContext
from workbench.readers.records import read_json_lines
from workbench.reporting.archive import ReportRecord, RunReports, Score, TopFinding
from workbench.reporting.claims import Claim, take_claim
from workbench.reporting.evaluator import EVALUATOR, evaluator_call
from workbench.reporting.report import read_findings, run_notebook

EXIT_DAMAGED = 3  # of the evaluator: the checkpoint is damaged or does not fit
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
RETRY_FIX = "correct the cause, then call `workbench report RUN --checkpoint {name} --retry`"
Did = Literal["reported", "nothing", "held", "changed", "gone"]


def default_notebook() -> Path:
    """The notebook that reports on a checkpoint."""
    return share_dir() / "notebooks" / "reports" / "checkpoint.ipynb"


@dataclass(frozen=True, kw_only=True)
class Reporter:
    """How checkpoints of one run are reported.

    `evaluator` is a module that is run as `python -m MODULE RUN --checkpoint FILE [--step N]` and keeps to the exit
    statuses of `workbench.probes.evaluate`.
    """

    run: Path
    reports: RunReports
    notebook: Path = field(default_factory=default_notebook)
    evaluator: str = EVALUATOR
    threads: int | None = None  # of the evaluator; None: as many as it thinks right
    show: Callable[[str], None] = lambda _text: None  # what is being done, for a progress line

    def __post_init__(self) -> None:
        if not self.notebook.is_file():
            raise UnknownContentError(f"There is no notebook {self.notebook}.", fix="name one with --notebook")

    def needs_report(self, checkpoint: Checkpoint, *, retry: bool = False) -> bool:
        """Whether there is something to do: no report yet, or one of a damaged or failed file that has changed."""
        record = self.reports.record(checkpoint.name)
        if record is None or retry:
            return True
        return record.status != "complete" and record.fingerprint != checkpoint.fingerprint

    def report(self, checkpoint: Checkpoint, *, retry: bool = False) -> Did:
        """Report on one checkpoint whose file is no longer being written.

        Returns:
            reported (see the record for how it ended), nothing (there is a report), held (another process is at it),
            changed or gone (the file, meanwhile).

        Raises:
            OSError: no disk space, among others; nothing half is left and the next call starts again.
            UnknownParameterError: the notebook does not know the parameters of a report.
            ReportFailedError: repeating a complete report failed; the complete one is kept.
        """
        claim = take_claim(self.reports.claims, checkpoint.name)
        if claim is None:
            return "held"
        try:
            self.reports.recover(checkpoint.name)
            if not self.needs_report(checkpoint, retry=retry):
                return "nothing"
            replace = self.reports.report(checkpoint.name).exists()
            if not checkpoint.path.exists():
                return "gone"
            with self.reports.scratch() as scratch, _held_file(self.run, checkpoint.path) as file:
                stat = file.stat()
                if (stat.st_size, stat.st_mtime_ns) != checkpoint.fingerprint:
                    return "changed"
                record = _Attempt(self, checkpoint, file, scratch, claim).run()
                old = self.reports.record(checkpoint.name)
                if old is not None and old.status == "complete" and record.status != "complete":
                    raise ReportFailedError(
                        f"Repeating the report on {record.name} failed; the earlier one is kept. {record.why}",
                        fix=record.fix or RETRY_FIX.format(name=record.name),
                    )
                self.reports.publish(scratch, record, replace=replace)
            self.reports.evaluated(checkpoint.name).unlink(missing_ok=True)
            return "reported"
        finally:
            claim.release()


@dataclass
class _Attempt:
    reporter: Reporter
    checkpoint: Checkpoint
    file: Path  # a link that stays when the training removes the checkpoint
    scratch: Path
    claim: Claim

    def run(self) -> ReportRecord:
        record = ReportRecord(
            name=self.checkpoint.name,
            file=self.checkpoint.path.name,
            step=self.checkpoint.step,
            status="complete",
            size_bytes=self.checkpoint.size_bytes,
            mtime_ns=self.checkpoint.mtime_ns,
            versions=_versions(),
        )
        for stage in (self._check, self._evaluate, self._render):
            stage(record)
            if record.status != "complete":
                break
        record.finished_ns = time.time_ns()
        return record

    def _check(self, record: ReportRecord) -> None:
        self._show("checking the file")
        damage = find_damage(self.file, tick=self.claim.heartbeat)
        record.sha256 = file_sha256(self.file, tick=self.claim.heartbeat)
        if damage is not None:
            record.status, record.stage, record.damage = "corrupt", "checkpoint", damage.kind
            record.why = damage.problem
            record.fix = "save or copy it again; it is looked at again as soon as the file changes"

    def _evaluate(self, record: ReportRecord) -> None:
        if self.reporter.evaluator == EVALUATOR and not _names_task(self.reporter.run):
            return  # quality is "not measured"; the training records are worth a report
        done = self._earlier_evaluation(record)
        if done is None:
            self._show("evaluating")
            by = self.reporter
            command, variables = evaluator_call(by.evaluator, by.run, self.file, step=record.step, threads=by.threads)
            outcome = run_child(command, tick=self._tick("evaluating"), environment=variables)
            if outcome.status != 0:
                self._not_evaluated(record, outcome)
                return
            rows = _evaluation_rows(self.reporter.run, record.name)
            if not rows:
                record.status, record.stage = "failed", "evaluation"
                record.why = "The evaluator ended well but recorded nothing in evals/checkpoint.jsonl."
                record.fix = RETRY_FIX.format(name=record.name)
                return
            done = _Evaluated(record.sha256 or "", str(rows[-1].get("evaluation_id", "")), outcome.seconds)
            write_json_atomic(self.reporter.reports.evaluated(self.checkpoint.name), msgspec.to_builtins(done))
        record.evaluation_id, record.evaluation_seconds = done.evaluation_id, done.seconds
        record.scores = _scores(_evaluation_rows(self.reporter.run, record.name), done.evaluation_id)

    def _earlier_evaluation(self, record: ReportRecord) -> _Evaluated | None:
        """An evaluation of the same content that was finished when the process that asked for it ended."""
        try:
            mark = self.reporter.reports.evaluated(self.checkpoint.name).read_bytes()
            done = msgspec.json.decode(mark, type=_Evaluated)
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return None
        return done if done.sha256 == record.sha256 else None

    def _not_evaluated(self, record: ReportRecord, outcome: Outcome) -> None:
        if outcome.out_of_space:
            raise OSError(errno.ENOSPC, outcome.last_line)
        write_atomic(self.scratch / "report" / "evaluation.log", "\n".join(outcome.lines) + "\n")
        record.stage, record.why = "evaluation", outcome.reason
        record.fix = RETRY_FIX.format(name=record.name)
        record.status = "failed"
        if outcome.status == EXIT_DAMAGED:
            record.status, record.damage = "corrupt", "does_not_fit"

    def _render(self, record: ReportRecord) -> None:
        self._show("writing the report")
        folder = self.scratch / "report"
        parameters: dict[str, Any] = {
            "run_path": str(self.reporter.run.resolve()),
            "checkpoint": record.name,
            "findings_path": str((folder / "findings.json").resolve()),
        }
        rendering = run_notebook(
            self.reporter.notebook,
            folder / "report.ipynb",
            parameters,
            page=folder / "report.html",
            title=f"{record.name} · {self.reporter.reports.run_id}",
            index_href="../../index.html",
            tick=self._tick("writing the report"),
        )
        record.report_seconds = rendering.outcome.seconds
        if rendering.failure is not None:
            if rendering.outcome.out_of_space:
                raise OSError(errno.ENOSPC, rendering.failure.problem)
            record.status, record.why, record.fix = "failed", rendering.failure.problem, rendering.failure.fix
        try:
            record.findings = _top_findings(folder / "findings.json")
        except (UnreadableFileError, msgspec.ValidationError) as error:
            record.status, record.why = "failed", f"The notebook left findings that cannot be read: {error}"
            record.fix = RETRY_FIX.format(name=record.name)

    def _show(self, what: str, seconds: float = 0.0) -> None:
        self.reporter.show(f"{self.checkpoint.name}: {what}" + (f" ({seconds:.0f} s)" if seconds >= 1 else ""))

    def _tick(self, what: str) -> Callable[[], None]:
        begin = time.monotonic()

        def tick() -> None:
            self.claim.heartbeat()
            self._show(what, time.monotonic() - begin)

        return tick


class _Evaluated(msgspec.Struct):
    sha256: str
    evaluation_id: str
    seconds: float


@contextlib.contextmanager
def _held_file(run: Path, path: Path) -> Iterator[Path]:
    """A second name for the checkpoint, under the same file name, so that retention cannot remove it meanwhile.

    Where the run cannot be written or links are not supported, the file itself.
    """
    owner = this_process()
    folder = held_folder(run) / f"{owner.host}~{owner.pid}~{owner.started_s:.2f}~{path.stat().st_ino:x}"
    held = folder / path.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held.unlink(missing_ok=True)
        os.link(path.resolve(), held)
    except OSError:
        held = path
    try:
        yield held
    finally:
        with contextlib.suppress(OSError):
            (folder / path.name).unlink(missing_ok=True)
            folder.rmdir()


def held_folder(run: Path) -> Path:
    """Where checkpoints under evaluation are held."""
    return RunFiles(run).cache / "held"


def _evaluation_rows(run: Path, name: str) -> list[dict[str, Any]]:
    try:
        records = read_json_lines(RunFiles(run).evals / "checkpoint.jsonl", FileContext())[0].records
    except UnreadableFileError:
        return []
    return [r for r in records if r.get("checkpoint") == name]


def _names_task(run: Path) -> bool:
    return bool((read_info(run).get("evaluation") or {}).get("task"))


def _scores(rows: list[dict[str, Any]], evaluation_id: str) -> list[Score]:
    return [
        Score(subset=str(r["subset"]), metric=str(r["metric"]), value=r["value"], low=r.get("low"), high=r.get("high"))
        for r in rows
        if r.get("evaluation_id") == evaluation_id and isinstance(r.get("value"), int | float)
    ]


def _top_findings(path: Path) -> list[TopFinding]:
    found = [msgspec.convert(f, TopFinding) for f in read_findings(path)]
    rank: dict[str, int] = {severity: i for i, severity in enumerate(SEVERITIES)}
    return sorted(found, key=lambda f: rank.get(f.severity, len(rank)))


def _versions() -> dict[str, str]:
    found = {"workbench": __version__, "python": sys.version.split()[0]}
    for package in ("mindspore", "papermill", "altair"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def is_out_of_space(error: BaseException) -> bool:
    """Whether an error means that the disk or the quota is full."""
    return isinstance(error, OSError) and error.errno in NO_SPACE
