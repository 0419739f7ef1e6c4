"""minddata_cpu_utilization -> data_queue_samples and data_ops (CPU per operator), telemetry (host and process).

Source: mindspore/ccsrc/minddata/dataset/engine/perf, cpu_sampling.cc (1.2-1.5) and cpu_sampler.cc (1.6 on). Both
multiply the use of operators and of the process by the number of processors: 100 is one core. Only `device_info` is in
per cent of the whole host. An operator that spins on one core of two showed the same (MindSpore 2.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import read_json
from workbench.readers.filled import filled
from workbench.readers.json_values import integer, items, member, number, numbers
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import COPY_AGAIN
from workbench.tables import DATA_OPS, DATA_QUEUE_SAMPLES, TELEMETRY, Note, Reading

SHARE_PER_PERCENT = 0.01
BYTES_PER_MBYTE = 1024.0**2  # cpu_sampler.cc divides the kB of /proc by 1024
US_PER_MS = 1e3
OTHER_THREADS = -1  # op_id of what belongs to no operator

HOST_SHARES = {
    "user_utilization": "host_cpu_user_share",
    "sys_utilization": "host_cpu_system_share",
    "io_utilization": "host_cpu_io_wait_share",
    "idle_utilization": "host_cpu_idle_share",
}
HOST_COUNTS = {"runnable_process": "host_runnable_processes", "context_switch_count": "host_context_switches"}
PROCESS_CORES = {"user_utilization": "process_cpu_user_cores", "sys_utilization": "process_cpu_system_cores"}
MEMORY = {
    "process_memory_info": {
        "rss_mbytes": "process_rss_bytes",
        "pss_mbytes": "process_pss_bytes",
        "vss_mbytes": "process_vss_bytes",
    },
    "system_memory_info": {
        "available_sys_memory_mbytes": "host_memory_available_bytes",
        "total_sys_memory_mbytes": "host_memory_total_bytes",
        "used_sys_memory_mbytes": "host_memory_used_bytes",
    },
}


def sniff_cpu(path: Path, head: bytes) -> bool:
    """A JSON object with the number of processors and a use per operator or host."""
    return head.lstrip()[:1] == b"{" and b'"cpu_processor_num"' in head and b"_utilization" in head


def read_cpu(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the CPU samples of all generations.

    Samples are joined with `time_stamp` (monotonic ms). A use is measured between two samples, so the first sample has
    none: older writers leave it out (one entry fewer), newer ones write 0, which is missing here. MindSpore 1.9 and
    later write two entries per host sample, the second one garbage, and cut two of the lists to the number of time
    stamps: these two then cover only the first half of the run.

    Raises:
        UnreadableFileError: no operator and no host sample can be read.
    """
    value, notes = read_json(path, context, expect=dict)
    times_us = numbers(member(value, "time_stamp")) * US_PER_MS
    samples, ops = _operators(value, times_us)
    telemetry = _telemetry(value, times_us)
    if samples.empty and telemetry.empty:
        raise UnreadableFileError(f"{context.name(path)} holds no CPU sample.", fix=COPY_AGAIN)
    if not len(times_us):
        notes.append(_no_times_note(context.name(path)))
    rank = {"rank_id": context.rank_id}
    host = {"host": f"host of rank {context.rank_id}"}
    return {
        "data_queue_samples": Reading(DATA_QUEUE_SAMPLES.check(samples.assign(**rank)), notes),
        "data_ops": Reading(DATA_OPS.check(ops.assign(**rank)), []),
        "telemetry": Reading(TELEMETRY.check(telemetry.assign(**rank, **host)), []),
    }


