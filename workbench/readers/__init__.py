"""Readers: files -> tables. `ALL_KINDS` joins the kinds of all reader modules; the first kind that matches a file wins.

A reader module lists its kinds in `KINDS` and is named here, the more specific modules first.
"""

from __future__ import annotations

from workbench.readers import (
    cluster_output,
    communication,
    data_samples,
    database,
    event_files,
    generated_text,
    host_info,
    host_ops,
    host_profile,
    kernels,
    legacy_facts,
    legacy_hccl,
    legacy_steps,
    legacy_tasks,
    legacy_totals,
    logs,
    memory,
    memory_tracker,
    minddata,
    minddata_batches,
    minddata_cpu,
    minddata_summary,
    monitor_tables,
    parallel_strategy,
    profiler_info,
    run_directory,
    run_extras,
    runtime_profiler,
    series,
    series_records,
    settings_files,
    step_time,
    straggler_trace,
    trace,
    unused_tables,
)
from workbench.readers.kinds import FileContext, FileKind

_PROFILE = (cluster_output, step_time, kernels, host_ops, memory, communication, profiler_info, database, unused_tables)
_PIPELINE = (minddata, minddata_summary, minddata_cpu, minddata_batches)
_OLD_PROFILE = (
    legacy_steps, legacy_hccl, legacy_totals, legacy_tasks, legacy_facts, parallel_strategy, host_info,
)  # fmt: skip
_HOST = (host_profile, runtime_profiler, memory_tracker, monitor_tables, event_files)
MODULES = (
    run_directory, data_samples, run_extras, generated_text, straggler_trace, *_PROFILE, *_PIPELINE, *_OLD_PROFILE,
    *_HOST, trace, logs, settings_files, series, series_records,
)  # fmt: skip
ALL_KINDS: tuple[FileKind, ...] = tuple(kind for module in MODULES for kind in module.KINDS)

__all__ = ["ALL_KINDS", "FileContext", "FileKind"]
