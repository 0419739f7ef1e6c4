"""The rehearsal: the whole chain on a small model before the big run.

Train, record, profile, evaluate inline; report each checkpoint while the training goes on; fire a test alert; diagnose.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from tqdm.auto import tqdm

from workbench.alert_delivery import AlertRecord
from workbench.errors import MissingExtraError, UnknownParameterError, WorkbenchError
from workbench.files import RunFiles, count_lines
from workbench.findings.diagnosis import Diagnosis, diagnose
from workbench.processes import die_with_parent
from workbench.reporting.alerts import send_test_alert
from workbench.reporting.archive import ReportRecord
from workbench.reporting.watch import WatchOptions, watch
from workbench.run import open_run

START_TIMEOUT_S = 120.0
POLL_S = 0.5
LOG_EVERY_S = 20.0  # a progress line in a log file; on a terminal it is always up to date
TAIL_LINES = 15


def free_run_dir(wanted: Path) -> Path:
    """`wanted`, or `wanted-2`, `-3` ... where it holds something: a rehearsal never writes into another run."""
    number = 1
    candidate = wanted
    while candidate.exists() and any(candidate.iterdir()):
        number += 1
        candidate = wanted.with_name(f"{wanted.name}-{number}")
    return candidate


def rehearse(
    run_dir: Path, reports_root: Path, options: WatchOptions, *, steps: int, words: Sequence[str] = ()
) -> tuple[list[ReportRecord], AlertRecord, Diagnosis]:
    """Run the whole chain; the records of the reports, the test alert, and what was found.

    Args:
        run_dir: empty or new directory of the run.
        reports_root: folder of all reports.
        options: of the watching; progress goes to `options.say`.
        steps: training steps.
        words: further arguments of `workbench.probes.rehearsal`.

    Raises:
        MissingExtraError: MindSpore is not installed.
        UnknownParameterError: `run_dir` holds something.
        WorkbenchError: the training failed; the message ends with the last lines that it wrote.
    """
    if find_spec("mindspore") is None:
        raise MissingExtraError(
            "A rehearsal trains with MindSpore, which is not installed.",
            fix="pip install 'mindspore-workbench[mindspore]'",
        )
    if run_dir.exists() and any(run_dir.iterdir()):
        raise UnknownParameterError(f"{run_dir} is not empty.", fix="name a new directory")
    run_dir.mkdir(parents=True, exist_ok=True)
    log = RunFiles(run_dir).cache / "training.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, _training(run_dir, steps, words, output) as process:
        _await_start(run_dir, process, log)
        with _progress(run_dir, steps) as show:
            say: Callable[[str], None] = functools.partial(tqdm.write, file=sys.stdout)
            reports = watch(run_dir, reports_root, replace(options, show=show, say=say), until_done=True)
        if process.wait() != 0:
            raise _failed(process.returncode, log)
    alert = send_test_alert(reports, webhook=options.webhook)
    return reports.records(), alert, diagnose(open_run(run_dir, quiet=True))


@contextmanager
def _training(run_dir: Path, steps: int, words: Sequence[str], output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The training process; it ends with this one."""
    command = [sys.executable, "-m", "workbench.probes.rehearsal", str(run_dir), "--steps", str(steps), *words]
    environment = {"GLOG_v": "3", **os.environ}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        preexec_fn=functools.partial(die_with_parent, os.getpid()),
        start_new_session=True,  # Ctrl-C reaches it through this process only
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _await_start(run_dir: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the run describes itself: preparing the data and importing MindSpore take some seconds."""
    deadline = time.monotonic() + START_TIMEOUT_S
    with tqdm(desc="preparing the data", bar_format="{desc} {elapsed}", mininterval=_interval_s()) as bar:
        while not RunFiles(run_dir).run_json.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise _failed(process.poll(), log)
            time.sleep(POLL_S)
            bar.update()


def _failed(status: int | None, log: Path) -> WorkbenchError:
    tail = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    how = f"ended with exit status {status}" if status is not None else "did not start in time"
    return WorkbenchError(
        f"The training {how}. Its last lines:\n  " + "\n  ".join(tail), fix=f"read {log}, mend the cause, call again"
    )


@contextmanager
def _progress(run_dir: Path, steps: int) -> Iterator[Callable[[str], None]]:
    """A bar of the training's steps with what the watching does beside it; gives the function that says so."""
    done = threading.Event()
    with tqdm(
        total=steps, desc="training", unit="step", dynamic_ncols=True, mininterval=_interval_s(), miniters=0
    ) as bar:

        def follow() -> None:
            while not done.wait(POLL_S):
                bar.update(count_lines(RunFiles(run_dir).metrics(0)) - bar.n)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield lambda text: bar.set_postfix_str(text[:70], refresh=False)
        finally:
            done.set()
            thread.join()
            bar.update(count_lines(RunFiles(run_dir).metrics(0)) - bar.n)


def _interval_s() -> float:
    return POLL_S if sys.stderr.isatty() else LOG_EVERY_S
