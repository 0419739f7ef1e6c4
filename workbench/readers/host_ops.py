"""api_statistic.csv, dataset.csv and data_preprocess.csv -> table `host_ops`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.readers.delimited import read_delimited
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import csv_with, reading
from workbench.tables import HOST_OPS, Column, Reading

LEVEL_NAMES = {"hccl": "communication"}  # CANN 8.3 renamed the level
STAGE = Column("stage", "string", "stage of the dataset operation", "Stage")
AI_CPU = (
    Column("name", "string", "operator", "Node", required=True),
    Column("total_us", "float64", "whole time of the task", "Total_time(us)", required=True),
)


def read_api_statistic(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read calls of the host-side API by level, us. Calls are nested: times of different levels must not be added."""
    read = read_delimited(path, context, columns=HOST_OPS)
    rows = read.table
    if "level" in rows:
        rows = rows.assign(level=rows.level.replace(LEVEL_NAMES))
    return {"host_ops": reading(HOST_OPS, rows.assign(**_absent(rows, "level", "name")), context, list(read.notes))}


def read_dataset(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read events of the dataset module: `<operation>::<stage>`, calls, mean us and their product."""
    read = read_delimited(path, context, columns=(*HOST_OPS.columns, STAGE), required=("name", "avg_us"))
    rows = read.table
    rows = rows.assign(**_absent(rows, "name", "stage"), level="dataset")
    named = rows.name.where(rows.stage.isna(), rows.name + "::" + rows.stage)
    if {"count", "avg_us"} <= set(rows):
        rows = rows.assign(total_us=rows["count"] * rows.avg_us)
    return {"host_ops": reading(HOST_OPS, rows.assign(name=named), context, list(read.notes))}


def read_data_preprocess(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read AI-CPU operators, summed per operator: calls, total, mean, shortest and longest us."""
    read = read_delimited(path, context, columns=AI_CPU)
    times = read.table.assign(**_absent(read.table, "name", "total_us")).groupby("name", sort=False).total_us
    rows = times.agg(["count", "sum", "mean", "min", "max"]).reset_index()
    rows.columns = ["name", "count", "total_us", "avg_us", "min_us", "max_us"]
    return {"host_ops": reading(HOST_OPS, rows.assign(level="aicpu"), context, list(read.notes))}


def _absent(rows: pd.DataFrame, *names: str) -> dict[str, pd.Series]:
    """Missing values for those columns that the file does not have."""
    return {n: pd.Series(pd.NA, index=rows.index, dtype="string") for n in names if n not in rows}


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="api_statistic",
        meaning="host-side API calls of a rank",
        tables=("host_ops",),
        sniff=csv_with(("Level", "API Name", "Time(us)"), name=r"api_statistic(_\d+)*\.csv"),
        read=read_api_statistic,
    ),
    FileKind(
        name="dataset",
        meaning="events of the dataset module",
        tables=("host_ops",),
        sniff=csv_with(("Operation", "Occurrences", "Avg. time (us)"), name=r"dataset(_\d+)?\.csv"),
        read=read_dataset,
    ),
    FileKind(
        name="data_preprocess",
        meaning="AI-CPU operators of a rank",
        tables=("host_ops",),
        sniff=csv_with(("Node", "Compute_time(us)", "Total_time(us)"), name=r"(data_preprocess|aicpu_\d+)\.csv"),
        read=read_data_preprocess,
    ),
)
