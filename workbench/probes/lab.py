"""The fault lab: real MindSpore trainings with one known fault, to prove a diagnosis on.

    python -m workbench.probes.lab runs/lab --fault lr_too_high --seed 1

Each takes some ten to forty seconds on two free cores, `recompile` and `small_ops` a minute or two.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tqdm.auto import tqdm

from workbench.errors import TrainingFailedError, UnknownParameterError, WorkbenchError, missing_mindspore
from workbench.files import RunFiles, count_lines
from workbench.processes import run_child

EXIT_PROBLEM = 2
EXIT_INTERRUPTED = 130
try:
    import mindspore as ms

    from workbench.probes.lab_faults import FAULTS, HEALTHY, Planned, planned
    from workbench.probes.lab_training import train
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "mindspore":
        raise
    if __name__ == "__main__":  # called as a program: no traceback for what the user can mend
        print(missing_mindspore("The fault lab"), file=sys.stderr)
        sys.exit(EXIT_PROBLEM)
    raise missing_mindspore("The fault lab") from missing

__all__ = ["FAULTS", "HEALTHY", "Planned", "lab_directory", "main", "planned", "run_lab"]

TRAIN_HERE = "--train-here"  # how `run_lab` starts each process of the training


def lab_directory(folder: str | os.PathLike[str] | None, fault: str, seed: int) -> Path:
    """Where a run of the lab goes: below `folder`, or below a new temporary directory."""
    return Path(folder or tempfile.mkdtemp()) / f"{fault}_{seed}"


def run_lab(run_dir: Path, fault: str, *, seed: int = 1, show_progress: bool = True) -> Planned:
    """Train in a process of its own (several with msrun where the fault needs them), recorded into `run_dir`.

    An interruption ends the training, too.

    Returns:
        What was planned: the truth that a diagnosis of the run is compared with.

    Raises:
        UnknownParameterError: there is no such fault, or the directory is not empty.
        TrainingFailedError: the training failed.
    """
    plan = planned(fault, seed)
    if run_dir.exists() and any(run_dir.iterdir()):
        raise UnknownParameterError(f"{run_dir} is not empty.", fix="name a new directory")
    ranks = FAULTS[fault].ranks if fault in FAULTS else 1
    words = [str(run_dir.absolute()), "--fault", fault, "--seed", str(seed)]
    command = [sys.executable, "-m", "workbench.probes.lab", *words, TRAIN_HERE]
    if ranks > 1:
        command = [*_msrun(ranks, RunFiles(run_dir.absolute()).cache / "msrun"), __file__, *words, TRAIN_HERE]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # msrun starts `python`
    steps = RunFiles(run_dir).metrics(0)
    with tqdm(total=plan.training.steps, desc=fault, unit="step", disable=not show_progress) as bar:
        done = run_child(command, tick=lambda: bar.update(count_lines(steps) - bar.n), environment={"PATH": path})
    if done.status:
        raise TrainingFailedError(
            f"The training of {fault!r} failed: {done.reason}",
            fix="run `" + " ".join(["python -m workbench.probes.lab", *words]) + "` and read its output",
        )
    return plan


def _msrun(ranks: int, logs: Path) -> list[str]:
    """Start of a command that runs a script on `ranks` local processes."""
    logs.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    msrun = Path(sys.executable).with_name("msrun")
    place = [f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--master_addr=127.0.0.1"]
    return [str(msrun), *place, f"--master_port={port}", f"--log_dir={logs}", "--join=True"]


def main(argv: Sequence[str] | None = None) -> int:
    """Train with the fault, in processes of their own, and say where the run is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory to write")
    parser.add_argument("--fault", required=True, choices=[*FAULTS, *HEALTHY])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(TRAIN_HERE, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.train_here:
        _train_here(arguments.run.absolute(), arguments.fault, arguments.seed)
        return 0
    try:
        run_lab(arguments.run, arguments.fault, seed=arguments.seed)
    except WorkbenchError as error:
        print(error, file=sys.stderr)
        return EXIT_PROBLEM
    except KeyboardInterrupt:
        print("Interrupted: the training was ended; what it had recorded is kept.", file=sys.stderr)
        return EXIT_INTERRUPTED
    print(f"Run: {arguments.run}\nDiagnosis: workbench diagnose {arguments.run}")
    return 0


def _train_here(run_dir: Path, fault: str, seed: int) -> None:
    """The training, as one process of the job."""
    work_dir = RunFiles(run_dir).cache / f"compiler_{os.environ.get('RANK_ID', '0')}"
    work_dir.mkdir(parents=True, exist_ok=True)
    os.chdir(work_dir)  # MindSpore leaves compiler output in the working directory
    ms.set_device("CPU")
    if "MS_WORKER_NUM" in os.environ:  # set by msrun
        ms.communication.init()
        ms.set_auto_parallel_context(
            parallel_mode="data_parallel", gradients_mean=True, device_num=ms.communication.get_group_size()
        )
    train(run_dir, planned(fault, seed).training)


if __name__ == "__main__":
    sys.exit(main())
