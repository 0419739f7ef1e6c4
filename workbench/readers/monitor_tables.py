"""CSV files of the msprobe training monitor -> parameter_groups; other statistics of it -> series.

Columns: `vpp_stage, name, step[, micro_step]`, then one per statistic (norm, min, max, mean, nans, ...) and perhaps
shape and dtype. What the rows describe stands in the file name alone: grad_reduced, param_*, exp_avg, ...
Source: msprobe, core/common/const.py (MonitorConst) and its monitor guide.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.delimited import read_delimited, sniff_headers
from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import COPY_AGAIN
from workbench.tables import PARAMETER_GROUPS, SERIES, Column, Reading

STATISTICS = ("norm", "mean", "min", "max", "nans", "zeros", "id")
GRADIENTS = re.compile(r"^grad_(?:un)?reduced|^(?:un)?reduced_grad|^weight_grad")
PARAMETERS = re.compile(r"^param")
BEFORE_REDUCTION = re.compile(r"unreduced")
COLUMNS = (
    Column("stage", "string", "virtual pipeline stage", "vpp_stage"),
    Column("name", "string", "parameter or module", "name", required=True),
    Column("step", "Int64", "step", "step", required=True),
    Column("micro_step", "Int64", "micro batch", "micro_step"),
    *(Column(name, "float64", "statistic", name) for name in STATISTICS),
)


def sniff_monitor(path: Path, head: bytes) -> bool:
    """Header of a monitor file."""
    return any(sniff_headers(head, ("vpp_stage", "name", "step", statistic)) for statistic in STATISTICS)


def read_monitor(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read norms of gradients after reduction and of parameters as parameter groups; all the rest as series.

    A row of the series is a row of the file, with columns `<what>.name`, `<what>.step` and `<what>.<statistic>`, where
    `<what>` is the file's stem. Gradients before reduction are of one rank's data alone, so they are no gradient norm.
    """
    raw = read_delimited(path, context, columns=COLUMNS)
    table = raw.table
    found = [name for name in STATISTICS if name in table]
    if table.empty or not found:
        raise UnreadableFileError(f"{context.name(path)} has no row with a statistic.", fix=COPY_AGAIN)
    what = path.name.lower()
    norm_column = _norm_column(what) if "norm" in found else None
    groups = PARAMETER_GROUPS.empty()
    if norm_column:
        group = table["name"].str.cat("@" + table["stage"].fillna("0"), na_rep="") if _stages(table) else table["name"]
        groups = pd.DataFrame({"step": table["step"], "group": group, norm_column: table["norm"]})
        groups = groups.dropna(subset=["step"]).assign(rank_id=context.rank_id)
        found.remove("norm")
    return {
        "parameter_groups": Reading(PARAMETER_GROUPS.check(groups), raw.notes),
        "series": Reading(SERIES.check(_series(table, found, path.stem, context.name(path))), []),
    }


def _norm_column(what: str) -> str | None:
    if GRADIENTS.search(what) and not BEFORE_REDUCTION.search(what):
        return "gradient_norm"
    return "parameter_norm" if PARAMETERS.search(what) else None


def _stages(table: pd.DataFrame) -> bool:
    """Whether the rows come from more than one virtual stage, so that names alone would clash."""
    return "stage" in table and len(table["stage"].dropna().unique()) > 1


def _series(table: pd.DataFrame, statistics: list[str], what: str, file: str) -> pd.DataFrame:
    rows = pd.Series(range(len(table)), index=table.index)
    names = pd.DataFrame({"row": rows, "column": f"{what}.name", "text": table["name"]})
    steps = pd.DataFrame({"row": rows, "column": f"{what}.step", "value": table["step"].astype("float64")})
    values = [pd.DataFrame({"row": rows, "column": f"{what}.{s}", "value": table[s]}) for s in statistics]
    frame = pd.concat([names, steps, *values] if statistics else [names.iloc[:0], steps.iloc[:0]])
    return frame.assign(file=file).sort_values("row", kind="stable")


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="training_monitor",
        meaning="msprobe monitor CSV: norms and other statistics per parameter and step",
        tables=("parameter_groups", "series"),
        sniff=or_named(sniff_monitor, r"(grad_(un)?reduced|param_\w+|exp_avg(_sq)?)_\d+-\d+\.csv"),
        read=filled(read_monitor),
    ),
)
