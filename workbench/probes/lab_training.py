"""A small real training whose mistakes are switches: what the fault lab runs.

It writes an ordinary run directory. Its run.json holds what a user would have written down (sizes, planned schedule,
clipping), never which switch is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train import Callback, Model

from workbench.probes.corpus import Document, fingerprint, held_out_samples, load_documents
from workbench.probes.evaluation import EvaluationTask
from workbench.probes.inline_evaluation import InlineEval
from workbench.probes.lab_callbacks import BusyEvaluation, GrowingHost, SleepBeforeStep, SlowStorage
from workbench.probes.lab_data import EVEN, SUBSETS, LabData, lab_pipeline, lab_samples, unshifted, write_lab_data
from workbench.probes.lab_steps import AccumulatedLoss, HalfPrecisionLogits, PlannedRate, ScaledStep, TinyOperators
from workbench.probes.language_model import PAD, ByteTransformer, ModelConfig, NextTokenLoss, adamw
from workbench.probes.recorder import Recorder, job_place
from workbench.probes.sample_columns import FirstInputs, SampleColumns
from workbench.probes.train_step import RecordedStep

TEXT_BYTES = 150_000
INLINE_SAMPLES = 8  # per subset


@dataclass(frozen=True, kw_only=True)
class LabTraining:
    """Everything that decides a training of the lab. The defaults are healthy and take some ten seconds."""

    steps: int = 240
    batch_size: int = 8
    model: ModelConfig = field(default_factory=lambda: ModelConfig(width=32, layers=2, heads=2, context_length=64))
    optimizer: str = "adamw"  # or "momentum"
    beta2: float = 0.95  # of adamw
    epsilon: float = 1e-8  # of adamw
    peak_learning_rate: float = 4e-3
    warmup_steps: int = 24
    clip_norm: float | None = 1.0
    accumulation_steps: int = 1
    inline_every: int = 0
    inline_controlled: bool = True  # within the budget; else whatever it costs
    profile_steps: tuple[int, int] | None = None
    seed: int = 1
    # what can be wrong
    schedule_speed: int = 1  # schedule steps per training step
    restart_at: int = 0  # step at which a resume forgets schedule and optimizer state
    sums_loss: bool = False  # over the accumulated micro-batches, instead of averaging
    loss_scale: tuple[float, int] | None = None  # start, and good steps before it doubles; half-precision gradients
    data: LabData = field(default_factory=LabData)
    slow_rank: tuple[int, float] | None = None  # rank, ms that it sleeps before each step
    tiny_operators: int = 0
    host_bytes_per_step: int = 0  # kept for ever
    host_us_per_step: float = 0.0  # more host work in each step than in the one before
    save_every: int = 0
    save_stall_ms: float = 0.0
    busy_evaluation: tuple[int, float, int] | None = None  # every steps; seconds and number of processes beside it


def recorded_config(training: LabTraining) -> dict[str, object]:
    """What run.json says about the training: plan and sizes, as a user would write them down."""
    return {
        "model": {
            "width": training.model.width,
            "layers": training.model.layers,
            "heads": training.model.heads,
            "context_length": training.model.context_length,
            "vocabulary_size": training.model.vocabulary_size,
        },
        "batch_size": training.batch_size,
        "optimizer": training.optimizer,
        **({"beta2": training.beta2, "epsilon": training.epsilon} if training.optimizer == "adamw" else {}),
        "schedule": "linear",
        "peak_learning_rate": training.peak_learning_rate,
        "warmup_steps": training.warmup_steps,
        "total_steps": training.steps,
        "clip_norm": training.clip_norm,
        "accumulation_steps": training.accumulation_steps,
        "weights": EVEN,
        "save_every": training.save_every,
    }


def train(run_dir: Path, training: LabTraining) -> None:
    """Train and record into `run_dir`; in an `msrun` job every rank calls this with the same arguments."""
    rank_id, _ = job_place()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(training.seed)
    documents = load_documents(list(SUBSETS), limit_bytes=TEXT_BYTES)
    network = ByteTransformer(training.model)
    samples = lab_samples(
        documents,
        training.data,
        count=training.steps * training.batch_size,
        batch_size=training.batch_size,
        context_length=training.model.context_length,
        seed=training.seed + rank_id,
    )
    length = training.model.context_length
    file = write_lab_data(samples, documents, run_dir, context_length=length, rank_id=rank_id)
    for first, last in _parts(training):
        recorder = Recorder(
            run_dir,
            config=recorded_config(training),
            seeds={"all": training.seed},
            data_fingerprint=fingerprint(documents),
            steps_total=training.steps,
            profile_steps=training.profile_steps,
            count_tokens=_count_tokens,
            samples=SampleColumns(sample=2, subset=3, subset_names=SUBSETS, weights=EVEN),
            first_step=first,
        )
        callbacks = _callbacks(run_dir, training, recorder, network, documents, rank_id)
        batches = lab_pipeline(
            file, training.data, batch_size=training.batch_size, context_length=length, seed=training.seed
        )
        part = batches.skip(first - 1).take(last - first + 1)
        Model(_step(network, training)).train(1, part, callbacks=callbacks, dataset_sink_mode=False)


def _parts(training: LabTraining) -> list[tuple[int, int]]:
    """First and last step of each attempt."""
    if not training.restart_at:
        return [(1, training.steps)]
    return [(1, training.restart_at - 1), (training.restart_at, training.steps)]


def _step(network: nn.Cell, training: LabTraining) -> nn.Cell:
    """A fresh training step: a new optimizer, whose schedule starts at its beginning."""
    is_half = training.loss_scale is not None
    loss: nn.Cell = NextTokenLoss(HalfPrecisionLogits(network) if is_half else network)
    if training.accumulation_steps > 1:
        loss = AccumulatedLoss(loss, training.accumulation_steps, is_summed=training.sums_loss)
    if training.tiny_operators:
        loss = TinyOperators(loss, training.tiny_operators)
    loss = FirstInputs(loss, 2)  # the other columns tell the samples
    rate = PlannedRate(
        training.peak_learning_rate, training.warmup_steps, training.steps, speed=training.schedule_speed
    )
    if training.optimizer == "momentum":
        optimizer: nn.Optimizer = nn.Momentum(network.trainable_params(), rate, 0.9)
    else:
        optimizer = adamw(network, rate, beta2=training.beta2, epsilon=training.epsilon)
    if training.loss_scale is None:
        return RecordedStep(loss, optimizer, clip_norm=training.clip_norm)
    start, window = training.loss_scale
    return ScaledStep(loss, optimizer, scale=start, window=window)


def _callbacks(
    run_dir: Path,
    training: LabTraining,
    recorder: Recorder,
    network: nn.Cell,
    documents: Sequence[Document],
    rank_id: int,
) -> list[Callback]:
    callbacks: list[Callback] = [recorder]
    if training.slow_rank and training.slow_rank[0] == rank_id:
        callbacks.append(SleepBeforeStep(training.slow_rank[1]))
    if training.host_bytes_per_step or training.host_us_per_step:
        callbacks.append(GrowingHost(training.host_bytes_per_step, training.host_us_per_step))
    if rank_id == 0 and training.inline_every:
        length = training.model.context_length
        samples = held_out_samples(documents, context_length=length, per_subset=INLINE_SAMPLES, seed=training.seed)
        if training.data.unshifted:
            samples = {name: [unshifted(s) for s in part] for name, part in samples.items()}
        task = EvaluationTask(network=network, subsets=samples)
        callbacks.append(InlineEval(task, recorder, every=training.inline_every, controlled=training.inline_controlled))
    if rank_id == 0 and training.save_every:
        callbacks.append(SlowStorage(str(run_dir / "checkpoints"), training.save_every, training.save_stall_ms))
    if rank_id == 0 and training.busy_evaluation:
        callbacks.append(BusyEvaluation(recorder, *training.busy_evaluation))
    return callbacks


def _count_tokens(batch: Sequence[object]) -> float:
    """Tokens of a batch that are no padding."""
    return float((np.asarray(batch[0].asnumpy()) != PAD).sum())  # type: ignore[attr-defined]
