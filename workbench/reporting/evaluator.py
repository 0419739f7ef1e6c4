"""How the process is called that evaluates one checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

EVALUATOR = "workbench.probes.evaluate"


def evaluator_call(
    evaluator: str, run: Path, file: Path, *, step: int | None, threads: int | None
) -> tuple[list[str], dict[str, str]]:
    """The command line, and the variables added to its environment.

    Args:
        evaluator: module that is run; one of others takes RUN, --checkpoint FILE and --step N, so threads reach it as
            OMP_NUM_THREADS alone.
        run: run directory.
        file: checkpoint.
        step: training step of the checkpoint, where it is known.
        threads: most threads of an operator on CPU; None leaves it to the evaluator (ours: half of the cores).
    """
    words = [sys.executable, "-m", evaluator, str(run.resolve()), "--checkpoint", str(file)]
    words += [] if step is None else ["--step", str(step)]
    if threads is None:
        return words, {}
    words += ["--threads", str(threads)] if evaluator == EVALUATOR else []
    return words, {"OMP_NUM_THREADS": str(threads)}
