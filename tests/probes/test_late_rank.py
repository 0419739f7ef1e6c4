"""A real two-process `msrun` job in which the input of one rank sleeps: that rank is named, and the other waits."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.analyses.device_steps import PARTS, device_steps
from workbench.analyses.trace_steps import device_tables
from workbench.findings.cluster import TABLES
from workbench.findings.diagnosis import diagnose
from workbench.findings.rule_tables import run_tables
from workbench.run import Run, open_run

pytest.importorskip("mindspore")
pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

SCRIPT = Path(__file__).parent / "late_rank_training.py"
LATE_RANK, SLEEP_US = 1, 150_000  # longer than a step on a busy machine, or the queue would hide it


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Run:
    """Data parallel on the CPU, 30 steps, steps 10 to 21 profiled; rank 1 sleeps 150 ms before each of its batches."""
    folder = tmp_path_factory.mktemp("late_rank")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binaries = Path(sys.executable).parent
    launch = ["--worker_num=2", "--local_worker_num=2", "--master_addr=127.0.0.1", f"--master_port={port}"]
    paths = os.pathsep.join([str(SCRIPT.parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [binaries / "msrun", *launch, "--log_dir=logs", "--join=True", SCRIPT, "runs/late",
         "--late-rank", str(LATE_RANK), "--sleep-ms", str(SLEEP_US / 1e3)],
        cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths, "GLOG_v": "3"},
    )  # fmt: skip
    logs = "".join(p.read_text(errors="replace")[-1500:] for p in sorted((folder / "logs").glob("worker_*.log")))
    assert done.returncode == 0, done.stderr[-1000:] + logs
    return open_run(folder / "runs/late", quiet=True)


def test_the_rank_whose_input_sleeps_is_named_with_both_kinds_of_evidence(job: Run):
    first = diagnose(job).causes[0]
    assert (first.cause, first.sub_cause, first.culprit.rank) == ("data_starved", "one_rank", LATE_RANK)
    assert first.severity in ("warning", "critical")
    facts = {e.fact: e for e in first.evidence}
    assert facts["data_wait above the peers'"].value > 0.3 * SLEEP_US  # profile; the queue hides some of the sleep
    assert facts["median data_wait_us"].where == f"rank {LATE_RANK}"  # Recorder
    assert facts["longest wait of another rank for a late one"].where == "rank 0"


def test_the_wait_is_seen_on_the_other_rank(job: Run):
    steps = device_steps(**device_tables(run_tables(job, TABLES)))
    assert steps.groupby("rank_id")["step"].apply(list).to_dict() == {r: list(range(10, 22)) for r in (0, 1)}
    assert steps[list(PARTS)].sum(axis=1).tolist() == pytest.approx(steps["wall_us"].tolist(), rel=1e-3)
    typical = steps.groupby("rank_id")[["late_rank_us", "data_wait_us", "computing_us"]].median()
    assert typical.loc[0, "late_rank_us"] > 0.3 * SLEEP_US > typical.loc[1, "late_rank_us"]
    assert typical.loc[1, "data_wait_us"] > 0.3 * SLEEP_US > typical.loc[0, "data_wait_us"]
    recorded = job.table("training_steps").groupby("rank_id")["data_wait_us"].median()
    assert typical.loc[1, "data_wait_us"] == pytest.approx(recorded[1], rel=0.3)
