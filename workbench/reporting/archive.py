"""The folder of reports: what lies where, how a report gets there whole or not at all, and its record.

```
<reports>/index.html                        all runs
<reports>/<run_id>/state.json               run directory, and checkpoints that have no report yet
<reports>/<run_id>/alerts.jsonl             alerts that were raised
<reports>/<run_id>/<checkpoint>/            report.json, and as far as they were made: report.html, report.ipynb,
                                            findings.json, evaluation.log
<reports>/<run_id>/.claims, .work           who works on what, and unfinished work
```
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from workbench.errors import UnknownContentError, WorkbenchError
from workbench.files import write_json_atomic
from workbench.processes import Owner, this_process
from workbench.readers.checkpoints import read_info
from workbench.reporting.claims import clean_claims, take_claim

RECORD_SCHEMA = 1
FOREIGN_SCRATCH_S = 86_400.0  # unfinished work of another host, which cannot be asked whether it lives
Status = Literal["pending", "writing", "complete", "failed", "corrupt"]


class Score(msgspec.Struct, kw_only=True):
    """One number of the evaluation, for the overview."""

    subset: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None


class TopFinding(msgspec.Struct, kw_only=True):
    """A finding of the report, shortened for overview and alerts."""

    severity: str
    cause: str
    title: str
    fix: str = ""


class ReportRecord(msgspec.Struct, kw_only=True):
    """`report.json`: how the report of one checkpoint ended, and what the overview shows of it."""

    name: str  # stem of the checkpoint file
    file: str
    step: int | None
    status: Literal["complete", "failed", "corrupt"]
    size_bytes: int
    mtime_ns: int
    stage: Literal["checkpoint", "evaluation", "report"] = "report"  # where it ended
    damage: str | None = None  # cut_short, garbled, does_not_fit
    why: str | None = None
    fix: str | None = None
    sha256: str | None = None
    evaluation_id: str | None = None
    evaluation_seconds: float | None = None
    report_seconds: float | None = None
    scores: list[Score] = []
    findings: list[TopFinding] = []
    finished_ns: int = 0
    versions: dict[str, str] = {}
    schema: int = RECORD_SCHEMA

    @property
    def fingerprint(self) -> tuple[int, int]:
        """Size and time of the checkpoint file that the record is about."""
        return self.size_bytes, self.mtime_ns


class Waiting(msgspec.Struct, kw_only=True):
    """A checkpoint without a report."""

    name: str
    file: str
    step: int | None
    status: Literal["pending", "writing"]
    why: str


class RunState(msgspec.Struct, kw_only=True):
    """`state.json`: what the reports of a run cannot tell themselves."""

    run_id: str
    run_path: str
    started: str = ""  # start time of the run, to tell two runs of one id apart
    ended: bool = False
    waiting: list[Waiting] = []


@dataclass(frozen=True)
class RunReports:
    """The reports of one run. Nothing is made on disk by naming it."""

    root: Path
    run_id: str

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.root / folder_name(self.run_id)

    @property
    def claims(self) -> Path:
        """Who works on which checkpoint."""
        return self.folder / ".claims"

    @property
    def work(self) -> Path:
        """Unfinished work."""
        return self.folder / ".work"

    @property
    def alerts(self) -> Path:
        """Alerts that were raised."""
        return self.folder / "alerts.jsonl"

    def report(self, name: str) -> Path:
        """Folder of one report."""
        return self.folder / name

    def record(self, name: str) -> ReportRecord | None:
        """The record of one report; None where there is no report."""
        return _read(self.report(name) / "report.json", ReportRecord)

    def records(self) -> list[ReportRecord]:
        """Records of all reports, in step order (by time of the checkpoint where a step is unknown)."""
        found = [r for r in (self.record(n) for n in self.names()) if r is not None]
        by_time = any(r.step is None for r in found)
        return sorted(found, key=lambda r: (r.mtime_ns if by_time else r.step or 0, r.mtime_ns, r.name))

    def names(self) -> list[str]:
        """Names of all report folders."""
        try:
            with os.scandir(self.folder) as entries:
                return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
        except FileNotFoundError:
            return []

    def state(self) -> RunState | None:
        """What was last known of the run; None before the first look."""
        return _read(self.folder / "state.json", RunState)

    def save_state(self, state: RunState) -> bool:
        """Write the state if it changed; whether it did.

        Raises:
            WorkbenchError: the folder holds reports of another run with the same id.
        """
        old = self.state()
        if old is not None and old.started and state.started and old.started != state.started:
            raise WorkbenchError(
                f"{self.folder} holds the reports of another run {self.run_id!r}, started {old.started}, "
                f"while this one started {state.started}.",
                fix="give another folder with --reports, or move the old reports away",
            )
        if old == state:
            return False
        write_json_atomic(self.folder / "state.json", msgspec.to_builtins(state))
        return True

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for work that is thrown away unless it is published."""
        owner = this_process()
        folder = self.work / f"{owner.host}~{owner.pid}~{owner.started_s:.2f}~{uuid.uuid4().hex[:8]}"
        (folder / "report").mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, scratch: Path, record: ReportRecord, *, replace: bool = False) -> bool:
        """Let the work in `scratch` appear as the report; False if there is one already and `replace` is not set.

        Renaming a folder onto one that is not empty fails, so of several that publish one report, the first has done
        it. Only the holder of the checkpoint's claim may replace.
        """
        write_json_atomic(scratch / "report" / "report.json", msgspec.to_builtins(record))
        final, aside = self.report(record.name), self._aside(record.name)
        if replace and final.exists():
            aside.parent.mkdir(parents=True, exist_ok=True)
            final.rename(aside)
        try:
            (scratch / "report").rename(final)
        except OSError:
            if not final.exists():
                raise
            return False
        finally:
            self.recover(record.name)
        return True

    def recover(self, name: str) -> None:
        """Finish a replacement that was interrupted: the old report comes back where the new one did not arrive."""
        aside = self._aside(name)
        if not aside.exists():
            return
        if self.report(name).exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(self.report(name))

    def _aside(self, name: str) -> Path:
        return self.work / "replaced" / name

    def evaluated(self, name: str) -> Path:
        """Note of an evaluation that is finished while its report is not."""
        return self.work / "evaluated" / name

    def clean(self) -> None:
        """Throw away what processes that are gone left: unfinished work, and claims on reports that are there."""
        remove_abandoned(self.work)
        for path in self.claims.glob("[!.]*"):
            claim = take_claim(self.claims, path.name) if self.report(path.name).exists() else None
            if claim is not None:
                self.recover(path.name)
                self.evaluated(path.name).unlink(missing_ok=True)
                claim.release()
        clean_claims(self.claims)


