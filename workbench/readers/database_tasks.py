"""Recorded tasks, calls and memory samples in a profiler's database -> our tables. Times in it are ns since epoch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.readers.database_analysis import strings
from workbench.readers.host_ops import LEVEL_NAMES
from workbench.readers.kinds import FileContext
from workbench.readers.profiler_info import flattened
from workbench.readers.recognise import reading
from workbench.readers.sqlite_file import SqliteFile
from workbench.tables import (
    HOST_OPS,
    KERNELS,
    MEMORY_TIMELINE,
    SETTINGS,
    TELEMETRY,
    TENSOR_LIFETIMES,
    Reading,
)

NONE = 4294967295
COUNTERS = {  # name in TASK_PMU_INFO -> column, factor; its times are ns
    "aic_total_time": ("aicore_us", 1e-3),
    "aiv_total_time": ("aiv_us", 1e-3),
    "aic_total_cycles": ("aicore_cycles", 1.0),
    "aiv_total_cycles": ("aiv_cycles", 1.0),
}


def kernels(db: SqliteFile, context: FileContext) -> Reading | None:
    """Compute tasks and, beside them, communication operations; the step is that in which a task starts."""
    if not (db.has("COMPUTE_TASK_INFO") and db.has("TASK")):
        return None
    rows = pd.concat([_compute_tasks(db), _communication_tasks(db)], ignore_index=True)
    start, end = db.integers(rows.start, "startNs"), db.integers(rows.end, "endNs")
    rows = rows.assign(
        start_ns=start,
        duration_us=((end - start) / 1000).astype("float64"),
        step=_steps_at(db, start),
        **{c: _ids(db, rows[c], c) for c in ("stream_id", "task_id", "device_id", "block_num")},
    )
    rows = rows.sort_values("start_ns", kind="stable", ignore_index=True)
    return reading(KERNELS, rows, context, [])


def api_calls(db: SqliteFile, context: FileContext) -> Reading | None:
    """Host-side calls per level and name: count, sum, mean, shortest, longest us. Calls are nested over the levels."""
    if not db.has("CANN_API"):
        return None
    raw = db.frame("CANN_API", start="startNs", end="endNs", kind="type", name="name")
    levels = _codes(db, "ENUM_API_TYPE")
    us = (db.integers(raw.end, "table CANN_API") - db.integers(raw.start, "table CANN_API")) / 1000
    calls = pd.DataFrame(
        {
            "level": _words(raw.kind, levels).replace(LEVEL_NAMES),
            "name": _words(raw["name"], strings(db)),
            "us": us.astype("float64"),
        }
    )
    rows = calls.groupby(["level", "name"], sort=False).us.agg(["count", "sum", "mean", "min", "max"]).reset_index()
    rows.columns = ["level", "name", "count", "total_us", "avg_us", "min_us", "max_us"]
    return reading(HOST_OPS, rows, context, [])


def memory_curves(db: SqliteFile, context: FileContext) -> Reading | None:
    """Memory of pools (component as in memory_record.csv), of the process (`APP`) and of modules (`module:<name>`)."""
    words = strings(db)
    parts = []
    if db.has("MEMORY_RECORD"):
        raw = db.frame(
            "MEMORY_RECORD", component="component", time="timestamp", allocated="totalAllocated",
            reserved="totalReserved", active="totalActive", device="deviceId",
        )  # fmt: skip
        parts.append(raw.assign(component=_words(raw.component, words)))
    elif db.has("NPU_OP_MEM"):
        raw = db.frame(
            "NPU_OP_MEM", component="component", time="timestampNs", allocated="totalAllocate",
            reserved="totalReserve", device="deviceId",
        )  # fmt: skip
        parts.append(raw.assign(component=_words(raw.component, words)))
    if db.has("NPU_MEM"):
        raw = db.frame("NPU_MEM", component="type", time="timestampNs", reserved="hbm", device="deviceId")
        kinds = _words(raw.component, _codes(db, "ENUM_MEMORY") | words)
        parts.append(raw.assign(component=kinds.replace({"app": "APP"})))
    if db.has("NPU_MODULE_MEM"):
        raw = db.frame(
            "NPU_MODULE_MEM", component="moduleId", time="timestampNs", reserved="totalReserved", device="deviceId"
        )
        parts.append(raw.assign(component="module:" + _words(raw.component, _codes(db, "ENUM_MODULE"))))
    if not parts:
        return None
    rows = pd.concat(parts, ignore_index=True).reindex(
        columns=["component", "time", "allocated", "reserved", "active", "device"]
    )
    sizes = {f"{c}_bytes": db.floats(rows[c], f"memory, {c}") for c in ("allocated", "reserved", "active")}
    sizes = {name: values.mask(values < 0) for name, values in sizes.items()}
    rows = rows.assign(
        time_ns=db.integers(rows.time, "memory, timestamp"), device="NPU:" + rows.device.astype("string"), **sizes
    )
    return reading(MEMORY_TIMELINE, rows, context, [])


def lifetimes(db: SqliteFile, context: FileContext) -> Reading | None:
    """Allocations of the framework with birth and death in ns since epoch, sizes in bytes."""
    if not db.has("OP_MEMORY"):
        return None
    raw = db.frame(
        "OP_MEMORY", name="name", size="size", born="allocationTime", freed="releaseTime", stream="streamPtr",
        device="deviceId", allocated="allocationTotalAllocated", reserved="allocationTotalReserved",
    )  # fmt: skip
    rows = pd.DataFrame(
        {
            "name": _words(raw["name"], strings(db)),
            "size_bytes": db.floats(raw["size"], "table OP_MEMORY, size"),
            "allocated_at": db.integers(raw.born, "table OP_MEMORY, allocationTime"),
            "freed_at": db.integers(raw.freed, "table OP_MEMORY, releaseTime"),
            "clock": "ns",
            "stream_id": raw.stream.astype("string"),
            "device_id": _ids(db, raw.device, "device"),
            "allocated_total_bytes": db.floats(raw.allocated, "table OP_MEMORY"),
            "reserved_total_bytes": db.floats(raw.reserved, "table OP_MEMORY"),
        }
    )
    return reading(TENSOR_LIFETIMES, rows, context, [])


def clocks(db: SqliteFile, context: FileContext) -> Reading | None:
    """Clock of the device's cores: metric `device_aicore_frequency_mhz`."""
    if not db.has("AICORE_FREQ"):
        return None
    raw = db.frame("AICORE_FREQ", time="timestampNs", value="freq", device="deviceId")
    hosts = [str(h) for h in db.frame("HOST_INFO", name="hostName")["name"] if h]
    rows = pd.DataFrame(
        {
            "host": hosts[0] if hosts else "unknown",
            "rank_id": context.rank_id,
            "time_ns": db.integers(raw.time, "table AICORE_FREQ, timestampNs"),
            "device_id": _ids(db, raw.device, "device"),
            "metric": "device_aicore_frequency_mhz",
            "value": db.floats(raw.value, "table AICORE_FREQ, freq"),
        }
    ).sort_values("time_ns", kind="stable")
    return reading(TELEMETRY, rows, context, [])


