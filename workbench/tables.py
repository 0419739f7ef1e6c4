"""Every table of the workbench: column, unit in the name, dtype, meaning, raw header.

A reader fills a table from files, an analysis takes tables and returns a frame, and nothing else defines a column.
Times of day are integer nanoseconds since the Unix epoch (`_ns`), durations are float microseconds (`_us`), sizes are
bytes (`_bytes`), fractions lie in [0, 1] (`_share`). An unreadable or absent cell is missing (NaN / <NA>), never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from workbench.errors import MissingColumnsError, UnknownParameterError


@dataclass(frozen=True)
class Column:
    """One column: its name (unit at the end), pandas dtype, meaning, and the header(s) it has in raw files.

    `required=False` columns are filled with missing values where a source does not have them.
    """

    name: str
    dtype: str
    meaning: str
    raw: str | tuple[str, ...] = ()
    required: bool = False

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The headers under which files carry this column, most recent first."""
        return (self.raw,) if isinstance(self.raw, str) else self.raw


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a reader could not use: where it is, what was lost, and what to do."""

    file: str
    where: str  # "line 17", "byte 1024", "column Duration(us)", "whole file"
    problem: str
    lost: str  # what the tables lack because of it
    fix: str

    def __str__(self) -> str:
        problem, lost = (text.rstrip(". ") for text in (self.problem, self.lost))
        return f"{self.file}, {self.where}: {problem}. Lost: {lost}. Fix: {self.fix}"


class Reading(NamedTuple):
    """What a reader returns: a checked table, and notes on everything that it could not use."""

    table: pd.DataFrame
    notes: list[Note]


def _cells(column: pd.Series, dtype: str) -> ExtensionArray | np.ndarray:
    return column.array if column.dtype == dtype else column.astype(dtype).array


def _absent(dtype: str, rows: int) -> ExtensionArray | np.ndarray:
    """`rows` missing values. A thousand small files make a thousand of these: the short ways are the fast ones."""
    if dtype == "float64":
        return np.full(rows, np.nan)
    return pd.array([pd.NA], dtype=dtype).take(np.zeros(rows, dtype=np.intp))


@dataclass(frozen=True)
class Table:
    """A declared table. `fix` says how to collect it when it is missing."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    fix: str

    @property
    def column_names(self) -> list[str]:
        """Names of all columns, in order."""
        return [c.name for c in self.columns]

    def check(self, df: pd.DataFrame) -> pd.DataFrame:
        """Return a copy with exactly these columns and dtypes.

        Columns with `required=False` that `df` lacks are added with missing values; columns that are not declared are
        left out; rows and their order are kept.

        Raises:
            MissingColumnsError: a required column is missing.
        """
        missing = [c.name for c in self.columns if c.required and c.name not in df]
        if missing:
            raise MissingColumnsError(f"Table {self.name} lacks {missing}; it has {list(df)}.", fix=self.fix)
        data = {
            c.name: _cells(df[c.name], c.dtype) if c.name in df else _absent(c.dtype, len(df)) for c in self.columns
        }
        return pd.DataFrame(data, copy=True)

    def empty(self) -> pd.DataFrame:
        """The table without rows, with all columns and dtypes."""
        return _without_rows(self.columns).copy()


@cache  # making it takes milliseconds, and each of thousands of logs has tables without rows
def _without_rows(columns: tuple[Column, ...]) -> pd.DataFrame:
    return pd.DataFrame({c.name: pd.Series(dtype=c.dtype) for c in columns})


def _rank_id() -> Column:
    return Column("rank_id", "int64", "rank in the job (not the card number in the host)", required=True)


def _window() -> Column:
    return Column("window", "Int64", "profile window of this rank, 0 is the earliest")


def _step() -> Column:
    return Column(
        "step", "Int64", "training step; missing where the source knows none", raw=("Step", "Step ID", "Step Id")
    )


STEP_TIME = Table(
    "step_time",
    "One row per rank, profile window and step: where the device time of the step went.",
    (
        _rank_id(),
        _window(),
        _step(),
        Column("computing_us", "float64", "a compute kernel runs", "Computing", required=True),
        Column(
            "communication_not_overlapped_us",
            "float64",
            "communication not hidden by computing",
            "Communication(Not Overlapped)",
            required=True,
        ),
        Column("overlapped_us", "float64", "communication hidden by computing", "Overlapped"),
        Column("communication_us", "float64", "all communication", "Communication"),
        Column("free_us", "float64", "neither computing nor communicating", "Free", required=True),
        Column("stage_us", "float64", "pipeline stage time; missing where the writer does not know it", "Stage"),
        Column("bubble_us", "float64", "waiting for the neighbour stage; missing where unknown", "Bubble"),
        Column(
            "communication_not_overlapped_exclude_receive_us",
            "float64",
            "not overlapped, without receives",
            "Communication(Not Overlapped and Exclude Receive)",
        ),
        Column("preparing_us", "float64", "step start to first device task", "Preparing"),
        Column("step_us", "float64", "length of the step, where the source states it (MindInsight-era step traces)"),
        Column("forward_backward_us", "float64", "first forward to last backward task, likewise", "fp_and_bp"),
        Column("tail_us", "float64", "last backward task to step end, likewise", "tail"),
    ),
    fix="profile with ProfilerActivity.NPU, level Level0 or higher and a schedule, and call step() on each step",
)

