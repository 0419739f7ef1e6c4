"""What a user may give the Recorder, checked before the training starts: a wrong word must not cost a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import UnknownParameterError
from workbench.probes.run_writer import flatten


def evaluation_plan(evaluation: object) -> dict[str, object] | None:
    """The evaluation task as run.json keeps it.

    Raises:
        UnknownParameterError: it is not a task with arguments, or the task lives in the training script, where no other
            process can import it from.
    """
    if not evaluation:
        return None
    task = evaluation.get("task") if isinstance(evaluation, Mapping) else None
    if not isinstance(evaluation, Mapping) or not isinstance(task, str) or not all(task.partition(":")):
        raise UnknownParameterError(
            f"evaluation={evaluation!r} does not name a task.",
            fix='give {"task": "package.module:function", "arguments": {...}}',
        )
    if task.startswith("__main__"):
        raise UnknownParameterError(
            f"The evaluation task {task!r} lives in the training script itself.",
            fix="move the function to a module that another process can import, and name that module",
        )
    if not isinstance(evaluation.get("arguments") or {}, Mapping):
        raise UnknownParameterError(
            f"The arguments of the evaluation task {task!r} are not a dictionary.",
            fix="give them by the names of the function's parameters",
        )
    return dict(evaluation)


def flat_config(config: object) -> dict[str, object]:
    """The configuration in one level.

    Raises:
        UnknownParameterError: it is not a dictionary.
    """
    if not isinstance(config, Mapping):
        raise UnknownParameterError(
            f"config is a {type(config).__name__}, not a dictionary.", fix="give a dictionary, e.g. vars(arguments)"
        )
    return flatten(config)


def run_info(
    *,
    config: object,
    seeds: Mapping[str, int] | None,
    data_fingerprint: str | None,
    tags: Sequence[str],
    checkpoint_dir: str,
    evaluation: object,
    steps_total: int | None,
    weights: Mapping[str, float] | None,
) -> dict[str, object]:
    """What the user says of the run, as run.json keeps it; the intended sampling weights only where there are any.

    Raises:
        UnknownParameterError: the configuration is no dictionary, or the evaluation names no task.
    """
    info: dict[str, object] = {
        "config": flat_config(config or {}),
        "seeds": dict(seeds or {}),
        "data_fingerprint": data_fingerprint,
        "tags": list(tags),
        "checkpoint_dir": checkpoint_dir,
        "evaluation": evaluation_plan(evaluation),
        "steps_total": steps_total,
    }
    return info | ({"sampling_weights": dict(weights)} if weights else {})


def step_range(steps: object) -> tuple[int, int]:
    """First and last step of a profile window, both included.

    Raises:
        UnknownParameterError: it is not a range of steps.
    """
    first, last = steps if isinstance(steps, tuple | list) and len(steps) == 2 else (None, None)
    if not (isinstance(first, int) and isinstance(last, int) and 1 <= first <= last):
        raise UnknownParameterError(
            f"profile_steps={steps!r} is not a range of steps.", fix="give (first, last) with 1 <= first <= last"
        )
    return first, last


def batch_parts(batch: object) -> Sequence[Any]:
    """The columns of a batch, whether it is a tuple, a dictionary or the only column."""
    if isinstance(batch, Mapping):
        return list(batch.values())
    return batch if isinstance(batch, tuple | list) else (batch,)


def first_shape(batch: Sequence[Any]) -> Sequence[int]:
    """Shape of a batch's first column; empty where it has none."""
    return tuple(getattr(batch[0], "shape", ())) if batch else ()
