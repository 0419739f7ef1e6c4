"""`workbench watch` and `workbench report`: reports on the checkpoints of a run."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from workbench.commands.command import Command

if TYPE_CHECKING:
    from workbench.reporting.watch import WatchOptions

EXIT_NOT_ALL_COMPLETE = 1
EXIT_TERMINATED = 143


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reports", type=Path, default=Path("reports"), help="folder of all reports (default: reports)"
    )
    parser.add_argument(
        "--notebook", type=Path, help="report notebook (default: the one that comes with the workbench)"
    )
    parser.add_argument(
        "--evaluator",
        metavar="MODULE",
        help="module run as `python -m MODULE RUN --checkpoint FILE [--step N]`; exit status 0: evaluation recorded, "
        "3: checkpoint damaged (default: workbench.probes.evaluate)",
    )
    parser.add_argument(
        "--threads",
        type=_count,
        metavar="N",
        help="most threads of an evaluation on CPU, so that a training on the same machine keeps its cores "
        "(default: half of the cores)",
    )
    parser.add_argument("--webhook", help="address that alerts are posted to (default: $WORKBENCH_ALERT_WEBHOOK)")
    parser.add_argument(
        "--settle", type=float, default=3.0, help="seconds for which a file must not change to count as written (3)"
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("--until-done", action="store_true", help="end when training is over and all is reported")
    parser.add_argument("--poll", type=float, default=2.0, help="seconds between two looks (2)")
    parser.add_argument(
        "--alert-when",
        action="append",
        default=[],
        metavar="RULE",
        help="raise an alert on a metric of the steps, e.g. 'gradient_norm > 100 for 3 steps'; may be given repeatedly",
    )
    _add_common(parser)


def run_watch(arguments: argparse.Namespace) -> int:
    """Report on each checkpoint as it appears."""
    from workbench.reporting.archive import reports_of
    from workbench.reporting.watch import watch

    reports_of(arguments.run_path, arguments.reports)  # what cannot be watched is told before anything is promised
    signal.signal(signal.SIGTERM, _end)
    with _status_line() as status:
        print(
            f"Watching {arguments.run_path}; reports go to {arguments.reports / 'index.html'}. End with Ctrl-C.",
            flush=True,
        )
        watch(arguments.run_path, arguments.reports, _options(arguments, status), until_done=arguments.until_done)
    return 0


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", type=Path, nargs="?", help="run directory")
    parser.add_argument("--checkpoint", help="file name or step of one checkpoint (default: all without a report)")
    parser.add_argument("--retry", action="store_true", help="make reports again that failed, or the one that is named")
    parser.add_argument("--index-only", action="store_true", help="only make index.html again from the folders")
    _add_common(parser)


def run_report(arguments: argparse.Namespace) -> int:
    """Report on checkpoints now; 1 when a report is not complete."""
    from workbench.errors import UnknownParameterError
    from workbench.reporting.report_index import refresh_index
    from workbench.reporting.watch import report

    if arguments.index_only:
        print(f"The overview is in {refresh_index(arguments.reports)}")
        return 0
    if arguments.run_path is None:
        raise UnknownParameterError("No run is named.", fix="call `workbench report RUN`, or add --index-only")
    signal.signal(signal.SIGTERM, _end)
    with _status_line() as status:
        options = _options(arguments, status)
        records = report(
            arguments.run_path, arguments.reports, options, name=arguments.checkpoint, retry=arguments.retry
        )
    complete = sum(r.status == "complete" for r in records)
    print(f"{complete} of {len(records)} reports are complete. The overview is in {arguments.reports / 'index.html'}")
    return 0 if complete == len(records) else EXIT_NOT_ALL_COMPLETE


def _options(arguments: argparse.Namespace, status: _StatusLine) -> WatchOptions:
    from workbench.alert_delivery import webhook_address
    from workbench.analyses.live_rules import metric_rule
    from workbench.reporting.checkpoint_report import default_notebook
    from workbench.reporting.evaluator import EVALUATOR
    from workbench.reporting.watch import WatchOptions

    return WatchOptions(
        notebook=arguments.notebook or default_notebook(),
        evaluator=arguments.evaluator or EVALUATOR,
        threads=arguments.threads,
        poll_s=getattr(arguments, "poll", 2.0),
        settle_s=arguments.settle,
        webhook=webhook_address(arguments.webhook),
        rules=tuple(metric_rule(text) for text in getattr(arguments, "alert_when", [])),
        show=status.show,
        say=status.say,
    )


class _StatusLine:
    """One line on a terminal that says what is being done; lines that stay go above it."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()

    def show(self, text: str) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{text[:width]}", end="", flush=True)

    def say(self, text: str) -> None:
        print(f"\r\x1b[2K{text}" if self._live else text, flush=True)


@contextmanager
def _status_line() -> Iterator[_StatusLine]:
    status = _StatusLine()
    try:
        yield status
    finally:
        status.show("")


def _end(_number: int, _frame: FrameType | None) -> None:
    """End like after Ctrl-C: children ended, claims given back."""
    sys.exit(EXIT_TERMINATED)


COMMANDS = (
    Command(
        name="watch",
        summary="report on each checkpoint of a run as it appears, exactly once, while training goes on",
        examples=("workbench watch runs/demo", "workbench watch runs/demo --until-done --reports /shared/reports"),
        add_arguments=_add_watch,
        run=run_watch,
    ),
    Command(
        name="report",
        summary="report on the checkpoints without a report, or on one, now (for cron)",
        examples=(
            "workbench report runs/demo",
            "workbench report runs/demo --checkpoint rehearsal-1_40 --retry",
            "workbench report --index-only --reports /shared/reports",
        ),
        add_arguments=_add_report,
        run=run_report,
    ),
)
