"""Claims: one holder at a time, a dead one's work is taken over, a live one's never within its lease."""

import errno
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from workbench.reporting import claims
from workbench.reporting.claims import KEPT_S, LEASE_S, clean_claims, take_claim

HOLD = """
import sys, time
from pathlib import Path
from workbench.reporting.claims import take_claim
assert take_claim(Path(sys.argv[1]), "c") is not None
print("held", flush=True)
time.sleep(60)
"""


def _age(path: Path, seconds: float) -> None:
    stat = path.stat()
    os.utime(path, (stat.st_atime, stat.st_mtime - seconds))


def _foreign_claim(folder: Path, name: str = "c") -> Path:
    """A claim of another host, whose processes cannot be asked."""
    folder.mkdir(exist_ok=True)
    record = {"token": "t", "host": "elsewhere", "pid": os.getpid(), "started_s": 0.0}
    (folder / name).write_bytes(msgspec.json.encode(record))
    return folder / name


def test_a_claim_is_held_once_and_can_be_taken_after_release(tmp_path):
    claim = take_claim(tmp_path, "c")
    assert claim is not None
    assert take_claim(tmp_path, "c") is None
    assert take_claim(tmp_path, "other") is not None
    claim.release()
    assert take_claim(tmp_path, "c") is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "other"]


def _take_all(folder: Path, names: list[str], start, won) -> None:
    start.wait()
    won.put([n for n in names if take_claim(folder, n) is not None])
    start.wait()  # all live until all have tried: the claims of a process that ended may be taken over


def test_of_many_processes_one_wins_each_claim(tmp_path):
    context = multiprocessing.get_context("spawn")
    names, workers = [f"c{i}" for i in range(40)], 4
    start, won = context.Barrier(workers), context.Queue()
    processes = [context.Process(target=_take_all, args=(tmp_path, names, start, won)) for _ in range(workers)]
    for process in processes:
        process.start()
    winners = [name for _ in range(workers) for name in won.get(timeout=60)]
    for process in processes:
        process.join(timeout=60)
    assert sorted(winners) == sorted(names)


def test_the_claim_of_a_killed_process_is_taken_over_at_once(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    assert take_claim(tmp_path, "c") is None
    holder.kill()
    holder.wait()
    assert take_claim(tmp_path, "c") is not None


def test_of_many_that_see_a_stale_claim_one_takes_it_over(tmp_path):
    for _ in range(30):
        path = _foreign_claim(tmp_path)
        _age(path, LEASE_S + 1)
        barrier, won = threading.Barrier(8), []

        def take(barrier=barrier, won=won):
            barrier.wait()
            if (claim := take_claim(tmp_path, "c")) is not None:
                won.append(claim)

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert msgspec.json.decode(path.read_bytes())["token"] == won[0].token
        won[0].release()
        clean_claims(tmp_path, older_than_s=-1)
        assert list(tmp_path.iterdir()) == []


def test_the_claim_of_another_host_lasts_as_long_as_it_is_touched(tmp_path):
    path = _foreign_claim(tmp_path)
    _age(path, LEASE_S - 5)
    assert take_claim(tmp_path, "c") is None
    _age(path, 10)
    assert take_claim(tmp_path, "c") is not None


def test_heartbeat_touches_the_claim(tmp_path, monkeypatch):
    claim = take_claim(tmp_path, "c")
    _age(claim.path, 1000)
    claim.heartbeat()  # too early after the last one: nothing is written
    assert claim.path.stat().st_mtime < tmp_path.stat().st_mtime - 900
    monkeypatch.setattr(claims, "HEARTBEAT_S", 0.0)
    claim.heartbeat()
    assert claim.path.stat().st_mtime > tmp_path.stat().st_mtime - 5
    claim.path.unlink()
    claim.heartbeat()  # taken over and finished meanwhile


def test_a_number_that_another_process_has_now_is_not_the_holder(tmp_path):
    claim = take_claim(tmp_path, "c")
    record = msgspec.json.decode(claim.path.read_bytes())
    claim.path.write_bytes(msgspec.json.encode({**record, "started_s": record["started_s"] - 3600}))
    assert take_claim(tmp_path, "c") is not None


def test_an_empty_claim_left_by_a_kill_is_taken_after_the_lease(tmp_path):
    (tmp_path / "c").touch()
    assert take_claim(tmp_path, "c") is None
    _age(tmp_path / "c", LEASE_S + 1)
    assert take_claim(tmp_path, "c") is not None


def test_release_leaves_the_claim_of_the_process_that_took_over(tmp_path):
    mine = take_claim(tmp_path, "c")
    _foreign_claim(tmp_path)
    mine.release()
    assert (tmp_path / "c").exists()


def test_a_successor_that_died_before_it_took_over_is_succeeded(tmp_path):
    path = _foreign_claim(tmp_path)  # its token is t
    _age(path, LEASE_S + 1)
    successor = {"token": "u", "host": "elsewhere too", "pid": 1, "started_s": 0.0}
    (tmp_path / ".t.next").write_bytes(msgspec.json.encode(successor))
    assert take_claim(tmp_path, "c") is None  # it may be about to take over
    _age(tmp_path / ".t.next", LEASE_S + 1)
    claim = take_claim(tmp_path, "c")
    assert claim is not None
    assert msgspec.json.decode(path.read_bytes())["token"] == claim.token


def test_a_claim_that_was_read_long_ago_cannot_be_succeeded_again(tmp_path):
    path = _foreign_claim(tmp_path)
    _age(path, LEASE_S + 1)
    take_claim(tmp_path, "c").release()
    _age(_foreign_claim(tmp_path), LEASE_S + 1)  # what the late process still sees: the stale claim with token t
    assert take_claim(tmp_path, "c") is None


def test_storage_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_paths):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "link", refuse)
    claim = take_claim(tmp_path, "c")
    assert claim is not None
    assert take_claim(tmp_path, "c") is None
    claim.release()
    assert take_claim(tmp_path, "c") is not None


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        take_claim(tmp_path, "c")
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_kills_are_cleaned(tmp_path):
    for name in (".abc.tmp", ".abc.next", ".new.tmp"):
        (tmp_path / name).touch()
    _age(tmp_path / ".abc.tmp", KEPT_S + 1)
    _age(tmp_path / ".abc.next", KEPT_S + 1)
    claim = take_claim(tmp_path, "c")
    clean_claims(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".new.tmp", "c"]
    claim.release()
