"""`workbench alert`: what was raised for a run, and a test of the ways it takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.commands.command import Command

EXIT_NOT_DELIVERED = 1


def _add_alert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("--test", action="store_true", help="send a test alert through everything that is set up")
    parser.add_argument(
        "--reports", type=Path, default=Path("reports"), help="folder of all reports (default: reports)"
    )
    parser.add_argument("--webhook", help="address that alerts are posted to (default: $WORKBENCH_ALERT_WEBHOOK)")


def run_alert(arguments: argparse.Namespace) -> int:
    """Send a test alert, or list the alerts of a run; 1 when the webhook did not take the test."""
    from workbench.alert_delivery import webhook_address
    from workbench.reporting.alerts import delivered_in_training, raised_alerts, send_test_alert
    from workbench.reporting.archive import reports_of

    reports = reports_of(arguments.run_path, arguments.reports)
    if not arguments.test:
        in_training = delivered_in_training(arguments.run_path)
        raised = {record.key: record for record in [*in_training, *raised_alerts(reports)]}
        for record in sorted(raised.values(), key=lambda r: r.time_ns):
            print(f"[{record.severity}] {record.title} (webhook: {record.webhook})")
        places = [str(reports.alerts), *([str(arguments.run_path / "alerts")] if in_training else [])]
        print(f"They are kept in {' and '.join(places)}." if raised else "No alert was raised for this run.")
        return 0
    record = send_test_alert(reports, webhook=webhook_address(arguments.webhook))
    print(f"Test alert: log yes, file {reports.alerts}, webhook {record.webhook}.")
    return 0 if record.webhook in ("ok", "none") else EXIT_NOT_DELIVERED


COMMANDS = (
    Command(
        name="alert",
        summary="list the alerts of a run, or send a test alert",
        examples=("workbench alert runs/demo", "workbench alert runs/demo --test --webhook https://chat.example/hook"),
        add_arguments=_add_alert,
        run=run_alert,
    ),
)