KERNELS = Table(
    "kernels",
    "One row per device task, or per CPU operator call of a CPU profile.",
    (
        _rank_id(),
        _window(),
        _step(),
        Column(
            "name",
            "string",
            "kernel or operator name, with its scope where the writer gives one",
            ("Name", "Op Name"),
            required=True,
        ),
        Column("op_type", "string", "operator type", ("Type", "OP Type", "Op Type")),
        Column(
            "accelerator_core",
            "string",
            "AI_CORE, AI_VECTOR_CORE, MIX_AIC, AI_CPU, HCCL, COMMUNICATION, CPU, ...",
            ("Accelerator Core", "Task Type"),
        ),
        Column("is_communication", "boolean", "a collective or send/receive, in parallel to compute rows"),
        Column(
            "start_ns",
            "Int64",
            "start, ns since epoch (or since the capture's base)",
            ("Start Time(us)", "Task Start Time(us)"),
        ),
        Column(
            "duration_us", "float64", "run time on the device", ("Duration(us)", "Task Duration(us)"), required=True
        ),
        Column("wait_us", "float64", "gap to the previous task on the device", ("Wait Time(us)", "Task Wait Time(us)")),
        Column("stream_id", "Int64", "device stream, or host thread", ("Stream ID", "Stream Id")),
        Column("task_id", "Int64", "device task id", ("Task ID", "Task Id")),
        Column("device_id", "Int64", "card in the host", ("Device_id", "Device ID")),
        Column("block_num", "Int64", "blocks of the kernel", ("Block Num", "Block Dim")),
        Column("op_state", "string", "dynamic or static shape", "OP State"),
        Column("input_shapes", "string", "shapes, ';' between tensors, ',' between axes, no quotes", "Input Shapes"),
        Column("input_dtypes", "string", "data types, ';' between tensors", "Input Data Types"),
        Column("output_shapes", "string", "shapes of the outputs", "Output Shapes"),
        Column("output_dtypes", "string", "data types of the outputs", "Output Data Types"),
        Column("cube_utilization_share", "float64", "use of the matrix unit", "cube_utilization(%)"),
        Column("aicore_us", "float64", "time on the matrix cores", ("aicore_time(us)",)),
        Column("aiv_us", "float64", "time on the vector cores", ("aiv_time(us)",)),
        Column("aicore_cycles", "float64", "clock cycles behind aicore_us, all cores", "aic_total_cycles"),
        Column("aiv_cycles", "float64", "clock cycles behind aiv_us, all cores", "aiv_total_cycles"),
    ),
    fix="profile with ProfilerActivity.NPU (or CPU) and level Level1, so that kernel_details.csv is written",
)

KERNEL_TOTALS = Table(
    "kernel_totals",
    "One row per operator type (or operator, where `name` is set): counts and times over a profile window.",
    (
        _rank_id(),
        _window(),
        Column("side", "string", "device or host", required=True),
        Column("op_type", "string", "operator type", ("OP Type", "op_type", "kernel_type"), required=True),
        Column("name", "string", "full operator name; missing in totals by type", ("full_op_name", "full_kernel_name")),
        Column("core_type", "string", "core that ran it", "Core Type"),
        Column("count", "float64", "calls", ("Count", "type_occurrences", "op_occurrences", "execution_frequency")),
        Column("total_us", "float64", "sum of the run times", "Total Time(us)"),
        Column("min_us", "float64", "shortest call", "Min Time(us)"),
        Column("avg_us", "float64", "mean call", "Avg Time(us)"),
        Column("max_us", "float64", "longest call", "Max Time(us)"),
        Column("share", "float64", "share of the summed time of this rank and table", "Ratio(%)"),
        Column("flops", "float64", "floating point operations of one call", "FLOPs"),
        Column("flops_per_s", "float64", "speed of the call", "FLOPS"),
        Column("flops_utilization_share", "float64", "that speed / peak of the device", "FLOPS utilization"),
        Column("source", "string", "kind of the file: totals of several kinds describe the same calls, never add them"),
    ),
    fix="profile at Level1 (op_statistic.csv); a CPU profile always has it (FRAMEWORK/cpu_op_type_info)",
)

