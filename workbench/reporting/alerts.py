"""Alerts: what someone should know now. Each goes to the log, to `alerts.jsonl` beside the reports, and to a webhook.

The file is the memory: an alert whose key stands in it is not raised again, and a webhook that did not answer is tried
again later with growing pauses, also by another process after a kill.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from workbench.errors import UnknownParameterError, UnreadableFileError, WorkbenchError
from workbench.files import RunFiles, append_json_lines
from workbench.readers.kinds import FileContext
from workbench.readers.records import read_json_lines
from workbench.reporting.archive import ReportRecord, RunReports
from workbench.reporting.claims import take_claim

log = logging.getLogger(__name__)
WEBHOOK_VARIABLE = "WORKBENCH_ALERT_WEBHOOK"
TIMEOUT_S = 5.0
MAX_ATTEMPTS = 6
FIRST_PAUSE_S = 30.0  # doubled after each attempt that failed: 30 s to 8 min
MAX_PER_WINDOW, WINDOW_S = 10, 600.0  # a training that goes wrong at many places must not flood a channel
ALERTING = ("critical", "warning")
TEST_WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One thing that someone should know now. Two alerts with the same key are the same alert."""

    key: str
    severity: str
    title: str
    fix: str = ""
    report: str = ""  # folder of the report, relative to the report folder


class AlertRecord(msgspec.Struct, kw_only=True):
    """A line of `alerts.jsonl`: an alert, and one attempt to deliver it."""

    time_ns: int
    key: str
    run_id: str
    severity: str
    title: str
    fix: str = ""
    report: str = ""
    webhook: str = "none"  # none (no address), ok, later (too many), or what went wrong
    attempt: int = 0


def webhook_address(given: str | None = None) -> str | None:
    """The address to post to: the one given, else that in the environment, else none.

    Raises:
        UnknownParameterError: it is not an http(s) address.
    """
    address = given or os.environ.get(WEBHOOK_VARIABLE) or None
    if address is not None and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname):
        raise UnknownParameterError(
            "The webhook address is not an http or https address.",
            fix=f"give --webhook https://host/path, or set {WEBHOOK_VARIABLE}",
        )
    return address


def alerts_of_report(record: ReportRecord) -> list[Alert]:
    """Alerts for the serious findings of a report, for a damaged checkpoint and for a report that failed."""
    if record.status != "complete":
        key, severity = f"{record.name}:{record.status}", "critical" if record.status == "corrupt" else "warning"
        title = f"Checkpoint {record.name}: {record.why}"
        return [Alert(key=key, severity=severity, title=title, fix=record.fix or "", report=record.name)]
    return [
        Alert(
            key=f"{record.name}:{f.cause}:{f.title}", severity=f.severity, title=f.title, fix=f.fix, report=record.name
        )
        for f in record.findings
        if f.severity in ALERTING
    ]


def raise_alerts(reports: RunReports, alerts: Iterable[Alert], *, webhook: str | None = None) -> list[AlertRecord]:
    """Raise those alerts that were not raised before, and try again those whose webhook did not answer.

    Returns:
        What was written to `alerts.jsonl`; empty when there was nothing to do or another process is at it.
    """
    alerts = list(alerts)
    past = _past(reports)
    if all(a.key in past.last for a in alerts) and not any(_is_due(r, webhook) for r in past.last.values()):
        return []
    claim = take_claim(reports.folder / ".alerts", "delivery")
    if claim is None:
        return []
    try:
        past = _past(reports)
        written = []
        for alert in [a for a in alerts if a.key not in past.last] + [_again(r) for r in _due(past, webhook)]:
            record = _deliver(reports, alert, past, webhook)
            past.add(record)
            written.append(record)
            append_json_lines(reports.alerts, [msgspec.to_builtins(record)])
            claim.heartbeat()
        return written
    finally:
        claim.release()


def send_test_alert(reports: RunReports, *, webhook: str | None = None) -> AlertRecord:
    """Send one test alert through everything that is set up; the record says what the webhook answered.

    Raises:
        WorkbenchError: another process holds the delivery for long.
    """
    now_ns = time.time_ns()
    title = f"Test alert of run {reports.run_id}: alerts arrive."
    alert = Alert(key=f"test:{now_ns}", severity="info", title=title, fix="Nothing to do.")
    while time.time_ns() - now_ns < TEST_WAIT_S * 1e9:
        for record in raise_alerts(reports, [alert], webhook=webhook):
            if record.key == alert.key:
                return record
        time.sleep(0.2)
    raise WorkbenchError(
        "Another process has been delivering alerts of this run for a while.",
        fix=f"look at {reports.alerts}, and call the test again",
    )


