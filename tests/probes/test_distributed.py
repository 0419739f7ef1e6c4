"""A real two-process `msrun` job: both ranks record, and the run is one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.run import open_run

pytest.importorskip("mindspore")
pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "workbench" / "probes" / "rehearsal.py"
STEPS = 24


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    """A data-parallel rehearsal of two ranks, 24 steps, two checkpoints."""
    folder = tmp_path_factory.mktemp("msrun")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binaries = Path(sys.executable).parent
    launch = ["--worker_num=2", "--local_worker_num=2", "--master_addr=127.0.0.1", f"--master_port={port}"]
    size = ["--width", "32", "--layers", "1", "--context-length", "32", "--samples-per-subset", "16"]
    done = subprocess.run(
        [binaries / "msrun", *launch, "--log_dir=logs", "--join=True", SCRIPT, "runs/pair", "--distributed",
         "--steps", str(STEPS), "--checkpoints", "2", *size],
        cwd=folder, capture_output=True, text=True, timeout=500,
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "GLOG_v": "3"},
    )  # fmt: skip
    logs = "".join(p.read_text(errors="replace")[-1500:] for p in sorted((folder / "logs").glob("worker_*.log")))
    assert done.returncode == 0, done.stderr[-1000:] + logs
    return folder


def test_both_ranks_record_every_step_into_one_run(job: Path):
    run = open_run(job / "runs/pair", quiet=True)
    steps = run.table("training_steps")
    assert run.ranks == [0, 1]
    assert run.info["world_size"] == 2
    assert steps.groupby("rank_id").step.apply(list).to_dict() == {r: list(range(1, STEPS + 1)) for r in (0, 1)}
    by_rank = steps.pivot_table(index="step", columns="rank_id", values=["loss", "gradient_norm"])
    # each rank sees its own half of the data, and the reduced gradient is the same on both
    assert (by_rank["loss"][0] != by_rank["loss"][1]).any()
    assert by_rank["gradient_norm"][0].to_numpy() == pytest.approx(by_rank["gradient_norm"][1].to_numpy(), rel=1e-6)
    assert set(run.table("events").query("kind == 'end'").rank_id) == {0, 1}


def test_the_job_is_reported_as_one_run(job: Path):
    done = subprocess.run(
        [Path(sys.executable).with_name("workbench"), "report", "runs/pair", "--checkpoint", str(STEPS)],
        cwd=job, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folders = [p.parent for p in (job / "reports").glob("*/*/report.json")]
    assert len(folders) == 1
    assert json.loads((folders[0] / "report.json").read_text())["status"] == "complete"
    assert "2 rank(s)" in (folders[0] / "report.html").read_text()
