"""Watch a run: each checkpoint that appears gets its report, exactly once, while the training goes on.

Looks again and again instead of waiting for notifications, which network storage does not send. A file counts as
written when its size and time did not change between two looks at least `settle_s` apart.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from workbench.alert_delivery import Alert
from workbench.analyses.live_rules import MetricRule
from workbench.errors import CheckpointError, WorkbenchError
from workbench.readers.checkpoints import Checkpoint, choose_checkpoint, find_checkpoints, read_info
from workbench.reporting.alerts import MetricsWatch, alerts_of_report, delivered_in_training, raise_alerts
from workbench.reporting.archive import ReportRecord, RunReports, RunState, Waiting, remove_abandoned, reports_of
from workbench.reporting.checkpoint_report import Reporter, default_notebook, held_folder, is_out_of_space
from workbench.reporting.evaluator import EVALUATOR
from workbench.reporting.report_index import folder_state, refresh_index
from workbench.reporting.run_progress import Settling, training_is_over

POLL_S = 2.0
SETTLE_S = 3.0
RETRY_PAUSE_S = 30.0
HELD_PAUSE_S = 0.5
PLAIN_OUTPUT: Callable[[str], None] = print


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """What may be chosen; the defaults suit a training on the same machine."""

    notebook: Path = field(default_factory=default_notebook)
    evaluator: str = EVALUATOR
    threads: int | None = None  # of the evaluator; None: as many as it thinks right
    poll_s: float = POLL_S
    settle_s: float = SETTLE_S
    webhook: str | None = None
    rules: tuple[MetricRule, ...] = ()  # on the metrics of steps, beside those that are always there
    show: Callable[[str], None] = lambda _text: None  # progress: overwritten by the next
    say: Callable[[str], None] = PLAIN_OUTPUT  # events: kept


def watch(
    run: Path, reports_root: Path, options: WatchOptions | None = None, *, until_done: bool = False
) -> RunReports:
    """Report on every checkpoint of `run` that has no report yet, and go on as they appear.

    Several processes, on several hosts, may watch one run. May be killed and started again at any moment.

    Args:
        run: run directory.
        reports_root: folder of all reports.
        options: intervals, notebook, evaluator, alerts.
        until_done: return when the training has ended and every checkpoint has its report, instead of going on until
            interrupted.

    Raises:
        UnknownContentError: there is no such run directory.
        WorkbenchError: the report folder belongs to another run of the same id.
    """
    watcher = _Watcher(run, reports_root, options or WatchOptions())
    while True:
        busy = watcher.look()
        if until_done and watcher.done:
            every = (
                "every checkpoint has its report" if watcher.reports.records() else "it left no checkpoint to report on"
            )
            watcher.options.say(f"Training is over and {every}: {watcher.index}")
            return watcher.reports
        if not busy:
            time.sleep(watcher.pause_s)


def report(
    run: Path, reports_root: Path, options: WatchOptions | None = None, *, name: str | None = None, retry: bool = False
) -> list[ReportRecord]:
    """Report now on the checkpoints that have no report yet, or on one; for a scheduler such as cron.

    Args:
        run: run directory.
        reports_root: folder of all reports.
        options: intervals, notebook, evaluator, alerts.
        name: file name, stem, path or step of one checkpoint; all by default.
        retry: make the report again although there is one; without `name`, those that did not end complete.

    Returns:
        The records of the checkpoints asked for, made now or before, in step order.

    Raises:
        CheckpointError: there is no such checkpoint, or its file is still being written.
        ReportFailedError: repeating a complete report failed; the complete one is kept.
        WorkbenchError: no disk space.
    """
    watcher = _Watcher(run, reports_root, options or WatchOptions())
    with _space_as_problem(reports_root):
        return watcher.report_now(name, retry=retry)


@contextlib.contextmanager
def _space_as_problem(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_out_of_space(error):
            raise
        raise WorkbenchError(_space_problem(root, error), fix="free space, then call again") from None


class _Watcher:
    """One process that looks at one run."""

    def __init__(self, run: Path, reports_root: Path, options: WatchOptions) -> None:
        self.run, self.options = run, options
        self.started = str(read_info(run).get("start_ns", ""))
        self.reports = reports_of(run, reports_root)
        self.reporter = Reporter(
            run=run,
            reports=self.reports,
            notebook=options.notebook,
            evaluator=options.evaluator,
            threads=options.threads,
            show=options.show,
        )
        self.index = reports_root / "index.html"
        self.done = False
        self.pause_s = options.poll_s
        self._settling = Settling(options.settle_s)
        self._metrics = MetricsWatch(run, options.rules)
        self._raised: list[Alert] = []
        self._shown: object = None
        self._looked = False

    def look(self) -> bool:
        """Report on the first checkpoint that is ready, if any; whether there may be another one at once."""
        try:
            return self._look()
        except OSError as error:
            if is_out_of_space(error):
                problem = _space_problem(self.reports.root, error)
            elif self._looked:  # network storage fails now and then; a wrong path fails at the first look
                problem = f"The storage failed: {error}."
            else:
                raise
            self.options.say(f"{problem} Trying again in {RETRY_PAUSE_S:.0f} s.")
            self.pause_s = RETRY_PAUSE_S
            return False
        finally:
            self._looked = True

    def _look(self) -> bool:
        self.pause_s = self.options.poll_s
        checkpoints = find_checkpoints(self.run)
        open_ones = [c for c in checkpoints if self.reporter.needs_report(c)]
        now_s = time.monotonic()
        ready = [c for c in open_ones if self._settling.is_settled(c, now_s)]
        over = training_is_over(self.run)
        self.refresh(open_ones, ready)
        self.done = over and not open_ones
        for checkpoint in ready:
            if self._report(checkpoint):
                return True
        self.options.show(self._waiting_text(open_ones, len(checkpoints), over=over))
        return False

    def _report(self, checkpoint: Checkpoint, *, retry: bool = False, wait: bool = False) -> bool:
        """Report on one checkpoint; False when another process holds it (with `wait`, its end is awaited)."""
        begin = time.monotonic()
        while (did := self.reporter.report(checkpoint, retry=retry)) == "held" and wait:
            self.options.show(f"{checkpoint.name}: another process is reporting on it")
            time.sleep(HELD_PAUSE_S)
        if did == "reported" and (record := self.reports.record(checkpoint.name)) is not None:
            self.options.say(f"{_outcome(self.reports, record)} ({time.monotonic() - begin:.0f} s)")
            self.refresh()
        return did != "held"

    def report_now(self, name: str | None, *, retry: bool) -> list[ReportRecord]:
        """Report on one checkpoint, or on all that need it; see `report`."""
        found = find_checkpoints(self.run)
        wanted = [choose_checkpoint(found, name)] if name or not found else found
        todo = [c for c in wanted if self._is_asked_for(c, retry=retry, by_name=name is not None)]
        if todo:
            self.options.show("making sure that no checkpoint is still being written")
            time.sleep(self.options.settle_s)
        for checkpoint in todo:
            if checkpoint in find_checkpoints(self.run):
                self._report(checkpoint, retry=retry, wait=True)
            elif name:
                raise CheckpointError(
                    f"{checkpoint.path} is still being written.", fix="call again when it is complete"
                )
            else:
                self.options.say(f"{checkpoint.name}: still being written; left for the next call.")
        self.refresh([c for c in find_checkpoints(self.run) if self.reporter.needs_report(c)])
        return [r for r in (self.reports.record(c.name) for c in wanted) if r is not None]

    def _is_asked_for(self, checkpoint: Checkpoint, *, retry: bool, by_name: bool) -> bool:
        record = self.reports.record(checkpoint.name)
        again = retry and (by_name or record is None or record.status != "complete")
        return self.reporter.needs_report(checkpoint, retry=again)

    def refresh(
        self,
        open_ones: list[Checkpoint] | None = None,
        ready: list[Checkpoint] | None = None,
    ) -> None:
        """Bring state, alerts and overview up to date, and remove what processes that were killed left behind."""
        if open_ones is not None:
            self.reports.save_state(
                RunState(
                    run_id=self.reports.run_id,
                    run_path=str(self.run.resolve()),
                    started=self.started,
                    ended=training_is_over(self.run),
                    waiting=[_waiting(c, c in (ready or [])) for c in open_ones],
                )
            )
            self.reports.clean()
            remove_abandoned(held_folder(self.run))
        self._raise_alerts()
        if (state := folder_state(self.reports.root)) != self._shown or not self.index.exists():
            refresh_index(self.reports.root)
            self._shown = state

    def _raise_alerts(self) -> None:
        alerts = [a for record in self.reports.records() for a in alerts_of_report(record)]
        self._raised += self._metrics.look(over=training_is_over(self.run))  # another process may be at the delivery
        delivered = delivered_in_training(self.run)
        raise_alerts(self.reports, alerts + self._raised, webhook=self.options.webhook, delivered=delivered)

    def _waiting_text(self, open_ones: list[Checkpoint], found: int, *, over: bool) -> str:
        state = "training is over" if over else "training goes on"
        left = f", {len(open_ones)} not reported yet" if open_ones else ", all reported"
        return f"{found} checkpoints{left}; {state}"


def _waiting(checkpoint: Checkpoint, settled: bool) -> Waiting:
    why = "complete; waits for its evaluation" if settled else "half-written so far, or too new to tell"
    return Waiting(
        name=checkpoint.name,
        file=checkpoint.path.name,
        step=checkpoint.step,
        status="pending" if settled else "writing",
        why=why,
    )


def _outcome(reports: RunReports, record: ReportRecord) -> str:
    if record.status == "complete":
        return f"{record.name}: reported in {reports.report(record.name) / 'report.html'}"
    kind = "damaged, not evaluated" if record.status == "corrupt" else f"the {record.stage} failed"
    return f"{record.name}: {kind}. {record.why}\n  Fix: {record.fix}"


def _space_problem(root: Path, error: OSError) -> str:
    return f"No disk space for reports in {root} ({error.strerror or error}); nothing half was left."
