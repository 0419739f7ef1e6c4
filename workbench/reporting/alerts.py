"""Alerts of a run: what someone should know now, from its reports and from its steps as they are written.

Each goes to the log, to `alerts.jsonl` beside the reports, and to a webhook (`workbench.alert_delivery`). What the
Recorder delivered itself is not delivered again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from workbench.alert_delivery import Alert, AlertRecord, Past, deliver, read_records
from workbench.analyses.live_rules import LiveAlert, LiveRules, MetricRule
from workbench.errors import WorkbenchError
from workbench.files import RunFiles, append_json_lines
from workbench.reporting.archive import ReportRecord, RunReports
from workbench.reporting.claims import take_claim

ALERTING = ("critical", "warning")
TEST_WAIT_S = 30.0


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


def raise_alerts(
    reports: RunReports,
    alerts: Iterable[Alert],
    *,
    webhook: str | None = None,
    delivered: Iterable[AlertRecord] = (),
) -> list[AlertRecord]:
    """Raise those alerts that were not raised before, and try again those whose webhook did not answer.

    Args:
        reports: the run's reports; `alerts.jsonl` lies beside them.
        alerts: what there is to say.
        webhook: address, or None.
        delivered: records of others, such as `delivered_in_training`: what reached the webhook counts as raised.

    Returns:
        What was written to `alerts.jsonl`; empty when there was nothing to do or another process is at it.
    """
    elsewhere = {record.key for record in delivered if record.webhook == "ok"}
    alerts = [a for a in alerts if a.key not in elsewhere]
    past = Past(read_records(reports.alerts))
    if all(a.key in past.last for a in alerts) and not past.due(webhook):
        return []
    claim = take_claim(reports.folder / ".alerts", "delivery")
    if claim is None:
        return []
    try:
        past = Past(read_records(reports.alerts))
        written = []
        for alert in [a for a in alerts if a.key not in past.last] + past.due(webhook):
            record = deliver(reports.run_id, alert, past, webhook)
            written.append(record)
            append_json_lines(reports.alerts, [msgspec.to_builtins(record)])
            claim.heartbeat()
        return written
    finally:
        claim.release()


def delivered_in_training(run: Path) -> list[AlertRecord]:
    """What the Recorder of each rank delivered while training."""
    return [r for path in sorted(RunFiles(run).alerts(0).parent.glob("rank_*.jsonl")) for r in read_records(path)]


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
    return list(Past(read_records(reports.alerts)).last.values())


class MetricsWatch:
    """Follows the steps of a run; each look reads what was appended since the last one.

    Args:
        run: run directory.
        rules: rules beside those that are always there.
    """

    def __init__(self, run: Path, rules: Sequence[MetricRule] = ()) -> None:
        self._folder = RunFiles(run).metrics(0).parent
        self._offsets: dict[Path, int] = {}
        self._rules = LiveRules(rules)

    def look(self, *, over: bool = False) -> list[Alert]:
        """Alerts of the new records, and of ranks that write no more unless the training is over."""
        found: list[LiveAlert] = []
        for path in sorted(self._folder.glob("rank_*.jsonl")):
            rank = path.stem.removeprefix("rank_")
            if rank.isdigit():
                for record in self._new_records(path):
                    found += self._rules.feed(record, rank_id=int(rank))
        if not over:
            found += self._rules.stalled(time.time_ns())
        return [Alert(key=a.key, severity=a.severity, title=a.title, fix=a.fix) for a in found]

    def _new_records(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as f:
            f.seek(self._offsets.get(path, 0))
            new = f.read()
        end = new.rfind(b"\n") + 1  # the rest is being written
        self._offsets[path] = self._offsets.get(path, 0) + end
        for line in new[:end].splitlines():
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                yield msgspec.json.decode(line, type=dict[str, Any])
