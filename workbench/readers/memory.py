"""Memory CSVs of a profile (pools, modules, operators, graphs) -> tables `memory_timeline` and `tensor_lifetimes`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.readers.delimited import read_delimited
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import csv_with, reading
from workbench.tables import MEMORY_TIMELINE, TENSOR_LIFETIMES, Column, Reading

MINDSPORE_MB_SHARE = (
    1000 / 1024
)  # MindSpore's memory_record divides bytes by 1024 and by 1000; a MB header means 1024^2
SIZES = ["allocated_bytes", "reserved_bytes", "active_bytes"]
NEVER_FREED = 4294967295

MODULES = (
    Column("time_ns", "Int64", "time", "Timestamp(us)", required=True),
    Column("component", "string", "module", "Component", required=True),
    Column("reserved_bytes", "float64", "held", ("Total Reserved(KB)", "Total Reserved(MB)"), required=True),
    Column("device", "string", "device", ("Device", "Device Type")),
)
LIFETIMES = (
    *(c for c in TENSOR_LIFETIMES.columns if c.name in ("name", "size_bytes", "stream_id")),
    *(c for c in TENSOR_LIFETIMES.columns if c.name in ("allocated_total_bytes", "reserved_total_bytes")),
    Column("allocated_ns", "Int64", "allocation", "Allocation Time(us)", required=True),
    Column("freed_ns", "Int64", "release", "Release Time(us)"),
    Column("device", "string", "device", "Device Type"),
)
STATIC = (
    Column("name", "string", "operator", "Op Name", required=True),
    Column("size_bytes", "float64", "size", "Size(KB)", required=True),
    Column("allocated_at", "Int64", "node index", "Node Index Start"),
    Column("freed_at", "Int64", "node index", "Node Index End"),
    Column("graph", "string", "graph", "Graph ID"),
)


def read_memory_record(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the curves of the memory pools; choose one component, their sum counts memory several times.

    MindSpore's MB are 1000 KiB, torch_npu's 1024 KiB: the components tell which. The 0 that MindSpore writes where it
    knows nothing (allocated and active of APP, active of GE) is missing.
    """
    read = read_delimited(path, context, columns=MEMORY_TIMELINE)
    rows = read.table
    if "component" in rows and rows.component.str.startswith("MindSpore").any():
        sizes = [c for c in SIZES if c in rows]
        rows = rows.assign(**{c: rows[c] * MINDSPORE_MB_SHARE for c in sizes})
        unknown = {"allocated_bytes": ("APP",), "active_bytes": ("APP", "GE")}
        rows = rows.assign(
            **{c: rows[c].mask(rows.component.isin(unknown[c]).fillna(False)) for c in sizes if c in unknown}
        )
    return {"memory_timeline": reading(MEMORY_TIMELINE, rows, context, list(read.notes))}


def read_npu_module_mem(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read memory per device module as components `module:<name>` (the pool GE and the module GE are different things).

    The -1 of a module of which only releases were seen is missing.
    """
    read = read_delimited(path, context, columns=MODULES)
    rows = read.table
    if "component" in rows:
        rows = rows.assign(component="module:" + rows.component)
    if "reserved_bytes" in rows:
        rows = rows.assign(reserved_bytes=rows.reserved_bytes.mask(rows.reserved_bytes < 0))
    return {"memory_timeline": reading(MEMORY_TIMELINE, rows, context, list(read.notes))}


def read_operator_memory(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read allocations with their birth and death in ns since epoch; blocks alive before the capture have no row."""
    read = read_delimited(path, context, columns=LIFETIMES)
    rows = read.table.rename(columns={"allocated_ns": "allocated_at", "freed_ns": "freed_at"})
    if "device" in rows:
        card = pd.to_numeric(rows.device.str.extract(r"(\d+)\s*$", expand=False), errors="coerce")
        rows = rows.assign(device_id=card.astype("Int64"))
    return {"tensor_lifetimes": reading(TENSOR_LIFETIMES, rows.assign(clock="ns"), context, list(read.notes))}


def read_static_op_mem(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read the planned memory of graphs, lifetimes in node indices; the TOTAL row of each graph is left out."""
    missing = {"freed_at": NEVER_FREED}
    read = read_delimited(path, context, columns=STATIC, missing_values=missing)
    rows = read.table
    if "name" in rows:
        rows = rows[rows.name.ne("TOTAL").fillna(True)]
    kind = "static graph " + rows.graph if "graph" in rows else "static graph"
    rows = rows.assign(kind=kind, clock="task")
    return {"tensor_lifetimes": reading(TENSOR_LIFETIMES, rows, context, list(read.notes))}


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="memory_record",
        meaning="memory curves of a rank",
        tables=("memory_timeline",),
        sniff=csv_with(("Component", "Timestamp(us)", "Total Allocated(MB)"), name=r"memory_record(_\d+)*\.csv"),
        read=read_memory_record,
    ),
    FileKind(
        name="npu_module_mem",
        meaning="memory per device module",
        tables=("memory_timeline",),
        sniff=csv_with(
            ("Component", "Timestamp(us)", "Total Reserved(KB)"),
            ("Component", "Timestamp(us)", "Total Reserved(MB)"),
            name=r"npu_module_mem(_\d+)*\.csv",
            none_of=("Total Allocated(MB)",),
        ),
        read=read_npu_module_mem,
        rows_stand_alone=True,
    ),
    FileKind(
        name="operator_memory",
        meaning="allocations of a rank",
        tables=("tensor_lifetimes",),
        sniff=csv_with(("Name", "Size(KB)", "Allocation Time(us)"), name=r"operator_memory(_\d+)*\.csv"),
        read=read_operator_memory,
        rows_stand_alone=True,
    ),
    FileKind(
        name="static_op_mem",
        meaning="planned memory of the graphs of a rank",
        tables=("tensor_lifetimes",),
        sniff=csv_with(("Op Name", "Node Index Start", "Size(KB)"), name=r"static_op_mem(_\d+)*\.csv"),
        read=read_static_op_mem,
    ),
)
