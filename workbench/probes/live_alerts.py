"""Alerts out of the training process itself: rules on each step, delivery by a thread that never holds a step up.

Of the ranks of a job that see the same thing, one posts it: the first that makes the mark file of the rule.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from workbench.alert_delivery import WINDOW_S, Alert, AlertRecord, Past, deliver, read_records, webhook_address
from workbench.analyses.live_rules import LiveAlert, LiveRules, metric_rule
from workbench.files import append_json_lines
from workbench.probes.run_writer import RunWriter

log = logging.getLogger(__name__)
LOOK_S = 5.0  # how often the thread looks for steps that do not come, and for posts to try again
CLOSE_S = 8.0  # how long the end of the training waits for a post that is under way


@dataclass(frozen=True, kw_only=True)
class Alerts:
    """What the Recorder raises alerts on, and where they go beside the log, the events and `alerts/` in the run.

    Args:
        when: rules such as "gradient_norm > 100 for 3 steps", beside those that are always there.
        webhook: address that alerts are posted to; by default that of `$WORKBENCH_ALERT_WEBHOOK`, if it is set.
    """

    when: Sequence[str] = ()
    webhook: str | None = None


class LiveAlerts:
    """Takes the records of this rank's steps, raises alerts, and delivers them beside the training.

    Args:
        writer: writer of the run.
        options: rules and webhook.
        look_s: seconds between looks of the thread.

    Raises:
        UnknownParameterError: a rule cannot be read, or the webhook is no http(s) address.
    """

    def __init__(self, writer: RunWriter, options: Alerts, *, look_s: float = LOOK_S) -> None:
        self._writer, self._look_s = writer, look_s
        self._rules = LiveRules([metric_rule(text) for text in options.when])
        self._webhook = webhook_address(options.webhook)
        self._path = writer.files.alerts(writer.rank_id)
        self._queue: queue.Queue[LiveAlert] = queue.Queue()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start delivering."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="workbench-alerts", daemon=True)
            self._thread.start()

    def step(self, record: Mapping[str, object]) -> None:
        """Look at the record of a step; nothing is sent here."""
        with self._guard:
            found = self._rules.feed(record, rank_id=self._writer.rank_id)
        for alert in found:
            self._queue.put(alert)

    def stop(self) -> None:
        """Deliver what is left, once, and end the thread; a webhook that hangs is not waited for."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join(CLOSE_S)
            self._thread = None

    def _run(self) -> None:
        past = Past(read_records(self._path))
        earlier = frozenset(past.last)  # of an attempt before this one
        while not self._stop.is_set():
            self._wait()
            with self._guard:
                stalled = [] if self._stop.is_set() else self._rules.stalled(time.time_ns())
            for alert in stalled:
                self._queue.put(alert)
            self._deliver_all(past, earlier)
        self._deliver_all(past, earlier)

    def _wait(self) -> None:
        """Until an alert comes, the training ends, or it is time to look."""
        end = time.monotonic() + self._look_s
        while time.monotonic() < end and not self._stop.is_set() and self._queue.empty():
            self._stop.wait(min(0.1, self._look_s))

    def _deliver_all(self, past: Past, earlier: frozenset[str]) -> None:
        todo: list[Alert] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found = self._queue.get_nowait()
                if found.key in earlier:
                    found = replace(found, again=True)
                self._mark(found)
                todo.append(Alert(key=found.key, severity=found.severity, title=found.title, fix=found.fix))
        for alert in todo + past.due(self._webhook):
            posts = alert.key in past.last or self._is_first(alert)
            self._keep(deliver(self._run_id, alert, past, self._webhook if posts else None))

    @property
    def _run_id(self) -> str:
        return self._writer.files.root.name

    def _mark(self, alert: LiveAlert) -> None:
        """Among the run's events."""
        detail = {"severity": alert.severity, "rule": alert.rule, "fix": alert.fix}
        self._writer.event("alert", start_ns=time.time_ns(), step=alert.step, name=alert.title, detail=detail)

    def _keep(self, record: AlertRecord) -> None:
        try:
            append_json_lines(self._path, [msgspec.to_builtins(record)])
        except OSError as error:
            log.warning("An alert cannot be written to %s (%s); training goes on.", self._path, error)

    def _is_first(self, alert: Alert) -> bool:
        """Whether no other rank posted the same rule within the window; if so, this one is marked as the one."""
        if self._webhook is None:
            return False
        mark = self._path.parent / f"{_file_name(alert.key)}.posted"
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            if mark.exists() and time.time() - mark.stat().st_mtime > WINDOW_S:
                mark.unlink(missing_ok=True)
            mark.open("x").close()
        except FileExistsError:
            return False
        except OSError as error:
            log.warning("%s cannot be made (%s); the alert is posted all the same.", mark, error)
        return True


def _file_name(key: str) -> str:
    """The rule of a key as a file name: the same on all ranks."""
    rule = key.partition(":rank_")[0]
    return "".join(c if c.isalnum() or c in "_-." else "_" for c in rule)


def recorder_alerts(writer: RunWriter, options: Alerts | None) -> LiveAlerts | None:
    """The alerts of a Recorder; None where it raises none."""
    return None if options is None else LiveAlerts(writer, options)
