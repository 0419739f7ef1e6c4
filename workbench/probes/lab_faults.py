"""The faults of the lab: what is wrong in each training, and what a diagnosis has to find.

Places and sizes are chosen by a seed. Healthy trainings that look like faults stand beside them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from workbench.errors import UnknownParameterError
from workbench.probes.lab_data import SUBSETS
from workbench.probes.lab_training import LabTraining

RANKS = 2  # of the faults that need several


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A training, and where its fault is."""

    training: LabTraining
    onset: int | None = None  # first step at which it can be seen
    rank: int | None = None
    subset: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of fault: its cause word, and how a training with it is planned."""

    cause: str  # a word of findings.finding.CAUSES
    plan: Callable[[LabTraining, random.Random], Planned]
    what: str
    ranks: int = 1
    onset_tolerance: int = 0  # steps


def _changed(training: LabTraining, onset: int | None = None, *, rank: int | None = None, subset: str | None = None,
             **changes: object) -> Planned:  # fmt: skip
    return Planned(training=replace(training, **changes), onset=onset, rank=rank, subset=subset)  # type: ignore[arg-type]


def _data(training: LabTraining, onset: int | None = None, *, subset: str | None = None, **changes: object) -> Planned:
    data = replace(training.data, **changes)  # type: ignore[arg-type]
    return Planned(training=replace(training, data=data), onset=onset, subset=subset)


def _middle(training: LabTraining, random_: random.Random) -> int:
    """A step in the middle third."""
    return random_.randrange(training.steps // 3, training.steps // 2)


def _lr_too_high(training: LabTraining, r: random.Random) -> Planned:
    return _changed(training, training.warmup_steps, peak_learning_rate=r.choice((0.1, 0.2, 0.4)))


def _warmup_too_short(training: LabTraining, r: random.Random) -> Planned:
    return _changed(training, 1, warmup_steps=1, peak_learning_rate=r.choice((0.03, 0.05)))


def _schedule_runs_out(training: LabTraining, r: random.Random) -> Planned:
    speed = r.choice((2, 3))
    return _changed(training, training.steps // speed, schedule_speed=speed)


def _resume_restarts(training: LabTraining, r: random.Random) -> Planned:
    step = _middle(training, r)
    return _changed(training, step, restart_at=step)


def _no_clipping(training: LabTraining, r: random.Random) -> Planned:
    steps = sorted(r.sample(range(training.steps // 3, training.steps - 20), 3))
    planned = _data(training, steps[0], random_steps=tuple(steps))
    return replace(planned, training=replace(planned.training, clip_norm=None, optimizer="momentum",
                                             peak_learning_rate=0.3))  # fmt: skip


def _bad_batch(training: LabTraining, r: random.Random) -> Planned:
    step = _middle(training, r)
    return _data(training, step, random_steps=(step, step + 1))


def _subset_starved(training: LabTraining, r: random.Random) -> Planned:
    subset, step = r.choice(SUBSETS), training.steps // 2
    longer = replace(training, inline_every=20)
    return _data(longer, step, subset=subset, starved_from=(subset, step))


FAULTS: dict[str, Fault] = {
    "lr_too_high": Fault(cause="lr_too_high", plan=_lr_too_high, what="peak learning rate", onset_tolerance=30),
    "warmup_too_short": Fault(cause="lr_too_high", plan=_warmup_too_short, what="no warm-up", onset_tolerance=40),
    "schedule_runs_out": Fault(
        cause="lr_schedule_error", plan=_schedule_runs_out, what="schedule counts several steps per step",
        onset_tolerance=10,
    ),
    "resume_restarts_schedule": Fault(
        cause="resume_state_lost", plan=_resume_restarts, what="schedule and optimizer start anew", onset_tolerance=5
    ),
    "no_clipping": Fault(
        cause="no_gradient_clipping", plan=_no_clipping, what="odd batches reach the parameters", onset_tolerance=5
    ),
    "loss_summed": Fault(
        cause="loss_normalisation", what="loss summed over accumulated micro-batches", onset_tolerance=0,
        plan=lambda t, r: _changed(t, 1, accumulation_steps=r.choice((2, 4)), sums_loss=True),
    ),
    "bad_batch": Fault(cause="bad_batch", plan=_bad_batch, what="two batches of noise", onset_tolerance=2),
    "label_leak": Fault(
        cause="label_leak", what="labels are not shifted: each token is its own target",
        plan=lambda t, _r: _data(replace(t, inline_every=100, inline_controlled=False), unshifted=True),
    ),
    "fp16_overflow": Fault(
        cause="fp16_overflow", what="the loss scale grows back too fast",
        plan=lambda t, r: _changed(t, 1, loss_scale=(2.0**r.choice((26, 28)), r.choice((2, 4)))), onset_tolerance=20,
    ),
    "duplicate_data": Fault(
        cause="duplicate_data", what="half of the samples are copies of five",
        plan=lambda t, r: _data(t, duplicate_share=r.choice((0.4, 0.6))),
    ),
    "empty_data": Fault(
        cause="empty_data", what="samples without text",
        plan=lambda t, r: _data(t, empty_share=r.choice((0.3, 0.5))),
    ),
    "truncated_samples": Fault(
        cause="truncated_samples", what="long samples, cut at the context length",
        plan=lambda t, r: _data(t, long_share=r.choice((0.3, 0.5))),
    ),
    "small_shuffle_buffer": Fault(
        cause="small_shuffle_buffer", what="document order through a tiny buffer",
        plan=lambda t, r: _data(t, shuffle_buffer=r.choice((1, 4, 16))),
    ),
    "subset_starved": Fault(
        cause="data_mix_shift", plan=_subset_starved, what="a subset is not sampled any more", onset_tolerance=30
    ),
    "slow_data": Fault(
        cause="data_starved", what="a Python operator sleeps for each sample",
        plan=lambda t, r: _data(replace(t, steps=120), slow_map_ms=r.choice((5.0, 8.0))),
    ),
    "slow_rank": Fault(
        cause="slow_rank", ranks=RANKS, what="one rank's host is late at every step",
        plan=lambda t, r: _changed(t, slow_rank=(rank := r.randrange(RANKS), 40.0), rank=rank, steps=120),
    ),
    "recompile": Fault(
        cause="recompile", what="a graph for each new length", onset_tolerance=2,
        plan=lambda t, r: _data(replace(t, steps=120), onset := r.randrange(30, 60), lengths_from=onset,
                                lengths=tuple(r.sample(range(20, 64), 4))),
    ),
    "small_ops": Fault(
        cause="small_ops", what="a storm of tiny operators",
        plan=lambda t, r: _changed(t, tiny_operators=r.choice((400, 600)), steps=100, profile_steps=(40, 45)),
    ),
    "memory_leak": Fault(
        cause="memory_leak", what="the host keeps a buffer of every step",
        plan=lambda t, r: _changed(t, host_bytes_per_step=r.choice((2, 4)) << 20),
    ),
    "host_side_accumulation": Fault(
        cause="host_side_accumulation", what="work piles up on the host",
        plan=lambda t, r: _changed(t, host_bytes_per_step=1 << 20, host_us_per_step=r.choice((100.0, 200.0))),
    ),
    "checkpoint_stall": Fault(
        cause="checkpoint_stall", what="synchronous saving to slow storage", onset_tolerance=1,
        plan=lambda t, r: _changed(t, every := r.choice((30, 40)), save_every=every, save_stall_ms=500.0),
    ),
    "evaluation_steals": Fault(
        cause="evaluation_interference", what="an evaluation takes the cores", onset_tolerance=10,
        plan=lambda t, _r: _changed(t, 40, busy_evaluation=(40, 1.0, 2 * (os.cpu_count() or 1))),
    ),
}  # fmt: skip

HEALTHY: dict[str, Callable[[LabTraining], LabTraining]] = {
    "plain": lambda t: t,
    "momentum": lambda t: replace(t, optimizer="momentum", peak_learning_rate=0.1),
    "accumulation": lambda t: replace(t, accumulation_steps=4),
    "loss_scaling": lambda t: replace(t, loss_scale=(2.0**24, 1000)),
    "inline_evaluation": lambda t: replace(t, inline_every=30),
    "checkpoints": lambda t: replace(t, save_every=60),
    "two_lengths": lambda t: replace(t, data=replace(t.data, lengths=(32, 64))),
    "small_learning_rate": lambda t: replace(t, peak_learning_rate=1e-3),
    "unclipped": lambda t: replace(t, clip_norm=None),
    "large_batch": lambda t: replace(t, batch_size=16, steps=160),
}


def planned(name: str, seed: int) -> Planned:
    """The training of the fault or healthy variant `name`, and where its fault is.

    Raises:
        UnknownParameterError: there is no such fault.
    """
    base = LabTraining(seed=seed)
    if name in HEALTHY:
        return Planned(training=HEALTHY[name](base))
    if name not in FAULTS:
        raise UnknownParameterError(
            f"The lab has no fault {name!r}.", fix=f"use one of {sorted(FAULTS)}, or healthy: {sorted(HEALTHY)}"
        )
    return FAULTS[name].plan(base, random.Random(f"{name}:{seed}"))
