"""Children: what they say, how they end, and that none outlives its parent."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from workbench.processes import Owner, run_child, this_host, this_process

NAP = [sys.executable, "-c", "import time; time.sleep(60)"]
PARENT = """
import sys
from workbench.processes import run_child
child = "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); time.sleep(60)"
run_child([sys.executable, "-c", child, sys.argv[1]])
"""


def _wait_for(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def _is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _parent_and_child(tmp_path):
    note = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(note)], stderr=subprocess.DEVNULL)
    assert _wait_for(lambda: note.exists() and note.read_text().endswith("\n"))
    return parent, int(note.read_text())


def test_status_and_last_line():
    outcome = run_child([sys.executable, "-c", "import sys; sys.stderr.write('a\\rb\\nlast\\n\\n'); sys.exit(3)"])
    assert outcome.status == 3
    assert outcome.lines == ["a", "b", "last", ""]
    assert outcome.last_line == outcome.reason == "last"


def test_much_output_does_not_block_and_only_its_end_is_kept():
    outcome = run_child(
        [sys.executable, "-c", "import sys; [print('x' * 99, i, file=sys.stderr) for i in range(5000)]"]
    )
    assert outcome.status == 0
    assert len(outcome.lines) == 200
    assert outcome.last_line.endswith(" 4999")


def test_a_killed_child_says_so():
    outcome = run_child([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert outcome.status == -9
    assert outcome.reason == "It was ended by SIGKILL (out of memory?)."
    assert not outcome.out_of_space


def test_a_child_that_found_the_disk_full():
    code = "import sys; sys.exit('OSError: [Errno 28] No space left on device')"
    assert run_child([sys.executable, "-c", code]).out_of_space


def test_a_silent_failure_still_has_a_reason():
    assert run_child([sys.executable, "-c", "raise SystemExit(7)"]).reason.startswith("It ended with exit status 7")


def test_tick_is_called_while_the_child_runs():
    ticks = []
    run_child([sys.executable, "-c", "import time; time.sleep(0.5)"], tick=lambda: ticks.append(1))
    assert len(ticks) >= 3


def test_an_interrupted_parent_ends_the_child_and_what_it_started():
    before, pids = {c.pid for c in psutil.Process().children(recursive=True)}, []

    def interrupt():
        pids[:] = [c.pid for c in psutil.Process().children(recursive=True) if c.pid not in before]
        if len(pids) == 2:
            raise KeyboardInterrupt

    code = f"import subprocess; subprocess.run({NAP!r})"
    with pytest.raises(KeyboardInterrupt):
        run_child([sys.executable, "-c", code], tick=interrupt)
    assert _wait_for(lambda: not any(_is_running(p) for p in pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_child_ends_with_its_parent(tmp_path, number):
    parent, child = _parent_and_child(tmp_path)
    os.kill(parent.pid, number)
    parent.wait(timeout=20)
    assert _wait_for(lambda: not _is_running(child))


def test_a_child_of_a_thread_survives_as_long_as_the_thread():
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run_child([sys.executable, "-c", "pass"])))
    thread.start()
    thread.join()
    assert outcomes[0].status == 0


def test_owner_is_gone_only_when_that_is_certain():
    me = this_process()
    assert not me.is_gone()
    assert Owner(host=me.host, pid=me.pid, started_s=me.started_s - 3600).is_gone()  # the number was used before
    assert not Owner(host="elsewhere", pid=me.pid, started_s=0.0).is_gone()
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    started_s = psutil.Process(process.pid).create_time()
    zombie = Owner(host=this_host(), pid=process.pid, started_s=started_s)
    assert _wait_for(zombie.is_gone)  # over, although not collected yet
    process.wait()
    assert zombie.is_gone()
