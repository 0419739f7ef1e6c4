"""Rehearse a training on a small model: real data, recorded, profiled, evaluated inline, with checkpoints.

`python -m workbench.probes.rehearsal RUN` trains; `evaluation_task` is what its checkpoints are evaluated with.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import mindspore as ms
from mindspore.train import CheckpointConfig, Model, ModelCheckpoint

from workbench.files import RunFiles
from workbench.probes.corpus import Document, Sample, fingerprint, held_out_samples, load_documents
from workbench.probes.evaluation import EvaluationTask
from workbench.probes.inline_evaluation import InlineEval
from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, WarmupCosine, adamw
from workbench.probes.recorder import Recorder, job_place
from workbench.probes.text_dataset import token_pipeline, training_samples, write_mindrecord
from workbench.probes.train_step import RecordedStep

EVALUATION_TASK = "workbench.probes.rehearsal:evaluation_task"
POST_TRAINING_TASK = "workbench.probes.rehearsal_tasks:post_training_task"
SHORTEST_PROFILED_STEPS = 30
DEFAULT_WEIGHTS = {"python": 0.35, "english": 0.3, "arithmetic": 0.2, "chinese": 0.15}


@dataclass(frozen=True, kw_only=True)
class RehearsalConfig:
    """Everything that decides a rehearsal. The defaults take about three minutes on two cores."""

    steps: int = 600
    batch_size: int = 8
    model: ModelConfig = field(default_factory=ModelConfig)
    peak_learning_rate: float = 2e-3
    warmup_steps: int = 40
    clip_norm: float = 1.0
    weight_decay: float = 0.1
    weights: dict[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    text_bytes: int = 400_000
    checkpoints: int = 5
    profile_steps: tuple[int, int] | None = (20, 24)
    inline_every: int = 50
    samples_per_subset: int = 48
    inline_samples_per_subset: int = 4
    inline_budget_share: float = 0.05
    inline_controlled: bool = True
    seed: int = 1
    pynative: bool = False


def evaluation_task(
    *, model: dict[str, int], text_bytes: int, samples_per_subset: int, seed: int, weights: dict[str, float]
) -> EvaluationTask:
    """The rehearsal's network and held-out samples of every subset it trains on; arguments as in run.json."""
    config = ModelConfig(**model)
    documents = load_documents(list(weights), limit_bytes=text_bytes)
    subsets = held_out_samples(
        documents, context_length=config.context_length, per_subset=samples_per_subset, seed=seed
    )
    description = {"samples_per_subset": samples_per_subset, "seed": seed, "data": fingerprint(documents)}
    return EvaluationTask(network=ByteTransformer(config), subsets=subsets, description=description)


def task_arguments(config: RehearsalConfig) -> dict[str, object]:
    """Arguments of `evaluation_task` for checkpoints of this rehearsal."""
    return {
        "model": asdict(config.model),
        "text_bytes": config.text_bytes,
        "samples_per_subset": config.samples_per_subset,
        "seed": config.seed,
        "weights": config.weights,
    }