GRAPH_OPS = Table(
    "graph_ops",
    "One row per operator of a graph as compiled (or per distinct call of it): what it is, not how long it took.",
    (
        _rank_id(),
        _window(),
        Column("name", "string", "operator name, with its scope where the writer gives one", required=True),
        Column("op_type", "string", "operator type", ("op_type", "kernel_type", "opType")),
        Column("graph_id", "string", "graph it belongs to", ("graph_id", "model_id", "subgraph")),
        Column("task_id", "Int64", "device task id", "task_id"),
        Column("stream_id", "Int64", "device stream", "stream_id"),
        Column("count", "Int64", "calls with these shapes; missing where the file lists each operator once"),
        Column("input_shapes", "string", "shapes, ';' between tensors, ',' between axes"),
        Column("input_dtypes", "string", "data types, ';' between tensors"),
        Column("output_shapes", "string", "shapes of the outputs"),
        Column("output_dtypes", "string", "data types of the outputs"),
        Column("attributes", "string", "further attributes (parallel strategy, ...), JSON"),
    ),
    fix="profile with MindSpore 1.x-2.4 (framework_raw, parallel_strategy) or a CPU profile (FRAMEWORK/cpu_framework)",
)

TRACE_EVENTS = Table(
    "trace_events",
    "One row per complete event of a timeline (Chrome trace form).",
    (
        _rank_id(),
        _window(),
        Column("layer", "string", "process name: CANN, Ascend Hardware, HCCL, Communication, CPU OP, Python, ..."),
        Column("track", "string", "thread name or id inside the layer"),
        Column("name", "string", "event name", required=True),
        Column("category", "string", "the event's `cat`"),
        Column("start_ns", "Int64", "start, ns since the epoch or the trace's own base", required=True),
        Column("duration_ns", "Int64", "length, ns", required=True),
    ),
    fix="profile with the text export (the default), so that trace_view.json is written",
)

COLLECTIVES = Table(
    "collectives",
    "One row per communication operation of a rank.",
    (
        _rank_id(),
        _window(),
        _step(),
        Column("name", "string", "operation name without the group, equal on all ranks of the group", required=True),
        Column("op_type", "string", "allreduce, allgather, reducescatter, alltoall, broadcast, send, receive, ..."),
        Column("group_id", "string", "communication group"),
        Column("is_p2p", "boolean", "send or receive, judged by name"),
        Column("start_ns", "Int64", "start, ns since epoch (or on the device clock)", "Start Timestamp(us)"),
        Column("elapsed_us", "float64", "start to end", "Elapse Time(ms)", required=True),
        Column(
            "transit_us",
            "float64",
            "moving data; missing where the writer's 0 contradicts its bandwidth part",
            "Transit Time(ms)",
        ),
        Column("wait_us", "float64", "waiting for other ranks", "Wait Time(ms)"),
        Column(
            "synchronization_us",
            "float64",
            "wait before the first transfer, part of wait_us",
            "Synchronization Time(ms)",
        ),
        Column("idle_us", "float64", "neither transit nor wait", "Idle Time(ms)"),
        Column("size_bytes", "float64", "bytes moved, all transports, SDMA not counted twice"),
        Column("transport", "string", "transport that moved most: HCCS, RDMA, PCIE, SIO, SDMA, SOCKET"),
        Column("bandwidth_bytes_per_s", "float64", "of that transport, from the bandwidth part", "Bandwidth(GB/s)"),
    ),
    fix="profile at Level1 in a job with collectives, so that communication.json is written",
)

LINKS = Table(
    "links",
    "One row per link, operation type and statistic of a rank's communication matrix.",
    (
        _rank_id(),
        _window(),
        _step(),
        Column("op_type", "string", "operation type of the row (`reduce` of the file also means reducescatter)"),
        Column("op_name", "string", "operation the row was taken from", ("op_name", "Op Name")),
        Column("group_id", "string", "communication group"),
        Column("statistic", "string", "total, top1, middle, bottom1..3 (ranked by bandwidth), or op"),
        Column("src_rank", "Int64", "sender, global rank where `is_global`, else number in the group", required=True),
        Column("dst_rank", "Int64", "receiver, likewise", required=True),
        Column("is_global", "boolean", "the two ranks are ranks of the job"),
        Column("transport", "string", "LOCAL (inside the card), HCCS, PCIE, RDMA, SIO", "Transport Type"),
        Column("size_bytes", "float64", "bytes moved", "Transit Size(MB)"),
        Column("transit_us", "float64", "time moving them", "Transit Time(ms)"),
        Column("bandwidth_bytes_per_s", "float64", "as written", "Bandwidth(GB/s)"),
    ),
    fix="profile at Level1 in a job with collectives, so that communication_matrix.json is written",
)