def remove_abandoned(folder: Path) -> None:
    """Remove subfolders named `<host>~<pid>~<start>~<id>` whose process is over."""
    for work in folder.glob("*~*~*~*"):
        host, pid, started_s, _ = work.name.rsplit("~", 3)
        owner = Owner(host=host, pid=int(pid), started_s=float(started_s))
        with contextlib.suppress(OSError):
            if owner.is_gone() or time.time() - work.stat().st_mtime > FOREIGN_SCRATCH_S:
                shutil.rmtree(work, ignore_errors=True)


def reports_of(run: Path, root: Path) -> RunReports:
    """The reports of a run directory: under its id, or its name where it has none.

    Raises:
        UnknownContentError: there is no such directory.
    """
    if not run.is_dir():
        raise UnknownContentError(f"{run} is not a directory.", fix="give the run directory, e.g. runs/<run id>")
    return RunReports(root, str(read_info(run).get("run_id") or run.resolve().name))


def folder_name(run_id: str) -> str:
    """`run_id` as the name of one folder, whatever it holds."""
    name = "".join("_" if c in "/\\\0" else c for c in run_id).lstrip(".")
    return name or "run"


def all_runs(root: Path) -> list[RunReports]:
    """The runs with reports, by folder name."""
    if not root.is_dir():
        return []
    folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [RunReports(root, p.name) for p in folders]


def _read(path: Path, kind: Any) -> Any:
    try:
        stat = path.stat()
        return _decode(path, kind, (stat.st_mtime_ns, stat.st_ino))
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, msgspec.ValidationError):
        return None


@functools.lru_cache(maxsize=4096)
def _decode(path: Path, kind: Any, _version: tuple[int, int]) -> Any:
    """A watcher looks at all records every few seconds; those that did not change are not read again."""
    return msgspec.json.decode(path.read_bytes(), type=kind)