def train(run_dir: Path, config: RehearsalConfig) -> None:
    """Train and record into `run_dir`. In an `msrun` job every rank calls this with the same arguments."""
    rank_id, world_size = job_place()
    ms.set_context(mode=ms.PYNATIVE_MODE if config.pynative else ms.GRAPH_MODE)
    ms.set_seed(config.seed)
    documents = load_documents(list(config.weights), limit_bytes=config.text_bytes)
    samples = training_samples(
        documents, context_length=config.model.context_length, weights=config.weights, seed=config.seed
    )
    data = write_mindrecord(samples, run_dir / "data" / f"train_{rank_id}.mindrecord", subsets=list(config.weights))
    dataset = token_pipeline(
        data, batch_size=config.batch_size, seed=config.seed, rank_id=rank_id, world_size=world_size
    )
    epochs = -(-config.steps // dataset.get_dataset_size())
    dataset = dataset.repeat(epochs).take(config.steps)
    network = ByteTransformer(config.model)
    schedule = WarmupCosine(config.peak_learning_rate, config.warmup_steps, config.steps)
    step = RecordedStep(
        NextTokenLoss(network),
        adamw(network, schedule, weight_decay=config.weight_decay),
        clip_norm=config.clip_norm,
    )
    recorder = _recorder(run_dir, config, fingerprint(documents))
    callbacks = [recorder]
    if rank_id == 0:
        inline = EvaluationTask(network=network, subsets=_inline_samples(documents, config))
        watch = InlineEval(
            inline,
            recorder,
            every=config.inline_every,
            budget_share=config.inline_budget_share,
            controlled=config.inline_controlled,
        )
        callbacks += [watch, _checkpoints(run_dir, config)]
    Model(step).train(1, dataset, callbacks=callbacks)


def _recorder(run_dir: Path, config: RehearsalConfig, data: str) -> Recorder:
    return Recorder(
        run_dir,
        config=asdict(config),
        seeds={"all": config.seed},
        data_fingerprint=data,
        tags=["rehearsal"],
        evaluation={
            "task": EVALUATION_TASK,
            "arguments": task_arguments(config),
            "post_training": POST_TRAINING_TASK,
        },
        steps_total=config.steps,
        profile_steps=config.profile_steps,
        profile_data=True,
    )


def _inline_samples(documents: Sequence[Document], config: RehearsalConfig) -> dict[str, list[Sample]]:
    return held_out_samples(
        documents,
        context_length=config.model.context_length,
        per_subset=config.inline_samples_per_subset,
        seed=config.seed,
    )


def _checkpoints(run_dir: Path, config: RehearsalConfig) -> ModelCheckpoint:
    policy = CheckpointConfig(
        save_checkpoint_steps=config.steps // config.checkpoints,
        keep_checkpoint_max=1000,  # retention would delete files that are being evaluated
        async_save=True,
        append_info=["epoch_num", "step_num"],
        format="safetensors",
    )
    return ModelCheckpoint(prefix="rehearsal", directory=str(run_dir / "checkpoints"), config=policy)


def _parser() -> argparse.ArgumentParser:
    defaults = RehearsalConfig()
    parser = argparse.ArgumentParser(description="Train the rehearsal model and record the run.")
    parser.add_argument("run", type=Path, help="run directory to write")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--checkpoints", type=int, default=defaults.checkpoints)
    parser.add_argument("--batch-size", type=int, default=defaults.batch_size)
    parser.add_argument("--width", type=int, default=defaults.model.width)
    parser.add_argument("--layers", type=int, default=defaults.model.layers)
    parser.add_argument("--context-length", type=int, default=defaults.model.context_length)
    parser.add_argument("--learning-rate", type=float, default=defaults.peak_learning_rate)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--samples-per-subset", type=int, default=defaults.samples_per_subset)
    parser.add_argument("--no-profile", action="store_true")
    parser.add_argument("--pynative", action="store_true", help="PyNative instead of graph mode (4-13 times slower)")
    parser.add_argument("--distributed", action="store_true", help="data parallel; start me with msrun")
    return parser


def _config(arguments: argparse.Namespace) -> RehearsalConfig:
    defaults = RehearsalConfig()
    too_short = arguments.steps < SHORTEST_PROFILED_STEPS
    return RehearsalConfig(
        steps=arguments.steps,
        checkpoints=arguments.checkpoints,
        batch_size=arguments.batch_size,
        model=ModelConfig(width=arguments.width, layers=arguments.layers, context_length=arguments.context_length),
        peak_learning_rate=arguments.learning_rate,
        warmup_steps=min(defaults.warmup_steps, max(arguments.steps // 10, 1)),
        seed=arguments.seed,
        samples_per_subset=arguments.samples_per_subset,
        profile_steps=None if arguments.no_profile or too_short else defaults.profile_steps,
        pynative=arguments.pynative,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the training process."""
    arguments = _parser().parse_args(argv)
    run_dir = arguments.run.absolute()
    work_dir = RunFiles(run_dir).cache / f"compiler_{os.environ.get('RANK_ID', '0')}"
    work_dir.mkdir(parents=True, exist_ok=True)
    os.chdir(work_dir)  # MindSpore leaves compiler output in the working directory
    ms.set_device("CPU")
    if arguments.distributed:
        ms.communication.init()
        ms.set_auto_parallel_context(
            parallel_mode="data_parallel", gradients_mean=True, device_num=ms.communication.get_group_size()
        )
    train(run_dir, _config(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
