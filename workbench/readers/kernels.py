"""kernel_details.csv, op_summary_*.csv and op_statistic.csv -> tables `kernels` and `kernel_totals`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.readers.delimited import read_delimited
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.recognise import csv_with, reading
from workbench.tables import KERNEL_TOTALS, KERNELS, Reading

NONE = 4294967295  # how msprof writes "no such id"
COMMUNICATION_CORES = ("HCCL", "COMMUNICATION")


def read_kernel_details(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read device tasks of any header generation, profiler level and of msprof's own file, one row per task.

    Start is exact ns since epoch, times are us, shapes are without the quotes around them. A row one cell short (seen
    in 2023 files, which lost a time cell) is kept up to its start time. Collectives are marked: they run beside the
    compute rows and must not be added to them.
    """
    missing = dict.fromkeys(("step", "stream_id", "task_id", "device_id"), NONE)
    read = read_delimited(path, context, columns=KERNELS, missing_values=missing, trust_short_rows_to="start_ns")
    rows = read.table
    shapes = {c: rows[c].str.strip('"') for c in ("input_shapes", "output_shapes") if c in rows}
    rows = rows.assign(**shapes, is_communication=is_communication(rows))
    return {"kernels": reading(KERNELS, rows, context, list(read.notes))}


def is_communication(kernels: pd.DataFrame) -> pd.Series:
    """Which rows are collectives or sends: by core, or by the `hcom_` of type and name (cores may be N/A at Level0)."""
    by_core = pd.Series(False, index=kernels.index)
    if "accelerator_core" in kernels:
        by_core = kernels.accelerator_core.str.upper().isin(COMMUNICATION_CORES)
    by_name = [kernels[c].str.startswith("hcom_").fillna(False) for c in ("op_type", "name") if c in kernels]
    for mask in by_name:
        by_core = by_core | mask.astype(bool)
    return by_core.astype("boolean")


def read_op_statistic(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read totals per operator type; collectives are not in this file. Times us, share of the summed time."""
    read = read_delimited(path, context, columns=KERNEL_TOTALS)
    return {"kernel_totals": reading(KERNEL_TOTALS, read.table.assign(side="device"), context, list(read.notes))}


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="kernel_details",
        meaning="device tasks of a rank",
        tables=("kernels",),
        sniff=csv_with(
            ("Name", "Start Time(us)", "Duration(us)", "Accelerator Core"),
            ("Op Name", "Task Duration(us)"),
            name=r"kernel_details\.csv|op_summary_[\d_]*\.csv",
        ),
        read=read_kernel_details,
        rows_stand_alone=True,
    ),
    FileKind(
        name="op_statistic",
        meaning="time per operator type of a rank",
        tables=("kernel_totals",),
        sniff=csv_with(("OP Type", "Core Type", "Total Time(us)"), name=r"op_statistic(_\d+)*\.csv"),
        read=read_op_statistic,
    ),
)
