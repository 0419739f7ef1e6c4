"""The metric catalogue: every metric with its layer, unit, source, the subsystem that it points at, and what is normal.

A metric that points at nothing that can be changed is not in it. Boards take titles and units from here, rules take
which direction is better, and docs/metrics.md is written by `metrics_page`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workbench.errors import UnknownParameterError

Layer = Literal["quality", "stability", "efficiency"]
Better = Literal["lower", "higher", "steady"]
LAYERS: tuple[Layer, ...] = ("quality", "stability", "efficiency")
DIRECTION_WORDS = {"lower": "lower is better", "higher": "higher is better", "steady": "steady is better"}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. `column` is a column of `table`; in table `evals` it is the word in column `metric`."""

    name: str
    title: str  # for axes and boards, without the unit
    layer: Layer
    unit: str
    better: Better
    table: str
    column: str
    subsystem: str  # what to look at when it is off
    normal: str  # what a healthy run looks like

    @property
    def axis_title(self) -> str:
        """Title with the unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def _quality(name: str, title: str, unit: str, better: Better, subsystem: str, normal: str) -> Metric:
    return Metric(name=name, title=title, layer="quality", unit=unit, better=better, table="evals", column=name,
                  subsystem=subsystem, normal=normal)  # fmt: skip


def _step(
    layer: Layer, name: str, column: str, title: str, unit: str, better: Better, subsystem: str, normal: str
) -> Metric:
    return Metric(name=name, title=title, layer=layer, unit=unit, better=better, table="training_steps", column=column,
                  subsystem=subsystem, normal=normal)  # fmt: skip


MIX = "data mix, tokenizer, context length"
QUALITY = (
    _quality("loss", "loss", "nats per token", "lower", MIX,
             "falls from checkpoint to checkpoint in every subset; a rise of 0.01 or more beyond its interval is real"),
    _quality("perplexity", "perplexity", "", "lower", MIX, "exp of the loss: compare models of one tokenizer only"),
    _quality("bits_per_byte", "bits per byte", "bits per byte", "lower", "tokenizer, data mix",
             "comparable between tokenizers; falls together with the loss"),
    _quality("next_token_accuracy", "next-token accuracy", "share", "higher", MIX, "rises while the loss falls"),
    _quality("score", "score", "share", "higher", "data mix, fine-tuning data, prompt format",
             "moves inside its sampling error, about 1 / (2 sqrt(n)), unless the training changed"),
    _quality("accuracy", "accuracy", "share", "higher", "data mix, fine-tuning data, prompt format",
             "moves inside its sampling error, about 1 / (2 sqrt(n)), unless the training changed"),
)  # fmt: skip
STABILITY = (
    _step("stability", "training_loss", "loss", "training loss", "nats per token", "lower", "optimizer, learning rate",
          "falls smoothly; single batches stay within 8 robust deviations of the last 50 steps"),
    _step("stability", "gradient_norm", "gradient_norm", "gradient norm", "L2 norm", "steady",
          "optimizer, learning rate, clipping", "high in the warm-up, then level; no jumps, no steady growth"),
    _step("stability", "gradient_parameter_ratio", "gradient_parameter_ratio", "gradient / parameter norm", "ratio",
          "steady", "learning rate per parameter group, initialisation", "about 1e-3 to 1e-1 and alike between groups"),
    _step("stability", "parameter_norm", "parameter_norm", "parameter norm", "L2 norm", "steady", "weight decay",
          "grows slowly, then levels"),
    _step("stability", "learning_rate", "learning_rate", "learning rate", "", "steady", "schedule, resume",
          "follows the planned warm-up and decay without jumps"),
    _step("stability", "overflow_share", "overflow", "steps with overflow", "share", "lower",
          "precision, loss scale", "0 in bfloat16; below 0.001 with a dynamic loss scale after its first 100 steps"),
    _step("stability", "loss_scale", "loss_scale", "loss scale", "", "steady", "precision, loss scale",
          "settles; one that falls to its end means that every step overflows"),
)  # fmt: skip
EFFICIENCY = (
    _step("efficiency", "tokens_per_s", "tokens_per_s", "throughput", "tokens per s", "higher",
          "data pipeline, communication, kernels", "level to a few percent once graphs are compiled"),
    _step("efficiency", "samples_per_s", "samples_per_s", "throughput", "samples per s", "higher",
          "data pipeline, communication, kernels", "level to a few percent once graphs are compiled"),
    _step("efficiency", "step_time", "step_us", "step time", "us", "lower", "kernels, communication, data pipeline",
          "the 99 % quantile is close to the median; outliers have a known cause (compiling, profiling)"),
    _step("efficiency", "flops_per_s", "flops_per_s", "achieved operations", "operations per s and device", "higher",
          "parallel strategy, kernels, batch size", "30 to 50 % of the device's peak for large dense models"),
    _step("efficiency", "data_wait", "data_wait_us", "waiting for data", "us per step", "lower", "data pipeline",
          "below 1 % of the step time"),
    _step("efficiency", "callbacks", "callbacks_us", "callbacks", "us per step", "lower",
          "checkpoint saving, inline evaluation, logging", "saving and evaluating below 5 % of the wall time each"),
    _step("efficiency", "host_memory", "host_memory_bytes", "host memory", "bytes", "steady",
          "data pipeline workers, callbacks that keep tensors", "level after the first epoch"),
    _step("efficiency", "device_allocated", "device_allocated_bytes", "device memory in use", "bytes", "steady",
          "recomputation, batch size, parallel strategy", "the same peak in every step"),
    _step("efficiency", "device_reserved", "device_reserved_bytes", "device memory held by the pool", "bytes", "steady",
          "memory pool, fragmentation", "little above the allocated peak"),
    Metric(name="communication_share", title="exposed communication", layer="efficiency", unit="share of the step",
           better="lower", table="step_time", column="communication_not_overlapped_us",
           subsystem="communication, parallel strategy", normal="below 10 % of the step; equal on all ranks"),
    Metric(name="free_share", title="device idle", layer="efficiency", unit="share of the step", better="lower",
           table="step_time", column="free_us", subsystem="host, data pipeline, small operators",
           normal="below 10 % of the step"),
    Metric(name="bubble_share", title="pipeline bubble", layer="efficiency", unit="share of the step", better="lower",
           table="step_time", column="bubble_us", subsystem="pipeline stages, micro-batches",
           normal="(stages - 1) / (micro-batches + stages - 1), below 10 %"),
    Metric(name="collective_wait", title="waiting for other ranks", layer="efficiency", unit="us", better="lower",
           table="collectives", column="wait_us", subsystem="slow rank, uneven load",
           normal="small on all ranks; the rank that waits least is the late one"),
    Metric(name="queue_fill_share", title="fill of the data queues", layer="efficiency", unit="share", better="higher",
           table="data_ops", column="queue_fill_share", subsystem="data pipeline operator below the empty queue",
           normal="the last queue is mostly full"),
    Metric(name="event_time", title="compiling, saving, evaluating", layer="efficiency", unit="us", better="lower",
           table="events", column="duration_us", subsystem="checkpoint saving, inline evaluation, dynamic shapes",
           normal="compiling only at the start; saving and evaluating below 5 % of the wall time each"),
)  # fmt: skip
METRICS: dict[str, Metric] = {m.name: m for m in (*QUALITY, *STABILITY, *EFFICIENCY)}


def metric(name: str) -> Metric:
    """The catalogue's entry of a metric.

    Raises:
        UnknownParameterError: there is no such metric.
    """
    if name not in METRICS:
        raise UnknownParameterError(f"There is no metric {name!r}.", fix=f"use one of {sorted(METRICS)}")
    return METRICS[name]


def evaluation_title(name: str) -> str:
    """Axis title of a metric of table `evals`; the name itself where the catalogue does not have it."""
    return METRICS[name].axis_title if name in METRICS else name


def metrics_page() -> str:
    """The catalogue as Markdown tables, one per layer."""
    parts = []
    for layer in LAYERS:
        rows = [m for m in METRICS.values() if m.layer == layer]
        head = f"## {layer.capitalize()}\n| metric | unit | source | better | points at | normal |\n|{'---|' * 6}"
        lines = [
            f"| {m.title} (`{m.name}`) | {m.unit or '–'} | {_source(m)} | {DIRECTION_WORDS[m.better].split()[0]} "
            f"| {m.subsystem} | {m.normal} |"
            for m in rows
        ]
        parts.append("\n".join([head, *lines]))
    return "\n\n".join(parts)


def _source(entry: Metric) -> str:
    where = f"metric {entry.column}" if entry.table == "evals" else entry.column
    return f"`{entry.table}`: {where}"