MEMORY_TIMELINE = Table(
    "memory_timeline",
    "One row per sample of a memory curve: device pool, module, or process.",
    (
        _rank_id(),
        _window(),
        Column(
            "time_ns",
            "Int64",
            "ns since epoch, or the source's own clock",
            ("Timestamp(us)", "Timestamp(ns)"),
            required=True,
        ),
        Column("component", "string", "MindSpore, GE, MindSpore+GE, PTA, APP, a module, CPU, process", "Component"),
        Column("allocated_bytes", "float64", "in use by tensors", ("Total Allocated(MB)", "Total Allocated(Byte)")),
        Column("reserved_bytes", "float64", "held by the pool", ("Total Reserved(MB)", "Total Reserved(Byte)")),
        Column("active_bytes", "float64", "in use or waiting for a stream", ("Total Active(MB)", "Total Active(Byte)")),
        Column("device", "string", "device of the row", ("Device Type", "Device")),
    ),
    fix="profile with profile_memory=True",
)

TENSOR_LIFETIMES = Table(
    "tensor_lifetimes",
    "One row per allocation: size, birth, death, address where known.",
    (
        _rank_id(),
        _window(),
        Column("name", "string", "operator or node that allocated", ("Name", "node_name", "op_name"), required=True),
        Column("size_bytes", "float64", "size of the block", ("Size(KB)", "size", "size_bytes"), required=True),
        Column(
            "allocated_at",
            "Int64",
            "allocation, in `clock` units",
            ("Allocation Time(us)", "start_time_stamp", "alloc_time"),
        ),
        Column(
            "freed_at",
            "Int64",
            "release, in `clock` units; missing = never freed",
            ("Release Time(us)", "end_time_stamp", "free_time"),
        ),
        Column(
            "last_used_at",
            "Int64",
            "last task that reads or writes the block, in `clock` units; missing where the source does not tell",
            ("last_use_time", "last_used_at", "last_used_time"),
        ),
        Column("clock", "string", "ns (since epoch) or task (a counter of tasks)"),
        Column("address", "string", "device address, hexadecimal", ("device_addr", "addr")),
        Column("stream_id", "string", "stream", ("Stream Ptr", "stream_id")),
        Column("device_id", "Int64", "card", "device_id"),
        Column(
            "allocated_total_bytes", "float64", "pool in use after the allocation", "Allocation Total Allocated(MB)"
        ),
        Column(
            "reserved_total_bytes", "float64", "pool reserved after the allocation", "Allocation Total Reserved(MB)"
        ),
        Column("kind", "string", "pool or memory type", ("type", "pool_type")),
        Column("stack", "string", "where in the user's code, if recorded", "python_stack"),
    ),
    fix="profile with profile_memory=True, or run with MS_ALLOC_CONF=memory_tracker:True",
)

DATA_OPS = Table(
    "data_ops",
    "One row per operator of a data pipeline: queue fill and CPU use.",
    (
        _rank_id(),
        Column("op_id", "Int64", "operator id, 0 is the end that training reads", "op_id", required=True),
        Column("op_type", "string", "operator, without a trailing 'Op'", "op_type", required=True),
        Column("num_workers", "Int64", "parallel workers", "num_workers"),
        Column("parent_id", "Int64", "operator that reads from this one; missing at the root", "parent_id"),
        Column(
            "queue_capacity",
            "float64",
            "slots of the output queue; missing for an operator without one",
            "output_queue_length",
        ),
        Column("queue_mean", "float64", "mean fill of the output queue, entries", "output_queue_average_size"),
        Column("queue_fill_share", "float64", "mean fill / capacity"),
        Column("queue_empty_share", "float64", "share of samples in which the queue was empty"),
        Column("cpu_share", "float64", "mean use of one core by the operator's threads (2.0 = two cores)"),
        Column("samples", "Int64", "queue samples behind the figures"),
        Column("sample_interval_us", "float64", "time between them"),
    ),
    fix="record with Recorder(profile_data=True) or probes.profile_pipeline; "
    "on Ascend with data_process=True, no schedule",
)

DATA_QUEUE_SAMPLES = Table(
    "data_queue_samples",
    "One row per sampling instant and operator of a data pipeline.",
    (
        _rank_id(),
        Column("op_id", "Int64", "operator id", required=True),
        Column("sample", "Int64", "index of the sample", required=True),
        Column("time_us", "float64", "monotonic clock of the process; missing where not recorded"),
        Column("queue_size", "float64", "entries in the output queue"),
        Column("user_cpu_share", "float64", "user CPU of the operator's threads, cores"),
        Column("system_cpu_share", "float64", "system CPU of the operator's threads, cores"),
    ),
    fix=DATA_OPS.fix,
)

