"""The one table of column names by which CSV series beside logs are recognised, with the units that they may carry.

A header is compared in lower case, without brackets, with everything that is no letter or digit as one underscore:
`Step Time (ms)` is `step_time_ms`. Its last word is a unit where the spelling allows one. docs/csv_columns.md shows the
table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NO_UNIT: Mapping[str, float] = {"": 1.0}
TO_US: Mapping[str, float] = {
    "ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6, "secs": 1e6, "second": 1e6, "seconds": 1e6,
}  # fmt: skip
KIB, MIB, GIB = 1024.0, 1024.0**2, 1024.0**3  # MB means MiB, as npu-smi, nvidia-smi and torch print it
TO_BYTES: Mapping[str, float] = {
    "b": 1.0, "byte": 1.0, "bytes": 1.0, "kb": KIB, "kib": KIB, "mb": MIB, "mib": MIB, "m": MIB, "gb": GIB, "gib": GIB,
}  # fmt: skip
TO_SHARE: Mapping[str, float] = {"pct": 0.01, "percent": 0.01, "percentage": 0.01, "share": 1.0, "fraction": 1.0}
TO_SHARE_OR_PLAIN: Mapping[str, float] = {**TO_SHARE, "": 1.0}
TO_FLOPS: Mapping[str, float] = {"": 1e12, "per_gpu": 1e12, "per_npu": 1e12}
TO_NS: Mapping[str, float] = {
    "": 0.0,
    "ns": 1.0,
    "us": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "sec": 1e9,
    "seconds": 1e9,
}  # 0: guess
PER_S: Mapping[str, float] = {"per_s": 1.0, "per_sec": 1.0, "per_second": 1.0, "s": 1.0, "sec": 1.0}


@dataclass(frozen=True)
class Alias:
    """Spellings of one column: a header is a spelling, `_` and a unit, whose number the cells are multiplied with."""

    role: str  # key, training, memory, telemetry, eval, mix, setting: which tables the column may open
    meaning: str
    spellings: tuple[str, ...]
    units: Mapping[str, float]  # "" where the spelling stands alone
    alone: tuple[str, ...]  # further spellings, without a unit


def _alias(role: str, meaning: str, spellings: str, units: Mapping[str, float] = NO_UNIT, alone: str = "") -> Alias:
    return Alias(role, meaning, tuple(spellings.split()), units, tuple(alone.split()))


COLUMN_ALIASES: Mapping[str, Alias] = {
    "step": _alias("key", "training step", "step steps iter iteration iterations global_step train_step step_id"),
    "from_step": _alias("key", "first step for which the row holds", "from_step start_step since_step begin_step"),
    "epoch": _alias("key", "epoch", "epoch epochs"),
    "rank_id": _alias("key", "rank in the job", "rank rank_id global_rank worker worker_id"),
    "device_id": _alias("key", "card in the host", "device device_id card card_id npu npu_id gpu gpu_id"),
    "host": _alias("key", "host", "host hostname node node_id server machine"),
    "time_ns": _alias(
        "key", "time of day, or of the source's own clock", "time timestamp datetime date_time wall_time elapsed", TO_NS
    ),
    "subset": _alias("key", "subset of the evaluation data", "subset task benchmark eval_set category dataset_subset"),
    "n": _alias("key", "samples behind a score", "n n_samples num_samples num_examples count_samples questions"),
    "loss": _alias("training", "training loss", "loss train_loss training_loss lm_loss"),
    "learning_rate": _alias("training", "learning rate", "lr learning_rate cur_lr"),
    "gradient_norm": _alias(
        "training", "global gradient norm", "grad_norm gradient_norm global_norm gnorm global_grad_norm grad_l2"
    ),
    "parameter_norm": _alias("training", "parameter norm", "param_norm params_norm parameter_norm weight_norm"),
    "loss_scale": _alias("training", "loss scale", "loss_scale scale loss_scaling"),
    "overflow": _alias("training", "a gradient was not finite", "overflow overflow_cond is_overflow"),
    "step_us": _alias(
        "training",
        "time of a step",
        "step step_time per_step_time iteration_time iter_time time_per_step time_per_iteration batch_time",
        TO_US,
    ),
    "data_wait_us": _alias(
        "training",
        "wait for the batch, part of the step",
        "data_time data_wait data_wait_time dataload_time load_time",
        TO_US,
    ),
    "tokens_per_s": _alias(
        "training", "tokens per second", "tokens", PER_S, "tps tokens_per_second_per_gpu token_throughput"
    ),
    "samples_per_s": _alias(
        "training", "samples per second", "samples", PER_S, "samples_per_s_p sps sample_throughput"
    ),
    "flops_per_s": _alias(
        "training",
        "model operations per second and device",
        "tflops throughput_tflops train_throughput_tflops",
        TO_FLOPS,
    ),
    "sequence_length": _alias(
        "training", "tokens per sample of the batch", "seq_len seq_length sequence_length seqlen max_seq_len"
    ),
    "tokens": _alias("training", "tokens of the batch", "num_tokens n_tokens batch_tokens"),
    "device_allocated_bytes": _alias(
        "memory",
        "device memory in use by tensors",
        "allocated device_allocated memory_allocated mem_allocated allocated_memory total_allocated",
        TO_BYTES,
    ),
    "device_reserved_bytes": _alias(
        "memory",
        "device memory held by the pool",
        "reserved device_reserved memory_reserved mem_reserved reserved_memory total_reserved cached",
        TO_BYTES,
    ),
    "device_max_allocated_bytes": _alias(
        "memory",
        "highest device memory in use",
        "max_allocated max_memory_allocated peak_allocated peak_memory",
        TO_BYTES,
    ),
    "device_max_reserved_bytes": _alias(
        "memory", "highest device memory held", "max_reserved max_memory_reserved peak_reserved", TO_BYTES
    ),
    "host_memory_bytes": _alias(
        "memory",
        "resident memory of the process",
        "rss rss_anon host_memory host_rss process_memory cpu_memory",
        TO_BYTES,
    ),
    "device_memory_total_bytes": _alias("memory", "memory of the card", "total total_memory memory_total", TO_BYTES),
    "device_memory_used_bytes": _alias(
        "memory", "memory in use on the card, by all processes", "used used_memory memory_used", TO_BYTES
    ),
    "device_memory_free_bytes": _alias("memory", "free memory of the card", "free free_memory memory_free", TO_BYTES),
    "device_utilization_share": _alias(
        "telemetry",
        "use of the card's compute units",
        "aicore_util ai_core_util aicore_utilization npu_util gpu_util gpu_utilization utilization_gpu device_util "
        "device_utilization",
        TO_SHARE,
    ),
    "host_cpu_share": _alias("telemetry", "use of the host's cores", "cpu_util cpu host_cpu cpu_utilization", TO_SHARE),
    "host_io_wait_share": _alias("telemetry", "cores that wait for storage", "host_io_wait io_wait iowait", TO_SHARE),
    "device_temperature_celsius": _alias(
        "telemetry",
        "temperature of the card",
        "temperature temp device_temperature temperature_c temp_c celsius temperature_gpu",
    ),
    "device_power_watts": _alias(
        "telemetry", "power of the card", "power power_w power_watts power_draw power_draw_w device_power"
    ),
    "device_clock_mhz": _alias(
        "telemetry",
        "clock of the card",
        "clock_mhz aicore_freq_mhz aicore_freq sm_clock_mhz frequency_mhz clocks_sm_mhz clocks_current_sm_mhz",
    ),
    "device_processes": _alias(
        "telemetry", "processes on the card", "processes num_processes process_count n_processes"
    ),
    "allocation_retries": _alias(
        "telemetry", "allocations that succeeded only after freeing caches", "alloc_retries num_alloc_retries retries"
    ),
    "live_tensors": _alias("telemetry", "tensors that are alive", "live_tensors num_tensors tensor_count"),
    "validation_loss": _alias(
        "eval", "loss on held-out data", "val_loss valid_loss validation_loss eval_loss heldout_loss"
    ),
    "score": _alias("eval", "score of a subset, in [0, 1] where in percent", "score scores result", TO_SHARE_OR_PLAIN),
    "accuracy": _alias("eval", "share of right answers", "accuracy acc exact_match", TO_SHARE_OR_PLAIN),
    "perplexity": _alias("eval", "perplexity", "perplexity ppl"),
    "source": _alias("mix", "source of the training data", "source data_source dataset domain corpus"),
    "weight_share": _alias(
        "mix",
        "share of the samples drawn from the source",
        "weight weights sampling_weight proportion mix_weight sample_weight",
        TO_SHARE_OR_PLAIN,
    ),
    "name": _alias("setting", "name of a setting", "name item key setting parameter option test field variable"),
    "value": _alias("setting", "value of a setting", "value val"),
    "unit": _alias("setting", "unit of the value", "unit units"),
    "before": _alias("setting", "value in the older of two runs", "before old baseline reference"),
    "after": _alias("setting", "value in the newer of two runs", "after new candidate current"),
}


@dataclass(frozen=True)
class Known:
    """A header that is known: its column, and the factor for its cells (0 for times: guess by size)."""

    column: str
    factor: float
    role: str


def normal_header(header: str) -> str:
    """`Step Time (ms)` -> `step_time_ms`, `aicore_util(%)` -> `aicore_util_pct`."""
    text = header.strip().strip("\ufeff\"'").replace("%", " pct ").replace("/s", " per s ")
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_")


def know(header: str) -> Known | None:
    """The column that `header` stands for; None where it is not in the table, or lacks a unit that it needs."""
    return _BY_HEADER.get(normal_header(header)) or _BY_HEADER.get(normal_header(header.lower()))


def _all_headers() -> dict[str, Known]:
    found: dict[str, Known] = {}
    for column, alias in COLUMN_ALIASES.items():
        for spelling in alias.spellings:
            for unit, factor in alias.units.items():
                header = f"{spelling}_{unit}" if unit else spelling
                found.setdefault(header, Known(column, factor, alias.role))
        for header in (*alias.alone, column):
            found.setdefault(header, Known(column, 1.0, alias.role))
    return found


_BY_HEADER = _all_headers()
