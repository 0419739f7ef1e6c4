"""Score a network on named subsets, sample by sample, and write the run's evaluation records.

A task is given as `"package.module:function"` plus arguments, so that the command line, papermill and notebooks share
it; the function returns an `EvaluationTask`.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pandas as pd
from mindspore import nn

from workbench.analyses.evaluation import subset_metrics
from workbench.errors import CheckpointError, UnknownParameterError
from workbench.files import RunFiles, append_json_lines, write_atomic
from workbench.probes.corpus import Sample
from workbench.probes.export import load_mindir
from workbench.probes.language_model import TokenScores
from workbench.probes.run_writer import versions
from workbench.probes.scoring import MakeScores, Progress, Scorer
from workbench.readers.checkpoints import file_sha256
from workbench.tables import EVAL_SAMPLES


@dataclass(frozen=True, kw_only=True)
class EvaluationTask:
    """What is evaluated: a network, and samples per subset."""

    network: nn.Cell  # logits for tokens; its parameter names are those of the checkpoints; or a loaded MindIR
    subsets: Mapping[str, Sequence[Sample]]
    batch_size: int = 16
    buckets: Sequence[int] = ()  # lengths to pad to; none: a graph per shape
    pad_token: int = 0
    scores: MakeScores = TokenScores  # network -> cell that gives loss and hit per target
    description: Mapping[str, object] = field(default_factory=dict)  # goes into the protocol

    def scorer(self) -> Scorer:
        """Keep it to score again without compiling again."""
        return Scorer(
            self.network,
            batch_size=self.batch_size,
            buckets=self.buckets,
            pad_token=self.pad_token,
            scores=self.scores,
        )


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of one model state."""

    samples: pd.DataFrame  # table eval_samples
    seconds: Mapping[str, float]  # per subset, compilation apart
    compile_seconds: float


def load_task(task: str, arguments: Mapping[str, object]) -> EvaluationTask:
    """Call the function that `task` names.

    Raises:
        UnknownParameterError: the text has not the form `package.module:function`, or there is no such function.
    """
    return load_function(task, "evaluation task")(**arguments)


def task_of_parts(
    *,
    model: str,
    data: str,
    model_arguments: Mapping[str, object] | None = None,
    data_arguments: Mapping[str, object] | None = None,
    scores: str | None = None,
    batch_size: int = 16,
    buckets: Sequence[int] = (),
    pad_token: int = 0,
) -> EvaluationTask:
    """A task from a model builder, data and a per-sample scorer that are named one by one.

    Args:
        model: function that returns the network.
        data: function that returns {subset: samples}.
        model_arguments: of `model`.
        data_arguments: of `data`.
        scores: function network -> cell that gives loss and hit per target; `TokenScores` by default.
        batch_size: see `EvaluationTask`, as the next two.
        buckets: lengths to pad to.
        pad_token: token to pad with.
    """
    return EvaluationTask(
        network=load_function(model, "model")(**(model_arguments or {})),
        subsets=load_function(data, "data")(**(data_arguments or {})),
        batch_size=batch_size,
        buckets=tuple(buckets),
        pad_token=pad_token,
        scores=load_function(scores, "scorer") if scores else TokenScores,
        description={"model": model, "data": data, "scores": scores},
    )


def load_function(name: str, what: str) -> Callable[..., Any]:
    """The function that `name` ("package.module:function") names.

    Raises:
        UnknownParameterError: the text has not that form, or there is no such function.
    """
    module, _, function = name.partition(":")
    fix = "give it as 'package.module:function', with the module importable (PYTHONPATH) where evaluation runs"
    if not function:
        raise UnknownParameterError(f"The {what} {name!r} names no function.", fix=fix)
    try:
        found: Callable[..., Any] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UnknownParameterError(f"The {what} {name!r} cannot be loaded: {error}.", fix=fix) from error
    return found


