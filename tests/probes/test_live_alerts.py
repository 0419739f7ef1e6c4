"""Alerts that the training process raises itself reach log, events, file and a real server, and never hold it up."""

import json
import subprocess
import sys
import threading
import time

import pytest

from tests.hook_server import free_port, hook_server
from workbench import alert_delivery
from workbench.errors import UnknownParameterError
from workbench.probes.live_alerts import Alerts, LiveAlerts
from workbench.probes.run_writer import RunWriter

NAN = {"step": 7, "loss": float("nan"), "time_ns": 1}


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def live(folder, webhook=None, *, rank_id=0, when=()):
    found = LiveAlerts(RunWriter(folder, rank_id=rank_id), Alerts(webhook=webhook, when=when), look_s=0.05)
    found.start()
    return found


def test_an_alert_is_logged_kept_and_posted_once(tmp_path, caplog):
    with hook_server() as server:
        alerts = live(tmp_path / "run", server.address)
        for step in range(7, 12):
            alerts.step({**NAN, "step": step})
        wait_for(lambda: server.bodies)
        alerts.stop()
        assert [(b["key"], b["run_id"]) for b in server.bodies] == [("loss_not_finite:rank_0", "run")]
    assert [(r["key"], r["webhook"]) for r in lines(tmp_path / "run/alerts/rank_0.jsonl")] == [
        ("loss_not_finite:rank_0", "ok")
    ]
    event = lines(tmp_path / "run/events/rank_0.jsonl")[0]
    assert (event["kind"], event["step"], event["detail"]["rule"]) == ("alert", 7, "loss_not_finite")
    assert [r.getMessage() for r in caplog.records if "ALERT" in r.getMessage()] == [
        "ALERT [critical] The loss of rank 0 is not finite at step 7."
    ]
    assert "secret" not in (tmp_path / "run/alerts/rank_0.jsonl").read_text()


def test_a_server_that_was_down_for_a_while_gets_it_when_it_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr(alert_delivery, "FIRST_PAUSE_S", 0.2)
    port = free_port()
    alerts = live(tmp_path / "run", f"http://127.0.0.1:{port}/hook")
    alerts.step(NAN)
    kept = tmp_path / "run/alerts/rank_0.jsonl"
    wait_for(lambda: len(lines(kept)) >= 2)  # tried, and tried again
    with hook_server(port) as server:
        wait_for(lambda: server.bodies)
        alerts.stop()
        assert [b["key"] for b in server.bodies] == ["loss_not_finite:rank_0"]
    told = lines(kept)
    assert [r["webhook"] == "ok" for r in told] == [False] * (len(told) - 1) + [True]


def test_a_webhook_that_hangs_does_not_hold_up_the_steps(tmp_path, monkeypatch):
    asked, over = threading.Event(), threading.Event()
    monkeypatch.setattr(
        alert_delivery, "_post", lambda *_: asked.set() or (over.wait(60) and "no answer: hung") or "waited in vain"
    )
    alerts = live(tmp_path / "run", "http://127.0.0.1:9/")
    alerts.step(NAN)
    assert asked.wait(60)
    for step in range(1000):  # all of them while the webhook holds the line
        alerts.step({"step": step, "loss": float("nan")})
    over.set()
    alerts.stop()
    assert lines(tmp_path / "run/alerts/rank_0.jsonl")[0]["webhook"] == "no answer: hung"


def test_of_many_ranks_with_the_same_trouble_one_posts(tmp_path):
    with hook_server() as server:
        ranks = [live(tmp_path / "run", server.address, rank_id=r) for r in range(4)]
        for alerts in ranks:
            alerts.step(NAN)
        wait_for(lambda: all((tmp_path / f"run/alerts/rank_{r}.jsonl").exists() for r in range(4)))
        for alerts in ranks:
            alerts.stop()
        assert len(server.bodies) == 1
    told = [lines(tmp_path / f"run/alerts/rank_{r}.jsonl")[0]["webhook"] for r in range(4)]
    assert sorted(told) == ["none", "none", "none", "ok"]


def test_an_attempt_that_starts_again_raises_again(tmp_path):
    for step in (7, 30):
        alerts = live(tmp_path / "run")
        alerts.step({**NAN, "step": step})
        alerts.stop()
    keys = [r["key"] for r in lines(tmp_path / "run/alerts/rank_0.jsonl")]
    assert keys == ["loss_not_finite:rank_0", "loss_not_finite:rank_0:30"]


def test_rules_of_the_user_and_wrong_ones(tmp_path):
    alerts = live(tmp_path / "run", when=["gradient_norm > 5"])
    alerts.step({"step": 3, "loss": 1.0, "gradient_norm": 6.0})
    alerts.stop()
    assert [r["severity"] for r in lines(tmp_path / "run/alerts/rank_0.jsonl")] == ["warning"]
    with pytest.raises(UnknownParameterError, match="no rule"):
        LiveAlerts(RunWriter(tmp_path / "run"), Alerts(when=["loss ! 3"]))
    with pytest.raises(UnknownParameterError, match="not an http"):
        LiveAlerts(RunWriter(tmp_path / "run"), Alerts(webhook="ftp://x/"))


def test_a_full_disk_does_not_end_it(tmp_path, caplog):
    (tmp_path / "run").mkdir()
    alerts = LiveAlerts(RunWriter(tmp_path / "run"), Alerts(), look_s=0.05)
    (tmp_path / "run/alerts").write_text("")  # nothing can be made below it
    alerts.start()
    alerts.step(NAN)
    alerts.stop()
    assert any("cannot be written" in r.message for r in caplog.records)


TRAINING = """
import sys
from workbench.probes import Alerts, Recorder

with Recorder(sys.argv[1], alerts=Alerts(webhook=sys.argv[2], when=["loss > 50"])) as recorder:
    for step, batch in enumerate(recorder.batches(range(30))):
        recorder.end_step(float("nan") if step >= 20 else 60.0 if step == 10 else 2.0)
"""


@pytest.mark.mindspore
def test_a_recorder_posts_while_training(tmp_path):
    pytest.importorskip("mindspore")
    with hook_server() as server:
        command = [sys.executable, "-c", TRAINING, str(tmp_path / "run"), server.address]
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        assert {(b["key"], b["severity"]) for b in server.bodies} == {
            ("loss > 50:rank_0", "warning"), ("loss_not_finite:rank_0", "critical"),
        }  # fmt: skip
    kinds = [e["kind"] for e in lines(tmp_path / "run/events/rank_0.jsonl")]
    assert kinds.count("alert") == 2
