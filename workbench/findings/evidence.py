"""What has to be recorded before a cause can be ruled out: per cause, the columns that its rules judge by.

That no rule found a cause says nothing where nothing was recorded. Each cause has one or several alternatives; one that
is there as a whole is enough. A test holds that each alternative is read by a rule that names the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One way to judge a cause."""

    columns: tuple[str, ...]  # `table` or `table.column`, with a value in some row
    kinds: tuple[str, ...] = ()  # names in KINDS, with a row of that kind
    ranks: int = 1  # ranks whose files are there, at least
    jobs: int = 1  # jobs in the directory, at least


def _one(*columns: str, kinds: tuple[str, ...] = (), ranks: int = 1, jobs: int = 1) -> tuple[Evidence, ...]:
    return (Evidence(columns=columns, kinds=kinds, ranks=ranks, jobs=jobs),)


GRAPH_OPERATORS = "kernels:graph operators"  # names such as Default/network-Net/0-Block/MatMul-op0
KINDS: Mapping[str, str] = {  # `table:kind` -> what it is and where it comes from
    "log_messages:memory_summary": "memory figures of the stages (make a dry run with MS_SIMULATION_LEVEL=1, one rank "
    "per stage, and put it beside the logs)",
    "events:gc": "pauses of Python's garbage collector (give a log that prints them, or call gc.freeze() after the "
    "first step in a short run beside this one and compare)",
    GRAPH_OPERATORS: "operators with their scopes, which tell recomputed ones (profile in graph mode, or put the "
    "logs and settings with and without recomputation into one folder)",
}

_LOSS = _one("training_steps.loss")
_RATE = _one("training_steps.learning_rate")
_LOG = _one("log_messages")
_KERNELS = _one("kernels")
_COURSE = (*_one("evals", "data_mix"), *_one("evals", "sample_ids"))
_STEPS = (*_one("training_steps.step_us"), *_one("step_time"), *_one("kernels"))
_SAMPLES = _one("data_samples")

EVIDENCE: Mapping[str, tuple[Evidence, ...]] = {
    "loss_not_finite": _one("training_steps.loss", "training_steps.loss_finite"),
    "lr_schedule_error": _RATE,
    "resume_state_lost": _RATE,
    "lr_too_high": _LOSS,
    "no_gradient_clipping": _one("training_steps.loss", "training_steps.gradient_norm"),
    "fp16_overflow": _one("training_steps.overflow"),
    "loss_normalisation": _one("training_steps.loss", "settings"),
    "label_leak": _LOSS,
    "bad_batch": (*_LOSS, *_one("suspect_batches")),
    "loss_spike": _LOSS,
    "data_starved": (*_one("training_steps.data_wait_us"), *_one("data_ops"), *_KERNELS),
    "host_side_accumulation": _one("training_steps.step_us"),
    "stall_steps": _STEPS,
    "host_gc_jitter": _one("training_steps.step_us", kinds=("events:gc",)),
    "step_time_drift": (*_one("training_steps.step_us"), *_one("step_time")),
    "recompile": (*_one("training_steps.step_us"), *_KERNELS),
    "pipeline_bubble": _one("collectives", "step_time", ranks=2),
    "exposed_communication": _one("collectives", "step_time"),
    "no_overlap": _one("kernels", "collectives"),
    "unfused_allreduce": _one("collectives"),
    "small_ops": _KERNELS,
    "slow_op": _one("kernels", ranks=2),
    "recompute_overhead": (*_one(kinds=(GRAPH_OPERATORS,)), *_one("training_steps.step_us", "settings", jobs=2)),
    "version_regression": _one("training_steps.step_us", jobs=2),
    "precision_or_optimizer_mismatch": _one("training_steps.loss", jobs=2),
    "evaluation_interference": _one("training_steps.step_us", "events"),
    "out_of_memory": _LOG,
    "stage_imbalance": (
        *_one("memory_timeline", "settings", ranks=2),
        *_one(kinds=("log_messages:memory_summary",)),
    ),
    "device_shared_with_other_process": _LOG,
    "single_request_too_large": _LOG,
    "memory_limit_too_low": _LOG,
    "memory_leak": (
        *_one("memory_timeline", "kernels"),
        *_one("training_steps.host_memory_bytes"),
        *_one("training_steps.device_allocated_bytes"),
    ),
    "fragmentation": _one("memory_timeline"),
    "slow_rank": (*_one("training_steps.step_us", ranks=2), *_one("step_time", ranks=2), *_one("kernels", ranks=2)),
    "slow_link": _one("links", ranks=2),
    "poor_scaling": (*_one("training_steps.step_us", jobs=2), *_one("series")),
    "no_rdma_fallback": _LOG,
    "link_bound_sharding": _one("training_steps.step_us", "settings", jobs=2),
    "rank_missing_collective": _LOG,
    "rank_late": _LOG,
    "duplicate_data": (*_SAMPLES, *_one("sample_ids")),
    "empty_data": _SAMPLES,
    "truncated_samples": _one("data_samples.tokens"),
    "dropped_samples": _SAMPLES,
    "tokenizer_coverage": _one("data_samples.tokens"),
    "small_shuffle_buffer": _one("sample_ids"),
    "subset_regression": (*_one("eval_samples"), *_one("evals")),
    "data_mix_shift": (*_COURSE, *_one("sample_ids"), *_one("data_mix")),
    "tokenizer_special_tokens": (*_one("eval_samples"), *_one("evals")),
    "context_length_shift": _one("eval_samples"),
    "forgetting": (*_one("eval_samples"), *_one("evals")),
    "degenerate_output": _one("generations"),
    "layer_drift": _one("layer_statistics"),
    "checkpoint_stall": _one("training_steps.step_us", "events"),
    "checkpoint_single_writer": _one("training_steps.step_us", "events"),
    "checkpoint_corrupt": _one("checkpoint_files"),
}