def aligned(values: np.ndarray, count: int, *, measured_between: bool) -> np.ndarray:
    """A list of samples as `count` values, one per time stamp; missing where there is none.

    Of twice as many entries as time stamps, every second one is garbage. `measured_between`: the first has no value.
    """
    if count and len(values) == 2 * count:
        values = values[::2]
    if measured_between and count and len(values) == count - 1:
        values = np.concatenate([[np.nan], values])
    aligned_values = np.full(max(count, len(values)), np.nan)
    aligned_values[: len(values)] = values
    if measured_between and len(aligned_values):
        aligned_values[0] = np.nan
    return aligned_values


def _operators(value: Mapping[str, Any], times_us: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """CPU samples of each operator in cores, and their mean."""
    samples, ops = [], []
    for op in items(member(value, "op_info")):
        op_id = integer(op.get("op_id"))
        if op_id is None:
            continue
        user, system = (
            aligned(numbers(member(op, "metrics", name)) * SHARE_PER_PERCENT, len(times_us), measured_between=True)
            for name in ("user_utilization", "sys_utilization")
        )
        width = max(len(user), len(system))
        frame = pd.DataFrame({"op_id": op_id, "sample": np.arange(width)})
        frame["user_cpu_share"], frame["system_cpu_share"] = pd.Series(user), pd.Series(system)
        frame["time_us"] = pd.Series(times_us)
        samples.append(frame)
        if op_id != OTHER_THREADS:
            ops.append({"op_id": op_id, "cpu_share": (frame["user_cpu_share"] + frame["system_cpu_share"]).mean()})
    columns = ["op_id", "sample", "user_cpu_share", "system_cpu_share", "time_us"]
    frame = pd.concat(samples) if samples else pd.DataFrame(columns=columns)
    return frame, pd.DataFrame(ops, columns=["op_id", "cpu_share"]).assign(op_type=pd.NA)


def _telemetry(value: Mapping[str, Any], times_us: np.ndarray) -> pd.DataFrame:
    count = len(times_us)
    series: dict[str, np.ndarray] = {}
    host = member(value, "device_info")
    doubled = count > 0 and any(len(numbers(member(host, name))) == 2 * count for name in (*HOST_SHARES, *HOST_COUNTS))
    for name, metric in HOST_SHARES.items():
        entries = numbers(member(host, name))
        entries = entries[::2] if doubled else entries
        series[metric] = aligned(entries * SHARE_PER_PERCENT, count, measured_between=True)
    for name, metric in HOST_COUNTS.items():
        between = name == "context_switch_count"
        entries = numbers(member(host, name))
        series[metric] = aligned(entries[::2] if doubled else entries, count, measured_between=between)
    for name, metric in PROCESS_CORES.items():
        entries = numbers(member(value, "process_info", name)) * SHARE_PER_PERCENT
        series[metric] = aligned(entries, count, measured_between=True)
    for block, names in MEMORY.items():
        for name, metric in names.items():
            series[metric] = aligned(
                numbers(member(value, block, name)) * BYTES_PER_MBYTE, count, measured_between=False
            )
    processors = number(member(value, "cpu_processor_num"))
    if np.isfinite(processors):
        series["host_processors"] = np.array([processors])
    frames = [
        pd.DataFrame({"metric": metric, "value": values, "time_us": pd.Series(times_us).reindex(range(len(values)))})
        for metric, values in series.items()
        if len(values)
    ]
    frame = pd.concat(frames) if frames else pd.DataFrame(columns=["metric", "value", "time_us"])
    return frame[frame["value"].notna()]


def _no_times_note(file: str) -> Note:
    problem = "The list of sampling times is missing."
    lost = "when the samples were taken, and which entries the writer doubled"
    return Note(file=file, where="member time_stamp", problem=problem, lost=lost, fix=COPY_AGAIN)


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="minddata_cpu",
        meaning="minddata_cpu_utilization: CPU per data operator, of the process and the host",
        tables=("data_queue_samples", "data_ops", "telemetry"),
        sniff=or_named(sniff_cpu, r"minddata_cpu_utilization_\d+\.json"),
        read=filled(read_cpu),
    ),
)
