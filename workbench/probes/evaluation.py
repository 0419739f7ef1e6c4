"""Score a network on named subsets, sample by sample, and write the run's evaluation records.

A task is given as `"package.module:function"` plus arguments, so that the command line, papermill and notebooks share
it; the function returns an `EvaluationTask`.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import mindspore as ms
import numpy as np
import pandas as pd
from mindspore import nn

from workbench.analyses.evaluation import subset_metrics
from workbench.errors import CheckpointError, UnknownParameterError
from workbench.files import RunFiles, append_json_lines, write_atomic
from workbench.probes.corpus import Sample
from workbench.probes.language_model import TokenScores
from workbench.probes.run_writer import versions
from workbench.readers.checkpoints import file_sha256
from workbench.tables import EVAL_SAMPLES


@dataclass(frozen=True, kw_only=True)
class EvaluationTask:
    """What is evaluated: a network, and samples per subset."""

    network: nn.Cell  # logits for tokens; its parameter names are those of the checkpoints
    subsets: Mapping[str, Sequence[Sample]]
    batch_size: int = 16
    description: Mapping[str, object] = field(default_factory=dict)  # goes into the protocol


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
    module, _, function = task.partition(":")
    fix = "give it as 'package.module:function', with the module importable (PYTHONPATH) where evaluation runs"
    if not function:
        raise UnknownParameterError(f"The evaluation task {task!r} names no function.", fix=fix)
    try:
        build: Callable[..., EvaluationTask] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UnknownParameterError(f"The evaluation task {task!r} cannot be loaded: {error}.", fix=fix) from error
    return build(**arguments)


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


def score(
    task: EvaluationTask,
    *,
    checkpoint: str | None,
    step: int | None,
    progress: Callable[[str, int], None] | None = None,
) -> Scored:
    """Score every sample of every subset with the network's present parameters.

    Samples are batched by shape (a graph per shape); a partial batch is filled up with its last sample, whose extra
    scores are dropped. Each shape is compiled on a batch of its own beforehand, so `seconds` holds running time only.

    Args:
        task: network and samples.
        checkpoint: file stem, for the table.
        step: training step of the parameters.
        progress: called with (subset, samples done) after each batch.
    """
    scores = TokenScores(task.network)
    scores.set_train(False)
    compile_seconds = _compile(scores, task)
    rows: list[dict[str, object]] = []
    seconds: dict[str, float] = {}
    for subset, samples in task.subsets.items():
        start = time.perf_counter()
        for batch in _batches(samples, task.batch_size):
            rows.extend(_score_batch(scores, batch, task.batch_size))
            if progress:
                progress(subset, len(batch))
        seconds[subset] = time.perf_counter() - start
    frame = pd.DataFrame(rows).assign(checkpoint=checkpoint, step=step)
    return Scored(samples=EVAL_SAMPLES.check(frame), seconds=seconds, compile_seconds=compile_seconds)


def _batches(samples: Sequence[Sample], size: int) -> Iterator[list[Sample]]:
    by_form: dict[object, list[Sample]] = {}
    for sample in samples:
        by_form.setdefault(_form(sample), []).append(sample)
    for group in by_form.values():
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _form(sample: Sample) -> object:
    """What a graph is compiled for; inputs need not be token ids, nor have a target each (a classifier's)."""
    return sample.tokens.shape, sample.tokens.dtype.str, sample.targets.shape


def _compile(scores: nn.Cell, task: EvaluationTask) -> float:
    start = time.perf_counter()
    for one in {_form(s): s for samples in task.subsets.values() for s in samples}.values():
        blanks = (np.zeros((task.batch_size, *a.shape), a.dtype) for a in (one.tokens, one.targets))
        scores(*(ms.Tensor(blank) for blank in blanks))
    return time.perf_counter() - start


def _score_batch(scores: nn.Cell, batch: Sequence[Sample], size: int) -> Iterator[dict[str, object]]:
    filled = [*batch, *[batch[-1]] * (size - len(batch))]
    targets = np.stack([s.targets for s in filled])
    loss, correct = scores(ms.Tensor(np.stack([s.tokens for s in filled])), ms.Tensor(targets))
    scored = targets >= 0
    losses = np.where(scored, loss.asnumpy().astype(np.float64), 0.0).sum(1)
    hits = (correct.asnumpy() & scored).sum(1)
    for k, sample in enumerate(batch):
        yield {
            "subset": sample.subset,
            "sample_id": sample.sample_id,
            "document_id": sample.document_id,
            "length_tokens": len(sample.tokens),
            "scored_tokens": int(scored[k].sum()),
            "scored_bytes": sample.scored_bytes,
            "loss_nats": float(losses[k]),
            "correct_tokens": int(hits[k]),
            "preview": sample.preview,
        }


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