def settings(db: SqliteFile, context: FileContext) -> Reading | None:
    """Chip, host and the writer's own names and values."""
    chips = db.frame("NPU_INFO", id="id", name="name")
    hosts = db.frame("HOST_INFO", name="hostName")
    own = db.frame("META_DATA", name="name", value="value")
    values: dict[str, object] = {f"npu.{r.id}": r.name for r in chips.itertuples(index=False)}
    if len(hosts):
        values["host"] = hosts["name"][0]
    values |= {str(r.name): r.value for r in own.itertuples(index=False)}
    if not values:
        return None
    rows = pd.DataFrame(flattened(values), columns=["name", "value"])
    return reading(SETTINGS, rows.assign(rank_id=context.rank_id, source=db.file), context, [])


def _compute_tasks(db: SqliteFile) -> pd.DataFrame:
    words = strings(db)
    info = db.frame(
        "COMPUTE_TASK_INFO", task="globalTaskId", name="name", op_type="opType", accelerator_core="taskType",
        block_num=("blockNum", "blockDim", "block_dim"), input_shapes="inputShapes", input_dtypes="inputDataTypes",
        output_shapes="outputShapes", output_dtypes="outputDataTypes",
    )  # fmt: skip
    texts = ["name", "op_type", "accelerator_core", "input_shapes", "input_dtypes", "output_shapes", "output_dtypes"]
    info = info.assign(**{c: _words(info[c], words).replace({"N/A": pd.NA, "": pd.NA}) for c in texts})
    info = info.assign(**{c: info[c].str.strip('"') for c in ("input_shapes", "output_shapes")})
    tasks = db.frame(
        "TASK", task="globalTaskId", start="startNs", end="endNs", stream_id="streamId", task_id="taskId",
        device_id="deviceId",
    )  # fmt: skip
    rows = info.merge(tasks.drop_duplicates("task"), on="task", how="inner")
    counters = _counters(db, words)
    return rows.merge(counters, on="task", how="left").assign(is_communication=False)


