"""Alerts reach log, file and a real HTTP server, once each, and later where the server is down."""

import http.server
import json
import logging
import threading
import time

import pytest

from workbench.errors import UnknownParameterError
from workbench.files import append_json_lines
from workbench.reporting import alerts
from workbench.reporting.alerts import (
    WEBHOOK_VARIABLE,
    Alert,
    LossWatch,
    alerts_of_report,
    raise_alerts,
    raised_alerts,
    send_test_alert,
    webhook_address,
)
from workbench.reporting.archive import ReportRecord, RunReports, TopFinding
from workbench.reporting.claims import take_claim


@pytest.fixture
def server():
    """A web server; `status` is what it answers, `bodies` what it got."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(self.server.status)
            self.end_headers()

        def log_message(self, *_arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.status, httpd.bodies = 200, []
        httpd.address = f"http://127.0.0.1:{httpd.server_port}/hook?token=secret"
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield httpd
        httpd.shutdown()


def _alert(key: str = "k", **changes: str) -> Alert:
    return Alert(key=key, **{"severity": "critical", "title": "Loss is NaN <b>", "fix": "Stop.", **changes})


@pytest.fixture
def reports(tmp_path):
    return RunReports(tmp_path / "reports", "demo")


def test_an_alert_goes_to_log_file_and_webhook_once(reports, server, caplog):
    with caplog.at_level(logging.WARNING):
        raise_alerts(reports, [_alert()], webhook=server.address)
        assert raise_alerts(reports, [_alert()], webhook=server.address) == []
    assert [r.getMessage() for r in caplog.records] == ["ALERT [critical] Loss is NaN <b>"]
    assert len(server.bodies) == 1
    assert server.bodies[0]["text"] == "[critical] Loss is NaN <b>"
    assert server.bodies[0]["run_id"] == "demo"
    lines = [json.loads(line) for line in reports.alerts.read_text().splitlines()]
    assert [(r["key"], r["webhook"], r["attempt"]) for r in lines] == [("k", "ok", 1)]
    assert "secret" not in reports.alerts.read_text()


def test_without_webhook_log_and_file_are_enough(reports):
    assert [r.webhook for r in raise_alerts(reports, [_alert()])] == ["none"]
    assert raise_alerts(reports, [_alert()]) == []


def test_a_server_that_is_down_is_tried_again_later(reports, server, monkeypatch, caplog):
    server.status = 503
    assert raise_alerts(reports, [_alert()], webhook=server.address)[0].webhook == "HTTP 503"
    assert raise_alerts(reports, [_alert()], webhook=server.address) == []  # too early
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + int(31e9))  # the first pause is 30 s
    assert raise_alerts(reports, [_alert()], webhook=server.address)[0].attempt == 2
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + int(80e9))  # 49 s later; the second pause is 60 s
    assert raise_alerts(reports, [_alert()], webhook=server.address) == []
    server.status = 200
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + int(92e9))
    assert raise_alerts(reports, [], webhook=server.address)[0].webhook == "ok"
    assert len(server.bodies) == 3
    assert sum("ALERT" in r.getMessage() for r in caplog.records) == 1
    assert len(raised_alerts(reports)) == 1


def test_it_gives_up_after_some_attempts(reports, server, monkeypatch):
    server.status, start_ns = 500, time.time_ns()
    for i in range(10):
        monkeypatch.setattr(time, "time_ns", lambda i=i: start_ns + int(i * 1000e9))
        raise_alerts(reports, [_alert()], webhook=server.address)
    assert len(server.bodies) == alerts.MAX_ATTEMPTS


def test_no_server_at_all(reports):
    record = raise_alerts(reports, [_alert()], webhook="http://127.0.0.1:9/")[0]
    assert record.webhook.startswith("no answer:")


def test_a_flood_is_held_back_but_not_lost(reports, server, monkeypatch):
    start_ns = time.time_ns()
    written = raise_alerts(reports, [_alert(f"k{i}") for i in range(25)], webhook=server.address)
    assert [r.webhook for r in written].count("ok") == alerts.MAX_PER_WINDOW == 10
    assert [r.webhook for r in written].count("later") == 15
    for minutes in (11, 22, 33):
        monkeypatch.setattr(time, "time_ns", lambda m=minutes: start_ns + m * 60 * 10**9)
        raise_alerts(reports, [], webhook=server.address)
    assert {b["key"] for b in server.bodies} == {f"k{i}" for i in range(25)}
    assert len(server.bodies) == 25


def test_two_processes_do_not_deliver_at_once(reports, server):
    claim = take_claim(reports.folder / ".alerts", "delivery")
    assert raise_alerts(reports, [_alert()], webhook=server.address) == []
    claim.release()
    assert len(raise_alerts(reports, [_alert()], webhook=server.address)) == 1


def test_a_torn_line_does_not_lose_the_others(reports):
    raise_alerts(reports, [_alert("a")])
    with reports.alerts.open("a") as f:
        f.write('{"key": "b", "tim')
    assert len(raise_alerts(reports, [_alert("a"), _alert("c")])) == 1
    assert [r.key for r in raised_alerts(reports)] == ["a", "c"]


def test_the_test_alert_says_what_the_server_answered(reports, server):
    assert send_test_alert(reports, webhook=server.address).webhook == "ok"
    assert send_test_alert(reports, webhook=server.address).webhook == "ok"  # not taken for a repetition
    assert server.bodies[0]["title"] == "Test alert of run demo: alerts arrive."


def test_webhook_address(monkeypatch):
    monkeypatch.delenv(WEBHOOK_VARIABLE, raising=False)
    assert webhook_address() is None
    monkeypatch.setenv(WEBHOOK_VARIABLE, "https://chat.example/hook")
    assert webhook_address() == "https://chat.example/hook"
    assert webhook_address("http://other.example/") == "http://other.example/"
    for bad in ("chat.example/hook", "file:///etc/passwd", "https://"):
        with pytest.raises(UnknownParameterError, match="not an http"):
            webhook_address(bad)


def test_serious_findings_and_damage_are_alerts():
    fields = {"name": "m-1_2", "file": "m-1_2.ckpt", "step": 2, "size_bytes": 1, "mtime_ns": 1}
    findings = [TopFinding(severity=s, cause="loss_spike", title=s) for s in ("critical", "warning", "info")]
    found = alerts_of_report(ReportRecord(**fields, status="complete", findings=findings))
    assert [a.severity for a in found] == ["critical", "warning"]
    damaged = alerts_of_report(ReportRecord(**fields, status="corrupt", why="Cut short."))
    assert [(a.severity, a.title) for a in damaged] == [("critical", "Checkpoint m-1_2: Cut short.")]
    assert [a.severity for a in alerts_of_report(ReportRecord(**fields, status="failed", why="x"))] == ["warning"]


def test_a_loss_that_is_not_finite_is_seen_once_per_rank(tmp_path):
    watch, metrics = LossWatch(tmp_path), tmp_path / "metrics"
    assert watch.look() == []
    append_json_lines(metrics / "rank_0.jsonl", [{"step": 1, "loss": 2.0}])
    assert watch.look() == []
    append_json_lines(metrics / "rank_0.jsonl", [{"step": 2, "loss": "NaN"}, {"step": 3, "loss": "Infinity"}])
    append_json_lines(metrics / "rank_1.jsonl", [{"step": 2, "loss": None, "loss_finite": False}])
    found = watch.look()
    assert [a.title for a in found] == [
        "The loss of rank 0 is not finite at step 2.",
        "The loss of rank 1 is not finite at step 2.",
    ]
    assert watch.look() == []


def test_a_record_that_is_being_written_is_read_when_it_is_whole(tmp_path):
    path, watch = tmp_path / "metrics" / "rank_0.jsonl", LossWatch(tmp_path)
    path.parent.mkdir()
    path.write_bytes(b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert watch.look() == []
    with path.open("ab") as f:
        f.write(b'ss": "NaN"}\n')
    assert [a.key for a in watch.look()] == ["loss_not_finite:rank_0"]