def raised_alerts(reports: RunReports) -> list[AlertRecord]:
    """The alerts of a run, each as it stands, oldest first."""
    return list(_past(reports).last.values())


class LossWatch:
    """Follows the metrics of a run; each look reads what was appended since the last one."""

    def __init__(self, run: Path) -> None:
        self._folder = RunFiles(run).metrics(0).parent
        self._offsets: dict[Path, int] = {}

    def look(self) -> list[Alert]:
        """One alert per rank whose loss was NaN or infinite in the new records, with the first such step."""
        found = []
        for path in sorted(self._folder.glob("rank_*.jsonl")):
            steps = [r.get("step") for r in self._new_records(path) if _is_not_finite(r)]
            if steps:
                title = f"The loss of {path.stem.replace('_', ' ')} is not finite at step {steps[0]}."
                fix = "Stop the run if it does not recover; go back to the last good checkpoint (playbook T1)."
                found.append(Alert(key=f"loss_not_finite:{path.stem}", severity="critical", title=title, fix=fix))
        return found

    def _new_records(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as f:
            f.seek(self._offsets.get(path, 0))
            new = f.read()
        end = new.rfind(b"\n") + 1  # the rest is being written
        self._offsets[path] = self._offsets.get(path, 0) + end
        for line in new[:end].splitlines():
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                yield msgspec.json.decode(line, type=dict[str, Any])


def _is_not_finite(record: dict[str, Any]) -> bool:
    return isinstance(record.get("loss"), str) or record.get("loss_finite") is False


class _Past:
    """What was raised before: the last record per key, and when the webhook was called."""

    def __init__(self, records: Sequence[AlertRecord]) -> None:
        self.last: dict[str, AlertRecord] = {}
        self.calls_ns: list[int] = []
        for record in records:
            self.add(record)

    def add(self, record: AlertRecord) -> None:
        self.last[record.key] = record
        if record.webhook not in ("none", "later"):
            self.calls_ns.append(record.time_ns)

    @property
    def window_is_full(self) -> bool:
        since = time.time_ns() - int(WINDOW_S * 1e9)
        return sum(t > since for t in self.calls_ns) >= MAX_PER_WINDOW


def _past(reports: RunReports) -> _Past:
    try:
        rows, _ = read_json_lines(reports.alerts, FileContext())
    except UnreadableFileError:
        return _Past([])
    records = []
    for row in rows.records:
        try:
            records.append(msgspec.convert(row, AlertRecord))
        except msgspec.ValidationError:
            log.warning("%s holds a line that is not an alert; it is left alone.", reports.alerts)
    return _Past(records)


def _is_due(record: AlertRecord, webhook: str | None) -> bool:
    if webhook is None or record.webhook in ("ok", "none") or record.attempt >= MAX_ATTEMPTS:
        return False
    pause_s = FIRST_PAUSE_S * 2 ** max(record.attempt - 1, 0)
    return time.time_ns() - record.time_ns >= pause_s * 1e9


def _due(past: _Past, webhook: str | None) -> list[AlertRecord]:
    return [r for r in past.last.values() if _is_due(r, webhook)]


def _again(record: AlertRecord) -> Alert:
    return Alert(key=record.key, severity=record.severity, title=record.title, fix=record.fix, report=record.report)


def _deliver(reports: RunReports, alert: Alert, past: _Past, webhook: str | None) -> AlertRecord:
    before = past.last.get(alert.key)
    record = AlertRecord(
        time_ns=time.time_ns(),
        key=alert.key,
        run_id=reports.run_id,
        severity=alert.severity,
        title=alert.title,
        fix=alert.fix,
        report=alert.report,
        attempt=before.attempt if before else 0,
    )
    if before is None:
        level = logging.ERROR if alert.severity == "critical" else logging.WARNING
        log.log(level, "ALERT [%s] %s", alert.severity, alert.title)
    if webhook is not None and past.window_is_full:
        record.webhook = "later"
    elif webhook is not None:
        record.attempt += 1
        record.webhook = _post(webhook, {"text": f"[{alert.severity}] {alert.title}", **msgspec.to_builtins(record)})
        if record.webhook != "ok":
            log.warning("The webhook did not take the alert (attempt %d): %s.", record.attempt, record.webhook)
    return record


def _post(address: str, content: dict[str, Any]) -> str:
    """`ok`, or what went wrong. The address may hold a token, so it is not part of any message."""
    content.pop("webhook", None)
    request = urllib.request.Request(
        address, data=msgspec.json.encode(content), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            return "ok"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        return f"no answer: {getattr(error, 'reason', error)}"