def load_checkpoint(network: nn.Cell, file: Path) -> int:
    """Load `file` into `network`; return how many parameters it had beyond those of the network.

    Raises:
        CheckpointError: it cannot be read, or lacks a parameter of the network: damaged, cut, or of another model.
    """
    form = "safetensors" if file.suffix == ".safetensors" else "ckpt"
    try:
        parameters = ms.load_checkpoint(str(file), format=form)
    except (ValueError, RuntimeError, TypeError, KeyError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{file.name} cannot be read ({reason}).", fix="save it again; older checkpoints are evaluated as usual"
        ) from error
    own = {p.name: p for p in network.get_parameters()}
    if missing := sorted(set(own) - set(parameters)):
        raise CheckpointError(
            f"{file.name} lacks {len(missing)} of the network's {len(own)} parameters ({', '.join(missing[:3])} ...): "
            "it is cut, or belongs to another model.",
            fix="save it again, or give the evaluation task of the model that it belongs to",
        )
    if odd := [n for n, p in own.items() if tuple(parameters[n].shape) != tuple(p.shape)]:
        raise CheckpointError(
            f"{file.name} has other shapes than the network for {', '.join(odd[:3])}.",
            fix="give the evaluation task of the model that it belongs to",
        )
    ms.load_param_into_net(network, {n: parameters[n] for n in own})
    return len(parameters) - len(own)


def with_parameters(task: EvaluationTask, file: Path) -> EvaluationTask:
    """The task with the parameters of `file`: a checkpoint (ckpt, safetensors) of its network, or an exported MindIR.

    A MindIR takes the network's place: its weights are in the file.

    Raises:
        CheckpointError: it cannot be read, or does not fit the network.
    """
    if file.suffix == ".mindir":
        return replace(task, network=load_mindir(file))
    load_checkpoint(task.network, file)
    return task


def score(
    task: EvaluationTask,
    *,
    checkpoint: str | None,
    step: int | None,
    progress: Progress | None = None,
    scorer: Scorer | None = None,
) -> Scored:
    """Score every sample of every subset with the network's present parameters.

    Samples are batched by shape (a graph per shape). Each shape is compiled on a batch of its own beforehand, so
    `seconds` holds running time only.

    Args:
        task: network and samples.
        checkpoint: file stem, for the table.
        step: training step of the parameters.
        progress: called with (subset, samples done) after each batch.
        scorer: one that has compiled already; its network must be the task's.
    """
    scorer = scorer or task.scorer()
    compile_seconds = scorer.compile([s for samples in task.subsets.values() for s in samples])
    rows: list[dict[str, object]] = []
    seconds: dict[str, float] = {}
    for subset, samples in task.subsets.items():
        start = time.perf_counter()
        rows.extend(scorer.score(samples, progress=progress))
        seconds[subset] = time.perf_counter() - start
    frame = pd.DataFrame(rows).assign(checkpoint=checkpoint, step=step)
    return Scored(samples=EVAL_SAMPLES.check(frame), seconds=seconds, compile_seconds=compile_seconds)


def write_evaluation(files: RunFiles, kind: str, scored: Scored, protocol: Mapping[str, object]) -> str:
    """Write per-sample scores, then append the metrics to `evals/<kind>.jsonl`; return the evaluation's id.

    The samples are complete on disk before the first metric line is, and the lines are appended in one write.
    """
    evaluation_id = uuid.uuid4().hex[:12]
    first = scored.samples.iloc[0]
    name = first.checkpoint if pd.notna(first.checkpoint) else f"step_{int(first.step)}"
    write_atomic(files.eval_samples / f"{kind}__{name}.parquet", scored.samples.to_parquet(index=False))
    metrics = subset_metrics(scored.samples)
    shared = {"evaluation_id": evaluation_id, "time_ns": time.time_ns(), "protocol": dict(protocol)}
    records = [
        {**_without_missing(row), "seconds": scored.seconds.get(str(row["subset"])), **shared}
        for row in metrics.to_dict("records")
    ]
    append_json_lines(files.evals / f"{kind}.jsonl", records)
    return evaluation_id


def _without_missing(row: Mapping[str, object]) -> dict[str, object]:
    return {str(k): _plain(v) for k, v in row.items() if not pd.isna(v)}


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def protocol_of(
    task: EvaluationTask, *, file: Path | None, scored: Scored, dataset_rebuilt: bool, graph_rebuilt: bool
) -> dict[str, object]:
    """Which steps of a full evaluation were done, and with what."""
    return {
        "dataset_rebuilt": dataset_rebuilt,
        "graph_rebuilt": graph_rebuilt,
        "checkpoint_loaded": file is not None,
        "checkpoint_sha256": file_sha256(file) if file else None,
        "profiling": False,
        "compile_seconds": scored.compile_seconds,
        "process_id": os.getpid(),
        "versions": versions(),
        "task": dict(task.description),
    }