DATA_BATCHES = Table(
    "data_batches",
    "One row per batch that left a data pipeline.",
    (
        _rank_id(),
        Column("batch", "Int64", "batch number, from 1", required=True),
        Column("pipeline_us", "float64", "how long the caller waited for the batch"),
        Column("push_us", "float64", "pushing it to the device"),
        Column("total_us", "float64", "both"),
        Column("queue_size", "float64", "batches ready when this one was taken"),
        Column("queue_capacity", "float64", "slots of that queue"),
        Column("device_wait_us", "float64", "how long the device waited for it (one row per dequeue)"),
        Column("device_queue_size", "float64", "batches in the device queue then, 0 = it was empty"),
        Column("time_us", "float64", "monotonic clock of the process"),
    ),
    fix=DATA_OPS.fix,
)

HOST_OPS = Table(
    "host_ops",
    "One row per host-side call or stage: runtime API, framework, data preparation.",
    (
        _rank_id(),
        _window(),
        _step(),
        Column(
            "level",
            "string",
            "acl, node, runtime, communication, dataset, framework, ...",
            ("Level", "module_name"),
            required=True,
        ),
        Column("name", "string", "call", ("API Name", "Operation", "event"), required=True),
        Column("count", "float64", "calls", ("Count", "Occurrences")),
        Column("total_us", "float64", "sum; nested calls are counted in each level", "Time(us)"),
        Column("avg_us", "float64", "mean", ("Avg(us)", "Avg. time (us)")),
        Column("min_us", "float64", "shortest", "Min(us)"),
        Column("max_us", "float64", "longest", "Max(us)"),
    ),
    fix="profile at Level1 (api_statistic.csv), or with data_process=True (dataset.csv)",
)

TRAINING_STEPS = Table(
    "training_steps",
    "One row per rank and training step, from the Recorder or from a training log.",
    (
        _rank_id(),
        Column("step", "int64", "global step, from 1", required=True),
        Column("epoch", "Int64", "epoch, from 1"),
        Column("time_ns", "Int64", "end of the step, ns since epoch (or the log line's time)"),
        Column("loss", "float64", "training loss of this rank, nats per token where it is a language model"),
        Column("loss_finite", "boolean", "False where the recorded loss was NaN or infinite"),
        Column("learning_rate", "float64", "rate that this step used"),
        Column("gradient_norm", "float64", "global L2 norm before clipping"),
        Column("parameter_norm", "float64", "global L2 norm of the parameters, as last measured"),
        Column("gradient_parameter_ratio", "float64", "gradient_norm / parameter_norm"),
        Column("overflow", "boolean", "a gradient was not finite"),
        Column("loss_scale", "float64", "loss scale used"),
        Column("tokens", "float64", "tokens of this rank's batch"),
        Column("samples", "float64", "samples of this rank's batch"),
        Column(
            "step_us",
            "float64",
            "from the end of the previous step's work to the end of this one, callbacks excluded: data_wait_us + run",
        ),
        Column("data_wait_us", "float64", "part of step_us spent waiting for the batch"),
        Column(
            "callbacks_us", "float64", "other callbacks since the step before: checkpoint saving, evaluation, logging"
        ),
        Column("compiled", "boolean", "a graph was compiled during the step: leave it out of timing statistics"),
        Column("host_memory_bytes", "float64", "resident memory of the process"),
        Column("device_allocated_bytes", "float64", "device memory in use by tensors"),
        Column("device_reserved_bytes", "float64", "device memory held by the pool"),
        Column(
            "flops_per_s", "float64", "model floating point operations per second and device, where the log states it"
        ),
        Column("samples_per_s", "float64", "samples per second and device, where the source states it"),
        Column("tokens_per_s", "float64", "tokens per second and device, where the source states it"),
        Column("sequence_length", "float64", "tokens per sample of the batch, padding included, where stated"),
        Column("source", "string", "file the row came from"),
    ),
    fix="train with workbench.probes.Recorder, or give the training log",
)

PARAMETER_GROUPS = Table(
    "parameter_groups",
    "One row per rank, step and parameter group: gradient and parameter norms.",
    (
        _rank_id(),
        Column("step", "int64", "global step", required=True),
        Column("group", "string", "parameter group", required=True),
        Column("gradient_norm", "float64", "L2 norm over the group, before clipping"),
        Column("parameter_norm", "float64", "L2 norm of the group's parameters, as last measured"),
        Column("gradient_parameter_ratio", "float64", "gradient_norm / parameter_norm"),
    ),
    fix="train with workbench.probes.RecordedStep and Recorder",
)

EVENTS = Table(
    "events",
    "One row per interval or mark in a run.",
    (
        _rank_id(),
        Column(
            "kind",
            "string",
            "start, compile, eval, inline_decision, checkpoint, profile, gc, gap, alert, end",
            required=True,
        ),
        Column("start_ns", "Int64", "ns since epoch", required=True),
        Column("duration_us", "float64", "0 for a mark; missing while it is open"),
        Column("step", "Int64", "training step it belongs to"),
        Column("name", "string", "what: checkpoint file, subset, phase, message"),
        Column("detail", "string", "further fields, JSON"),
    ),
    fix="train with workbench.probes.Recorder",
)

