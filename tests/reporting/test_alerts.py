"""Alerts reach log, file and a real HTTP server, once each, and later where the server is down."""

import json
import logging
import socket
import threading
import time

import msgspec
import pytest

from tests.hook_server import TricklingServer, free_port, hook_server
from tests.made_run import made_steps, write_run
from workbench import alert_delivery
from workbench.alert_delivery import WEBHOOK_VARIABLE, Alert, AlertRecord, webhook_address
from workbench.analyses.live_rules import metric_rule
from workbench.errors import UnknownParameterError
from workbench.files import RunFiles, append_json_lines
from workbench.reporting.alerts import (
    MetricsWatch,
    alerts_of_report,
    delivered_in_training,
    raise_alerts,
    raised_alerts,
    send_test_alert,
)
from workbench.reporting.archive import ReportRecord, RunReports, TopFinding
from workbench.reporting.claims import take_claim


@pytest.fixture
def server():
    with hook_server() as httpd:
        yield httpd


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


def test_a_server_that_trickles_its_answer_is_hung_up_on(reports, monkeypatch, caplog):
    """Each byte comes well within the limit of a socket: only a limit of the whole attempt ends it."""
    monkeypatch.setattr(alert_delivery, "TIMEOUT_S", 0.5)
    server = TricklingServer()
    (record,) = raise_alerts(reports, [_alert()], webhook=server.address)
    server.close()
    assert record.webhook == "no answer: not within 0.5 s"
    assert server.sent < server.most
    assert "did not take the alert" in caplog.text


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


def test_a_server_that_was_down_gets_the_alert_when_it_is_back(reports, monkeypatch):
    port, now_ns = free_port(), time.time_ns()
    address = f"http://127.0.0.1:{port}/hook"
    assert raise_alerts(reports, [_alert()], webhook=address)[0].webhook.startswith("no answer")
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + int(31e9))
    assert raise_alerts(reports, [_alert()], webhook=address)[0].webhook.startswith("no answer")  # still down
    with hook_server(port) as back:
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + int(95e9))
        assert raise_alerts(reports, [_alert()], webhook=address)[0].webhook == "ok"
        assert [(b["key"], b["attempt"]) for b in back.bodies] == [("k", 3)]


def test_what_the_recorder_delivered_is_not_delivered_again(reports, server, tmp_path):
    def told(key, webhook):
        record = AlertRecord(time_ns=1, key=key, run_id="demo", severity="warning", title=key, webhook=webhook)
        append_json_lines(RunFiles(tmp_path).alerts(3), [msgspec.to_builtins(record)])

    told("reached", "ok")
    told("failed", "HTTP 500")
    told("no address", "none")
    delivered = delivered_in_training(tmp_path)
    assert len(delivered) == 3
    alerts = [_alert(k) for k in ("reached", "failed", "no address")]
    raise_alerts(reports, alerts, webhook=server.address, delivered=delivered)
    assert [b["key"] for b in server.bodies] == ["failed", "no address"]


def test_it_gives_up_after_some_attempts(reports, server, monkeypatch):
    server.status, start_ns = 500, time.time_ns()
    for i in range(10):
        monkeypatch.setattr(time, "time_ns", lambda i=i: start_ns + int(i * 1000e9))
        raise_alerts(reports, [_alert()], webhook=server.address)
    assert len(server.bodies) == alert_delivery.MAX_ATTEMPTS


def test_no_server_at_all(reports):
    record = raise_alerts(reports, [_alert()], webhook="http://127.0.0.1:9/")[0]
    assert record.webhook.startswith("no answer:")


def test_a_flood_is_held_back_but_not_lost(reports, server, monkeypatch):
    start_ns = time.time_ns()
    written = raise_alerts(reports, [_alert(f"k{i}") for i in range(25)], webhook=server.address)
    assert [r.webhook for r in written].count("ok") == alert_delivery.MAX_PER_WINDOW == 10
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


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_no_delivery(reports, server, status):
    server.status = status
    assert send_test_alert(reports, webhook=server.address).webhook == f"HTTP {status}"


def test_a_server_that_does_not_speak_http_is_told_in_one_line(reports):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"\0\xff junk\r" * 500)

        threading.Thread(target=answer, daemon=True).start()
        said = send_test_alert(reports, webhook=f"http://127.0.0.1:{listener.getsockname()[1]}/").webhook
    assert said.startswith("no answer: ")
    assert said.isprintable()
    assert len(said) < 150


def test_webhook_address(monkeypatch):
    monkeypatch.delenv(WEBHOOK_VARIABLE, raising=False)
    assert webhook_address() is None
    monkeypatch.setenv(WEBHOOK_VARIABLE, "https://chat.example/hook")
    assert webhook_address() == "https://chat.example/hook"
    assert webhook_address("http://other.example/") == "http://other.example/"
    broken = ("http://[::1", "http://host:99999/", "http://ho st/", "http://host/\n", "https://host/告警?token=secret")
    for bad in ("chat.example/hook", "file:///etc/passwd", "https://", *broken):
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
    watch, metrics = MetricsWatch(tmp_path), tmp_path / "metrics"
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
    path, watch = tmp_path / "metrics" / "rank_0.jsonl", MetricsWatch(tmp_path)
    path.parent.mkdir()
    path.write_bytes(b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert watch.look() == []
    with path.open("ab") as f:
        f.write(b'ss": "NaN"}\n')
    assert [a.key for a in watch.look()] == ["loss_not_finite:rank_0"]


def test_the_rules_of_the_user_and_steps_that_got_slow(tmp_path):
    steps = made_steps(150)
    steps.loc[99:, "step_us"] *= 2
    steps.loc[119, "gradient_norm"] = 500.0
    run = write_run(tmp_path / "run", steps)
    watch = MetricsWatch(run, [metric_rule("gradient_norm > 100")])
    found = watch.look(over=True)
    assert [a.key for a in found] == ["slow_steps:rank_0", "gradient_norm > 100:rank_0"]
    assert "500 at step 120" in found[1].title
    assert watch.look(over=True) == []


def test_a_rank_that_writes_no_more(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", made_steps(60))
    watch, last_ns = MetricsWatch(run), int(made_steps(60)["time_ns"].iloc[-1])
    monkeypatch.setattr(time, "time_ns", lambda: last_ns + int(500e9))
    assert watch.look() == []
    monkeypatch.setattr(time, "time_ns", lambda: last_ns + int(700e9))
    assert MetricsWatch(run).look(over=True) == []  # the training has ended
    found = watch.look()
    assert [(a.severity, a.key) for a in found] == [("critical", "no_step_since_60:rank_0")]
    assert "for 12 min since step 60" in found[0].title
    assert watch.look() == []