def _communication_tasks(db: SqliteFile) -> pd.DataFrame:
    words = strings(db)
    raw = db.frame("COMMUNICATION_OP", name="opName", op_type="opType", start="startNs", end="endNs")
    return raw.assign(
        name=_words(raw["name"], words),
        op_type=_words(raw.op_type, words),
        accelerator_core="COMMUNICATION",
        is_communication=True,
    )


def _counters(db: SqliteFile, words: dict[object, str]) -> pd.DataFrame:
    """Core times and cycles per task, one row per `task`."""
    raw = db.frame("TASK_PMU_INFO", task="globalTaskId", name="name", value="value")
    raw = raw.assign(name=_words(raw["name"], words))
    raw = raw[raw["name"].isin(COUNTERS)].drop_duplicates(["task", "name"])
    tasks = pd.DataFrame({"task": raw.task.drop_duplicates()})
    for name, (column, factor) in COUNTERS.items():
        values = raw[raw["name"] == name].set_index("task").value
        tasks = tasks.assign(**{column: db.floats(tasks.task.map(values), "table TASK_PMU_INFO") * factor})
    return tasks


def _steps_at(db: SqliteFile, start: pd.Series) -> pd.Series:
    """The step in whose interval each time lies; missing where there is none."""
    raw = db.frame("STEP_TIME", id="id", start="startNs", end="endNs")
    frame = pd.DataFrame({c: db.integers(raw[c], "table STEP_TIME") for c in raw}).dropna().sort_values("start")
    steps = pd.Series(pd.array([pd.NA] * len(start), dtype="Int64"), index=start.index)
    if frame.empty:
        return steps
    times = start.fillna(-1).to_numpy("int64")
    at = np.searchsorted(frame.start.to_numpy("int64"), times, side="right") - 1
    inside = (at >= 0) & (times < frame.end.to_numpy("int64")[at])
    return steps.mask(inside, pd.Series(frame.id.to_numpy("int64")[at], index=start.index, dtype="Int64"))


def _ids(db: SqliteFile, values: pd.Series, where: str) -> pd.Series:
    found = db.integers(values.where(values.notna(), None), where)
    return found.mask(found == NONE)


def _codes(db: SqliteFile, table: str) -> dict[object, str]:
    raw = db.frame(table, id="id", name="name")
    return dict(zip(raw.id, raw["name"], strict=True))


def _words(values: pd.Series, words: dict[object, str]) -> pd.Series:
    """Numbers as the words that they stand for; a number without a word as it is."""
    return pd.Series([words.get(v, v) for v in values], index=values.index, dtype=object).astype("string")