EVALS = Table(
    "evals",
    "One row per evaluated model state, subset and metric.",
    (
        Column("kind", "string", "checkpoint, inline, post_training, imported", required=True),
        Column("checkpoint", "string", "checkpoint file stem; missing for inline evaluation"),
        Column("step", "Int64", "training step of the model state"),
        Column("subset", "string", "subset of the evaluation data", required=True),
        Column("metric", "string", "name in the metric catalogue", required=True),
        Column("value", "float64", "estimate", required=True),
        Column("low", "float64", "lower end of the confidence interval"),
        Column("high", "float64", "upper end of the confidence interval"),
        Column("confidence", "float64", "level of the interval, e.g. 0.95"),
        Column("n", "Int64", "samples behind the value"),
        Column("documents", "Int64", "documents (clusters) behind the value"),
        Column("seconds", "float64", "wall time of the subset's evaluation, compilation apart"),
        Column("time_ns", "Int64", "when it was finished"),
        Column("evaluation_id", "string", "id of the evaluation that wrote the row"),
        Column("protocol", "string", "steps done and versions, JSON"),
    ),
    fix="name an evaluation task with Recorder(evaluation=...), see docs/evaluation.md; then `workbench watch RUN` or "
    "`workbench report RUN` evaluate every checkpoint",
)

EVAL_SAMPLES = Table(
    "eval_samples",
    "One row per evaluated model state and sample: what paired comparisons need.",
    (
        Column("checkpoint", "string", "checkpoint file stem"),
        Column("step", "Int64", "training step of the model state"),
        Column("subset", "string", "subset of the evaluation data", required=True),
        Column("sample_id", "string", "stable id of the sample", required=True),
        Column("document_id", "string", "document (cluster) that the sample was cut from"),
        Column("length_tokens", "float64", "tokens of the sample"),
        Column("scored_tokens", "float64", "tokens with a loss"),
        Column("scored_bytes", "float64", "bytes that those tokens stand for"),
        Column("loss_nats", "float64", "sum of the losses of the scored tokens", required=True),
        Column("correct_tokens", "float64", "scored tokens that were the most likely one"),
        Column(
            "position_losses",
            "string",
            "loss and scored tokens by place in the sample: JSON, [last position, nats, tokens] per bin of places that "
            "ends at a power of two",
        ),
        Column("preview", "string", "beginning of the sample"),
    ),
    fix=EVALS.fix,
)

VARIANT_SAMPLES = Table(
    "variant_samples",
    "One row per model state, sample and variant of its input (perturbed, longer context) with the same targets.",
    (
        Column("dimension", "string", "robustness, context_length", required=True),
        Column("variant", "string", "what was done to the input; `original` is the input as it was", required=True),
        *EVAL_SAMPLES.columns,
    ),
    fix="call `workbench post-training RUN`, see docs/post_training.md",
)

GENERATIONS = Table(
    "generations",
    "One row per generated text, from the workbench's own generation or from a JSONL file of any model's outputs.",
    (
        Column("checkpoint", "string", "checkpoint file stem, or the model's name"),
        Column("step", "Int64", "training step of the model state"),
        Column("subset", "string", "subset or task that the prompt belongs to", required=True),
        Column("sample_id", "string", "stable id of the prompt", required=True),
        Column("repeat", "Int64", "number of this text among those of the same prompt, from 0"),
        Column("prompt", "string", "what the model was given"),
        Column("output", "string", "what it wrote, without the prompt", required=True),
        Column("finish_reason", "string", "stop, length, ...; missing where the source does not tell"),
        Column("output_tokens", "float64", "tokens written"),
        Column(
            "expects", "string", "what the output must be: python, json, text; missing: judged by the subset's name"
        ),
        Column("constraints", "string", "instructions that can be checked, a JSON list (docs/post_training.md)"),
        Column("temperature", "float64", "0 where the most likely token was taken each time"),
        Column("source", "string", "file the row came from"),
    ),
    fix="call `workbench post-training RUN`, or put a JSONL file of outputs into the run, see docs/post_training.md",
)

LAYER_STATISTICS = Table(
    "layer_statistics",
    "One row per rank, step, layer and range of token positions: the layer's output on that step's batch.",
    (
        _rank_id(),
        Column("step", "int64", "training step", required=True),
        Column("layer", "string", "name of the cell", required=True),
        Column("layer_index", "Int64", "its place in the network, from 0"),
        Column("first_position", "Int64", "first token position of the range; missing in rows over all positions"),
        Column("last_position", "Int64", "last token position of the range, likewise"),
        Column("mean", "float64", "mean of the output's elements"),
        Column("spread", "float64", "their standard deviation"),
        Column("max_abs", "float64", "largest absolute value"),
        Column("zero_share", "float64", "elements that are exactly 0"),
    ),
    fix="train with workbench.probes.LayerProbe in the callbacks, see docs/layers.md",
)

