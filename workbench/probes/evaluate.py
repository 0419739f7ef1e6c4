"""Evaluate one checkpoint in a process of its own: `python -m workbench.probes.evaluate RUN --checkpoint FILE`.

Runs at low priority and on half of the cores, so that a training on the same machine goes first. Exit status: 0 the
evaluation is in the run's `evals/checkpoint.jsonl` and `eval_samples/`; 3 the checkpoint is damaged or does not fit
(the last line of stderr says why); 2 another problem that the user can fix (the last line says which).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.errors import CheckpointError, MissingTableError, WorkbenchError, missing_mindspore
from workbench.files import RunFiles
from workbench.readers.run_directory import read_run_info

EXIT_DAMAGED = 3
EXIT_PROBLEM = 2
LOW_PRIORITY = 10


def evaluate_checkpoint(
    run_dir: Path, checkpoint: Path, *, step: int | None, task: str | None = None, threads: int | None = None
) -> str:
    """Evaluate `checkpoint` with the run's task on every subset and record it; return the evaluation's id.

    Args:
        run_dir: the run.
        checkpoint: file.
        step: training step of the checkpoint.
        task: package.module:function; by default what run.json names.
        threads: most threads of an operator on CPU; by default MindSpore's own.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit the network.
        MissingExtraError: MindSpore is not installed.
        MissingTableError: the run names no evaluation task and none is given.
    """
    if find_spec("mindspore") is None:
        raise missing_mindspore("Evaluating a checkpoint")
    import mindspore as ms
    from tqdm.auto import tqdm

    from workbench.probes import evaluation

    started_ns = time.time_ns()
    files = RunFiles(run_dir)
    info = read_run_info(files.run_json)
    plan: dict[str, Any] = dict(info.get("evaluation") or {})
    name = task or plan.get("task")
    if not name:
        raise MissingTableError(
            f"{files.run_json} names no evaluation task.",
            fix="give Recorder(evaluation={'task': 'package.module:function', 'arguments': {...}}), or --task",
        )
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU" if info.get("device_target") == "CPU" else str(info.get("device_target", "CPU")))
    if threads is not None and ms.get_context("device_target") == "CPU":
        ms.device_context.cpu.op_tuning.threads_num(threads)
    built = evaluation.load_task(str(name), plan.get("arguments") or {})
    built = evaluation.with_parameters(built, checkpoint)
    total = sum(len(samples) for samples in built.subsets.values())
    with tqdm(total=total, desc=f"evaluating {checkpoint.name}", unit="sample") as bar:
        scored = evaluation.score(
            built, checkpoint=checkpoint.stem, step=step, progress=lambda _subset, done: bar.update(done)
        )
    protocol = evaluation.protocol_of(built, file=checkpoint, scored=scored, dataset_rebuilt=True, graph_rebuilt=True)
    protocol |= {"started_ns": started_ns, "threads": threads, "niceness": os.nice(0), "seeds": info.get("seeds") or {}}
    return evaluation.write_evaluation(files, "checkpoint", scored, protocol)


def evaluate_dimensions(
    run_dir: Path,
    checkpoint: Path,
    *,
    step: int | None,
    task: str | None,
    dimensions: Sequence[str],
    use_mindir: bool = True,
) -> dict[str, Any]:
    """Evaluate `checkpoint` with the run's post-training task in a scratch directory; return the record.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit the network.
        MissingExtraError: MindSpore is not installed.
        MissingTableError: the run names no post-training task and none is given.
        UnknownParameterError: there is no such dimension.
    """
    import mindspore as ms

    from workbench.probes import evaluation
    from workbench.probes.post_training import evaluate_post_training

    info = read_run_info(RunFiles(run_dir).run_json)
    plan: dict[str, Any] = dict(info.get("evaluation") or {})
    name = task or plan.get("post_training")
    if not name:
        raise MissingTableError(
            f"{RunFiles(run_dir).run_json} names no post-training task.",
            fix="give Recorder(evaluation={..., 'post_training': 'package.module:function'}), or --task; "
            "docs/post_training.md says what it returns",
        )
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(str(info.get("device_target") or "CPU"))
    built = evaluation.load_function(str(name), "post-training task")(**(plan.get("arguments") or {}))
    here = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="workbench_post_training_") as scratch:
        os.chdir(scratch)  # MindSpore leaves compiler output in the working directory
        try:
            return evaluate_post_training(
                run_dir, checkpoint, built, step=step, dimensions=dimensions, use_mindir=use_mindir
            )
        finally:
            os.chdir(here)


def import_from_here() -> None:
    """Let tasks of modules in the present working directory be imported, also after a change of directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(1, os.getcwd())


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the evaluator process."""
    parser = argparse.ArgumentParser(description="Evaluate one checkpoint of a run on every subset.")
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint file")
    parser.add_argument("--step", type=int, help="training step of the checkpoint")
    parser.add_argument("--task", help="package.module:function; default: what run.json names")
    parser.add_argument("--nice", type=int, default=LOW_PRIORITY, help="added to the process's niceness (default 10)")
    half = max((os.cpu_count() or 2) // 2, 1)
    parser.add_argument("--threads", type=int, help=f"most threads on CPU (default: half of the cores, {half} here)")
    arguments = parser.parse_args(argv)
    run_dir, checkpoint = arguments.run.absolute(), arguments.checkpoint.absolute()
    os.nice(arguments.nice)
    threads = half if arguments.threads is None else max(arguments.threads, 1)
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("GLOG_v", "3")
    import_from_here()
    with tempfile.TemporaryDirectory(prefix="workbench_evaluate_") as scratch:
        os.chdir(scratch)  # MindSpore leaves compiler output in the working directory
        try:
            evaluate_checkpoint(run_dir, checkpoint, step=arguments.step, task=arguments.task, threads=threads)
        except CheckpointError as error:
            print(" ".join(str(error).split()), file=sys.stderr)
            return EXIT_DAMAGED
        except WorkbenchError as error:
            print(" ".join(str(error).split()), file=sys.stderr)
            return EXIT_PROBLEM
        finally:
            os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
