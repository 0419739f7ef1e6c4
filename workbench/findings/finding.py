"""The one type of every diagnosis, and the words that name causes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]
Confidence = Literal["high", "medium", "low"]

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One fact with its number: where it stands and in which unit."""

    fact: str
    value: float | int | str | None = None
    unit: str = ""
    table: str = ""
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """What is to blame: any of a rank, operator, link (src-dst), subset, data operator, stage."""

    rank: int | None = None
    op: str | None = None
    link: str | None = None
    subset: str | None = None
    data_op: str | None = None
    stage: int | None = None


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps at which it is seen: a range, and the list where they are single steps."""

    first: int | None = None
    last: int | None = None
    list: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RuledOut:
    """A cause that was considered and dropped, and why."""

    cause: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to know about a run, with its proof, its cost and its next step."""

    cause: str  # a word of CAUSES
    playbook: str  # T1 ... T10, E7, ...
    severity: Severity
    confidence: Confidence
    title: str  # one sentence with the number in it
    fix: str  # one sentence in the imperative
    source: str  # where rule and threshold come from
    sub_cause: str | None = None
    evidence: tuple[Evidence, ...] = ()
    culprit: Culprit = field(default_factory=Culprit)
    steps: Steps = field(default_factory=Steps)
    saves_us_per_step: float | None = None
    saves_interval_us: tuple[float, float] | None = None
    rules_out: tuple[RuledOut, ...] = ()

    def __post_init__(self) -> None:
        if self.cause not in CAUSES:
            raise ValueError(f"{self.cause!r} is not a cause word; add it to CAUSES or use one of {sorted(CAUSES)}")

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary, as written to findings.json."""
        return asdict(self)


def warning_or_critical(share: float, critical_share: float) -> Severity:
    """Severity of what is a fault in any case: critical from `critical_share` on."""
    return "critical" if share >= critical_share else "warning"


CAUSES: dict[str, str] = {
    # training quality
    "lr_schedule_error": "the learning rate does not follow the plan",
    "lr_too_high": "the learning rate is too high for this model and batch",
    "no_gradient_clipping": "gradient spikes reach the parameters unclipped",
    "resume_state_lost": "optimizer, schedule or data position was lost when resuming",
    "loss_normalisation": "the loss is scaled wrongly (accumulation, micro batches, ranks)",
    "label_leak": "the model sees the targets",
    "bad_batch": "single batches hold damaged or odd data",
    "loss_not_finite": "the loss became NaN or infinite",
    "loss_spike": "the loss jumped and the cause is not proven",
    "fp16_overflow": "half-precision gradients overflow",
    "precision_or_optimizer_mismatch": "precision or optimizer settings differ from the reference",
    # speed
    "data_starved": "training waits for the data pipeline",
    "host_side_accumulation": "work or memory accumulates on the host at each step",
    "host_gc_jitter": "garbage collection stalls single ranks",
    "stall_steps": "single steps take far longer than the rest",
    "step_time_drift": "the step time changes over the run",
    "recompile": "graphs are compiled again during training",
    "pipeline_bubble": "pipeline stages wait for each other",
    "exposed_communication": "communication is not hidden by compute",
    "no_overlap": "communication and compute run one after the other",
    "unfused_allreduce": "many small collectives, latency bound",
    "small_ops": "many small operators, launch bound",
    "slow_op": "one operator type is slower than it should be",
    "recompute_overhead": "recomputation costs more than it saves",
    "version_regression": "a newer version is slower",
    "evaluation_interference": "evaluation slows training down",
    # memory
    "out_of_memory": "an allocation failed",
    "stage_imbalance": "pipeline stages hold uneven memory",
    "device_shared_with_other_process": "another process holds the device",
    "single_request_too_large": "one allocation is larger than what is left",
    "memory_limit_too_low": "the configured memory limit is below what the card has",
    "memory_leak": "memory grows from step to step",
    "fragmentation": "reserved memory is much larger than allocated memory",
    # several devices
    "slow_rank": "one rank is slower than its peers",
    "slow_link": "one link is slower than its peers",
    "poor_scaling": "more devices bring less than they should, and no part of the step tells why",
    "no_rdma_fallback": "collectives run over sockets",
    "link_bound_sharding": "the sharding moves more data than the links carry",
    "rank_missing_collective": "a rank did not take part in a collective",
    "rank_late": "a rank arrives late at collectives",
    # data
    "duplicate_data": "samples are repeated in the data",
    "empty_data": "samples are empty",
    "truncated_samples": "long samples are cut at the training length",
    "dropped_samples": "samples are lost between the files and training",
    "tokenizer_coverage": "the tokenizer knows little of a subset's text",
    "small_shuffle_buffer": "neighbouring samples stay together",
    # evaluation
    "subset_regression": "one evaluation subset got worse and the cause is not proven",
    "data_mix_shift": "the sampling mix changed",
    "tokenizer_special_tokens": "special tokens are handled differently",
    "context_length_shift": "the context length differs from training",
    "forgetting": "earlier abilities fade",
    "degenerate_output": "generated samples repeat, break off or are malformed",
    "layer_drift": "activations of a layer drift",
    # checkpoints
    "checkpoint_stall": "saving checkpoints stops training",
    "checkpoint_single_writer": "one process writes for all",
    "checkpoint_corrupt": "a checkpoint is damaged or half-written",
    # healthy
    "none": "what looks odd has a harmless reason",
}