SUSPECT_BATCHES = Table(
    "suspect_batches",
    "One row per sample of the batches at and before a jump of the loss.",
    (
        _rank_id(),
        Column("spike_step", "int64", "step at which the loss jumped", required=True),
        Column("step", "int64", "step that trained on the sample", required=True),
        Column("row", "int64", "row in the batch, from 0", required=True),
        Column("sample_id", "string", "id of the sample, where the data has one"),
        Column("fingerprint", "string", "hash of the sample's inputs: the same sample, the same hash", required=True),
        Column("batch_loss", "float64", "training loss of that step"),
        Column("loss", "float64", "loss of the sample alone, scored after the jump, nats per token"),
        Column("preview", "string", "beginning of the sample"),
    ),
    fix="train with workbench.probes.BatchWatch in the callbacks, see docs/inline_evaluation.md",
)

TELEMETRY = Table(
    "telemetry",
    "One row per sample of a host or device metric.",
    (
        Column("host", "string", "host name or number", required=True),
        Column("rank_id", "Int64", "rank, where the metric belongs to one"),
        Column("time_ns", "Int64", "ns since epoch"),
        Column("step", "Int64", "training step, where the source has it instead of a time"),
        Column("time_us", "float64", "monotonic clock of the host, where the source has it instead of a time of day"),
        Column("device_id", "Int64", "card in the host"),
        Column("metric", "string", "name with unit: host_cpu_share, device_temperature_celsius, ...", required=True),
        Column("value", "float64", "value", required=True),
    ),
    fix="record with Recorder(telemetry=True), or give a CSV with time or step, host or rank, and metric columns",
)

LOG_MESSAGES = Table(
    "log_messages",
    "One row per log line that says something: time-outs, memory, slow data, compilation, saving, settings.",
    (
        Column("rank_id", "Int64", "rank, from the file name or the line"),
        Column("file", "string", "file", required=True),
        Column("line", "int64", "line number, from 1", required=True),
        Column("time_ns", "Int64", "time in the line, ns since epoch, its zone taken as UTC"),
        Column("level", "string", "DEBUG, INFO, WARNING, ERROR, CRITICAL"),
        Column("module", "string", "ME, MD, HCCL, mindformers, ..."),
        Column("kind", "string", "word of workbench.readers.logs.MESSAGE_KINDS", required=True),
        Column("step", "Int64", "training step, where the line or its neighbours tell it"),
        Column("text", "string", "the line without its prefix"),
        Column("fields", "string", "numbers of the line, JSON, units in the keys"),
    ),
    fix="give the training log (worker_<rank>.log of msrun)",
)

DATA_MIX = Table(
    "data_mix",
    "One row per change of the sampling mix and source: the weight that holds from this step on.",
    (
        Column("from_step", "Int64", "first step with this weight", required=True),
        Column("source", "string", "data source", required=True),
        Column("weight_share", "float64", "share of the samples drawn from it", required=True),
        Column("file", "string", "file the row came from"),
    ),
    fix="give a CSV with the columns from_step, source, weight",
)

DATA_SAMPLES = Table(
    "data_samples",
    "One row per sample of a training data set, those that cannot be used included.",
    (
        Column("dataset", "string", "name of the data set", required=True),
        Column("sample", "Int64", "number of the sample in the data set, from 0", required=True),
        Column("file", "string", "file that it stands in"),
        Column("place", "Int64", "line, element or row in that file, from 1"),
        Column("subset", "string", "subset that it belongs to"),
        Column("problem", "string", "why it cannot be used; missing where it can"),
        Column("characters", "float64", "characters of its text"),
        Column("size_bytes", "float64", "bytes of its text in UTF-8, or of its tokens where there is no text"),
        Column("tokens", "float64", "tokens; missing where no tokenizer was given"),
        Column("unknown_tokens", "float64", "tokens that stand for text which the tokenizer does not know"),
        Column("byte_tokens", "float64", "tokens for single bytes of characters that the vocabulary lacks"),
        Column("is_empty", "boolean", "no text but white space, or no token"),
        Column("digest", "string", "hash of the text without case and white space: equal for exact duplicates"),
        Column("near_group", "Int64", "first sample of its group of near duplicates; missing where it is alone"),
        Column("near_checked", "boolean", "it was compared with the others for near duplicates"),
        Column("process_us", "float64", "time to tokenize or process it"),
        Column("training_length_tokens", "float64", "tokens that training keeps of a sample"),
    ),
    fix="look at the data with `workbench data health DATA --run RUN`",
)

