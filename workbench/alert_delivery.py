"""Deliver alerts: to the log, as records of a file, and to a webhook; each once, not too many, again when it failed.

The records are the memory: an alert whose key stands in them is not raised again, and a webhook that did not answer is
tried again later with growing pauses, also by another process after a kill.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from workbench.errors import UnknownParameterError

log = logging.getLogger(__name__)
WEBHOOK_VARIABLE = "WORKBENCH_ALERT_WEBHOOK"
TIMEOUT_S = 5.0  # of one attempt, from the look-up of the name to the head of the answer
MAX_ATTEMPTS = 6
LONGEST_REASON = 120  # characters of what went wrong
FIRST_PAUSE_S = 30.0  # doubled after each attempt that failed: 30 s to 8 min
MAX_PER_WINDOW, WINDOW_S = 10, 600.0  # a training that goes wrong at many places must not flood a channel


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One thing that someone should know now. Two alerts with the same key are the same alert."""

    key: str
    severity: str
    title: str
    fix: str = ""
    report: str = ""  # folder of the report, relative to the report folder


class AlertRecord(msgspec.Struct, kw_only=True):
    """A line of an alert file: an alert, and one attempt to deliver it."""

    time_ns: int
    key: str
    run_id: str
    severity: str
    title: str
    fix: str = ""
    report: str = ""
    webhook: str = "none"  # none (no address), ok, later (too many), or what went wrong
    attempt: int = 0


class Past:
    """What was raised before: the last record per key, and when the webhook was called."""

    def __init__(self, records: Iterable[AlertRecord] = ()) -> None:
        self.last: dict[str, AlertRecord] = {}
        self.calls_ns: list[int] = []
        for record in records:
            self.add(record)

    def add(self, record: AlertRecord) -> None:
        """Take in one more record, the latest of its key."""
        self.last[record.key] = record
        if record.webhook not in ("none", "later"):
            self.calls_ns.append(record.time_ns)

    @property
    def window_is_full(self) -> bool:
        """Whether as many posts went out lately as are allowed."""
        since = time.time_ns() - int(WINDOW_S * 1e9)
        return sum(t > since for t in self.calls_ns) >= MAX_PER_WINDOW

    def due(self, webhook: str | None) -> list[Alert]:
        """The alerts whose webhook is to be tried again now."""
        return [_again(r) for r in self.last.values() if _is_due(r, webhook)]


def webhook_address(given: str | None = None) -> str | None:
    """The address to post to: the one given, else that in the environment, else none.

    Raises:
        UnknownParameterError: it is not an http(s) address.
    """
    address = given or os.environ.get(WEBHOOK_VARIABLE) or None
    if address is not None and not _is_web_address(address):
        raise UnknownParameterError(
            "The webhook address is not an http or https address.",
            fix=f"give an address such as https://host/path, percent-encoded, or set {WEBHOOK_VARIABLE}",
        )
    return address


def _is_web_address(address: str) -> bool:
    if not address.isascii() or not address.isprintable() or " " in address:
        return False
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half an IPv6 address, or a port out of range
        return False


def read_records(path: Path) -> list[AlertRecord]:
    """The records of an alert file in order; none where it is not there. Lines that are no record are left alone."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    records = []
    for line in lines:
        try:
            records.append(msgspec.json.decode(line, type=AlertRecord))
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            log.warning("%s holds a line that is not an alert; it is left alone.", path)
    return records


def deliver(run_id: str, alert: Alert, past: Past, webhook: str | None) -> AlertRecord:
    """Raise an alert in the log (the first time) and at the webhook; the record says what came of it, and is in `past`.

    Args:
        run_id: run that it is about.
        alert: the alert.
        past: what was raised before.
        webhook: address, or None.
    """
    before = past.last.get(alert.key)
    record = AlertRecord(
        time_ns=time.time_ns(),
        key=alert.key,
        run_id=run_id,
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
    past.add(record)
    return record


def _is_due(record: AlertRecord, webhook: str | None) -> bool:
    if webhook is None or record.webhook in ("ok", "none") or record.attempt >= MAX_ATTEMPTS:
        return False
    pause_s = FIRST_PAUSE_S * 2 ** max(record.attempt - 1, 0)
    return time.time_ns() - record.time_ns >= pause_s * 1e9


def _again(record: AlertRecord) -> Alert:
    return Alert(key=record.key, severity=record.severity, title=record.title, fix=record.fix, report=record.report)


def _post(address: str, content: dict[str, Any]) -> str:
    """`ok`, or what went wrong. The address may hold a token, so it is not part of any message."""
    content.pop("webhook", None)
    request = urllib.request.Request(
        address, data=msgspec.json.encode(content), headers={"Content-Type": "application/json"}, method="POST"
    )
    line, answer = _Line(), Future[str]()
    threading.Thread(target=_settle, args=(answer, request, line), daemon=True, name="alert").start()
    try:
        return answer.result(timeout=TIMEOUT_S)
    except FutureTimeoutError:
        line.hang_up()
        return f"no answer: not within {TIMEOUT_S:g} s"


def _settle(answer: Future[str], request: urllib.request.Request, line: _Line) -> None:
    try:
        answer.set_result(_answer(request, line))
    except Exception as error:  # noqa: BLE001  raised again where the answer is waited for
        answer.set_exception(error)


def _answer(request: urllib.request.Request, line: _Line) -> str:
    try:
        with urllib.request.build_opener(_NoRedirect, line).open(request, timeout=TIMEOUT_S):
            return "ok"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (urllib.error.URLError, TimeoutError, OSError, http.client.HTTPException) as error:
        return f"no answer: {_short(str(getattr(error, 'reason', error)))}"


def _short(reason: str) -> str:
    """One line: a server that does not speak HTTP is quoted in the reason."""
    printable = "".join(c if c.isprintable() else " " for c in reason)
    return " ".join(printable.split())[:LONGEST_REASON]


class _Line(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens the connection, and can end it: a time limit of a socket begins anew with every byte that trickles in."""

    connection: http.client.HTTPConnection | None = None

    def do_open(self, http_class: Any, req: urllib.request.Request, **arguments: Any) -> http.client.HTTPResponse:
        def kept(*words: Any, **named: Any) -> http.client.HTTPConnection:
            self.connection = http_class(*words, **named)
            return self.connection

        return super().do_open(kept, req, **arguments)

    def hang_up(self) -> None:
        """End the connection, also while another thread reads from it."""
        connected = self.connection and self.connection.sock
        if connected:
            with contextlib.suppress(OSError):  # it ended by itself meanwhile
                connected.shutdown(socket.SHUT_RDWR)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET without the alert, and its 200 would look like a delivery."""

    def redirect_request(self, *_arguments: object, **_named: object) -> None:
        return None