SAMPLE_IDS = Table(
    "sample_ids",
    "One row per sample that a training step used.",
    (
        _rank_id(),
        Column("step", "int64", "training step", required=True),
        Column("epoch", "Int64", "epoch, from 1"),
        Column("position", "int64", "place in the batch of this rank, from 0", required=True),
        Column("sample", "Int64", "number of the sample in the data set", required=True),
        Column("subset", "string", "subset that it belongs to"),
    ),
    fix="record with Recorder(samples=SampleColumns(...))",
)

SERIES = Table(
    "series",
    "One row per cell of a CSV beside the logs whose columns are none of the above: long form.",
    (
        Column("file", "string", "file", required=True),
        Column("row", "int64", "data row in the file, from 0", required=True),
        Column("column", "string", "header as written", required=True),
        Column("value", "float64", "number; missing where the cell is text"),
        Column("text", "string", "cell as written"),
    ),
    fix="put the CSV beside the logs",
)

SETTINGS = Table(
    "settings",
    "One row per setting of the run: from run.json, profiler_info, name/value files, YAML and log lines.",
    (
        Column("name", "string", "dotted name", required=True),
        Column("value", "string", "value as text", required=True),
        Column("rank_id", "Int64", "rank it was read for"),
        Column("source", "string", "file it came from"),
    ),
    fix="train with workbench.probes.Recorder(config=...), or put the YAML beside the logs",
)

OPERATIONS = Table(
    "operations",
    "One row per operation of a step as the replay takes it: what ran where, in which queue, and with whom it waits.",
    (
        _rank_id(),
        _step(),
        Column("op_type", "string", "type of the operation, as recorded", "optype", required=True),
        Column("name", "string", "kernel or collective, where it has a name of its own"),
        Column("role", "string", "compute, collective, send or receive", required=True),
        Column("lane", "string", "queue of the rank in which operations run one after the other", required=True),
        Column("start_ns", "Int64", "start, ns since epoch (or since the step's first start)", required=True),
        Column("duration_us", "float64", "start to end, waiting included", "duration", required=True),
        Column("dp_rank", "Int64", "place among the data-parallel ranks", "dp_rank"),
        Column("stage", "Int64", "pipeline stage", "stage"),
        Column("micro_batch", "Int64", "micro-batch", "mb_id"),
        Column("sequence", "Int64", "number among the operations of this type, rank and step", "seq_id"),
        Column("group_id", "string", "operations of a step with the same one start together; missing: waits for none"),
        Column("size_bytes", "float64", "bytes moved by a communication operation"),
        Column("latency_us", "float64", "time of a communication operation apart from moving and waiting"),
    ),
    fix="profile at Level1 (kernel_details.csv, communication.json), or give a StragglerAnalysis trace (Parquet)",
)

CHECKPOINT_FILES = Table(
    "checkpoint_files",
    "One row per checkpoint file that lies there now, with what its structure shows; looked at with each diagnosis.",
    (
        Column("file", "string", "file, relative to the run", required=True),
        Column("checkpoint", "string", "the checkpoint that it is part of: one name for all its files", required=True),
        Column("series", "string", "checkpoints that differ in their numbers only share it", required=True),
        Column("shard", "string", "part of the checkpoint, such as rank_3; missing where it is one file"),
        Column("shards", "Int64", "parts that the file's name tells (00001-of-00005)"),
        Column("step", "Int64", "training step, where the name or the recorded saves tell it"),
        Column("size_bytes", "Int64", "size found", required=True),
        Column("least_bytes", "Int64", "size that a cut file would have at least, as far as its beginning tells"),
        Column("modified_ns", "Int64", "last change, ns since epoch", required=True),
        Column("damage", "string", "cut_short or garbled; missing where it is whole"),
        Column("problem", "string", "what is wrong with it"),
    ),
    fix="diagnose the run where its checkpoints lie (checkpoints/, or checkpoint_dir in run.json)",
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        STEP_TIME, KERNELS, KERNEL_TOTALS, GRAPH_OPS, TRACE_EVENTS, COLLECTIVES, LINKS, MEMORY_TIMELINE,
        TENSOR_LIFETIMES, DATA_OPS, DATA_QUEUE_SAMPLES, DATA_BATCHES, HOST_OPS, TRAINING_STEPS,
        PARAMETER_GROUPS, EVENTS, EVALS, EVAL_SAMPLES, VARIANT_SAMPLES, GENERATIONS,
        LAYER_STATISTICS, SUSPECT_BATCHES, TELEMETRY, LOG_MESSAGES, DATA_MIX, DATA_SAMPLES, SAMPLE_IDS,
        SERIES, SETTINGS, OPERATIONS, CHECKPOINT_FILES,
    )
}  # fmt: skip


def table(name: str) -> Table:
    """The declaration of table `name`.

    Raises:
        UnknownParameterError: there is no such table.
    """
    if name not in TABLES:
        raise UnknownParameterError(f"There is no table {name!r}.", fix=f"use one of {sorted(TABLES)}")
    return TABLES[name]
