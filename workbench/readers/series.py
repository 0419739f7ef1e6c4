"""CSV series beside logs, recognised by column names -> steps, scores, telemetry, memory, data mix, settings.

Which table a column opens stands in `COLUMN_ALIASES` (docs/csv_columns.md), never in the file's name. If any column is
not used, the whole file is kept in table `series` as well, cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.readers.column_aliases import normal_header
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.log_prefix import rank_of_place
from workbench.readers.series_cells import SeriesFile, header_line, least_known, read_cells
from workbench.tables import (
    DATA_MIX,
    EVALS,
    MEMORY_TIMELINE,
    SERIES,
    SETTINGS,
    TELEMETRY,
    TRAINING_STEPS,
    Note,
    Reading,
    Table,
)

MAX_SERIES_CELLS = 5_000_000
NOT_SERIES = frozenset((".md", ".py", ".json", ".ipynb", ".html", ".log", ".yaml", ".yml", ".c", ".cc", ".cpp", ".h"))
UNITS_WITHOUT_TEXT = frozenset(("", "flag", "count", "bool", "text", "-"))
STEP_MEMORY = ("host_memory_bytes", "device_allocated_bytes", "device_reserved_bytes")
METRICS = {"validation_loss": "loss"}  # canonical column -> metric; its subset is `validation`

Filled = tuple[Table, pd.DataFrame, set[str]]  # table, rows, headers that went into it
Plan = Callable[[SeriesFile, int | None], Filled | None]


def sniff_series(path: Path, head: bytes) -> bool:
    """Whether one of the first lines is a header with a known column name that can open a table."""
    if path.suffix.lower() in NOT_SERIES or b"\x89PNG" in head[:8] or head[:1] in (b"{", b"[", b"<"):
        return False
    return header_line(head, least_known(path)) is not None


def read_series(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one CSV file into every table that its columns open.

    Columns: those of docs/csv_columns.md. The rank is that of the column, else of the file's name or folder; for
    steps it is the context's where neither tells, for telemetry it stays missing.

    Raises:
        UnreadableFileError: no bytes, or no line with a known column name.
    """
    return tables_of(read_cells(path, context), path, context)


def tables_of(data: SeriesFile, path: Path, context: FileContext) -> dict[str, Reading]:
    """Every table that the columns of a file open."""
    placed = rank_of_place(path, context.root)
    filled = [f for plan in PLANS if (f := plan(data, placed)) is not None]
    if any(table is SETTINGS or table is DATA_MIX for table, _, _ in filled):
        filled = [f for f in filled if f[0] is SETTINGS or f[0] is DATA_MIX][:1]
    used = set().union(*(headers for _, _, headers in filled)) if filled else set()
    tables = {table.name: table.check(_in_context(table, df, context)) for table, df, _ in filled}
    if set(data.texts) - used:
        tables["series"] = SERIES.check(_long(data))
    notes = data.notes
    readings = {}
    for name, df in tables.items():
        readings[name] = Reading(df, notes)
        notes = []
    return readings


def _in_context(table: Table, df: pd.DataFrame, context: FileContext) -> pd.DataFrame:
    """Steps and memory curves need a rank; where no column and no name tells it, the context's is as good as any."""
    if table not in (TRAINING_STEPS, MEMORY_TIMELINE):
        return df
    return df.assign(rank_id=df["rank_id"].fillna(context.rank_id))


def _settings(data: SeriesFile, _rank: int | None) -> Filled | None:
    """Files of name and value, or of name, before and after."""
    name = data.header_of("name")
    if name is None or data.header_of("step") or data.header_of("time_ns"):
        return None
    values = [(h, "") for h in [data.header_of("value")] if h]
    values = values or [(h, f"{k.column}.") for h, k in data.known.items() if k.column in ("before", "after")]
    if not values:
        return None
    unit = data.header_of("unit")
    parts = [
        pd.DataFrame({"name": prefix + data.texts[name], "value": _with_unit(data, header, unit), "source": data.file})
        for header, prefix in values
    ]
    rows = pd.concat(parts, ignore_index=True).dropna(subset=["name", "value"])
    return SETTINGS, rows, {name, *(h for h, _ in values), *([unit] if unit else [])}


def _with_unit(data: SeriesFile, header: str, unit: str | None) -> pd.Series:
    values = data.texts[header]
    if unit is None:
        return values
    units = data.texts[unit].fillna("")
    return values.where(units.str.lower().isin(UNITS_WITHOUT_TEXT), values + " " + units)


def _data_mix(data: SeriesFile, _rank: int | None) -> Filled | None:
    """Files of step, source and weight."""
    source, weight = data.header_of("source"), data.header_of("weight_share")
    step = data.header_of("from_step") or data.header_of("step")
    if not (source and weight and step):
        return None
    column = data.known[step].column
    rows = pd.DataFrame(
        {
            "from_step": data.integers(column),
            "source": data.texts[source],
            "weight_share": data.numbers(weight),
            "file": data.file,
        }
    )
    return DATA_MIX, rows.dropna(subset=["source"]), {source, weight, step}


def _evals(data: SeriesFile, _rank: int | None) -> Filled | None:
    """Files with a subset: every number that is no key is a metric. Without one: validation losses beside steps."""
    subset = data.header_of("subset")
    keys = {h for h, k in data.known.items() if k.role == "key"}
    if subset is not None:
        metrics = [h for h in data.texts if h not in keys and data.is_numeric(h)]
    else:
        metrics = [h for h, k in data.known.items() if k.role == "eval"] if data.header_of("step") else []
    if not metrics:
        return None
    parts = [_scores(data, header, data.texts[subset] if subset else None) for header in metrics]
    rows = pd.concat(parts, ignore_index=True).dropna(subset=["value"])
    taken = {h for h in keys if data.known[h].column in ("step", "subset", "n", "time_ns")}
    return EVALS, rows, {*metrics, *taken}


def _scores(data: SeriesFile, header: str, subsets: pd.Series | None) -> pd.DataFrame:
    known = data.known.get(header)
    values, metric = data.numbers(header), known.column if known else normal_header(header)
    if known is None and metric.endswith(("_pct", "_percent")):
        values, metric = values / 100, metric.rpartition("_")[0]
    return pd.DataFrame(
        {
            "kind": "imported",
            "step": data.integers("step"),
            "subset": "validation" if subsets is None else subsets,
            "metric": METRICS.get(metric, metric),
            "value": values,
            "n": data.integers("n"),
            "time_ns": data.times_ns(),
        },
        index=range(data.rows),
    )


def _training(data: SeriesFile, rank: int | None) -> Filled | None:
    """Files with a step and a figure of the training itself."""
    columns = {k.column: h for h, k in reversed(data.known.items()) if k.role in ("training", "memory")}
    if data.header_of("step") is None or data.header_of("subset") is not None:
        return None
    if not any(data.known[h].role == "training" for h in columns.values()):
        return None
    step = data.integers("step")
    assert step is not None
    wanted = {c: h for c, h in columns.items() if c in TRAINING_STEPS.column_names}
    rows = pd.DataFrame({c: data.numbers(h) for c, h in wanted.items() if c != "overflow"}, index=range(data.rows))
    if "overflow" in wanted:
        rows["overflow"] = data.texts[wanted["overflow"]].str.strip().str.lower().map(_FLAGS).astype("boolean")
    if "loss" in wanted:
        rows["loss_finite"] = _finite(data, wanted["loss"])
    rows = rows.assign(step=step, rank_id=_ranks(data, rank), source=data.file)
    keys = {c: data.header_of(c) for c in ("step", "rank_id", "epoch", "time_ns")}
    rows = rows.assign(epoch=data.integers("epoch"), time_ns=data.times_ns()).dropna(subset=["step"])
    return TRAINING_STEPS, rows, {*wanted.values(), *(h for h in keys.values() if h)}


_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _finite(data: SeriesFile, header: str) -> pd.Series:
    """Whether a written loss is finite; missing where nothing is written or it is no number."""
    words = data.texts[header].str.strip().str.lower()
    odd = words.str.lstrip("+-").isin(("nan", "inf", "infinity"))
    finite = pd.Series(np.isfinite(data.plain_numbers(header).values), dtype="boolean")
    return finite.where(finite | odd, pd.NA)


def _ranks(data: SeriesFile, rank: int | None) -> pd.Series:
    ranks = data.integers("rank_id")
    if ranks is None and data.header_of("step") is not None:
        ranks = data.integers("device_id")
    return ranks if ranks is not None else pd.Series([rank] * data.rows, dtype="Int64")


def _memory(data: SeriesFile, rank: int | None) -> Filled | None:
    """Files that give allocated and reserved memory of ranks."""
    headers = [data.header_of("device_allocated_bytes"), data.header_of("device_reserved_bytes")]
    ranked = data.header_of("rank_id") or rank is not None
    if None in headers or not ranked:
        return None
    allocated, reserved = (data.numbers(str(h)) for h in headers)
    rows = pd.DataFrame(
        {
            "rank_id": _ranks(data, rank),
            "time_ns": data.times_ns() if data.header_of("time_ns") else pd.Series([pd.NA] * data.rows, dtype="Int64"),
            "component": "process",
            "allocated_bytes": allocated,
            "reserved_bytes": reserved,
        }
    ).dropna(subset=["rank_id"])
    return MEMORY_TIMELINE, rows, {str(h) for h in headers}


def _telemetry(data: SeriesFile, rank: int | None) -> Filled | None:
    """Files with a place or time, and memory or device figures: each number becomes a metric."""
    keys = {h for h, k in data.known.items() if k.role == "key"}
    place = [c for c in ("time_ns", "step", "rank_id", "device_id", "host") if data.header_of(c)]
    figures = [h for h, k in data.known.items() if k.role in ("memory", "telemetry")]
    if not place or not figures or data.header_of("subset"):
        return None
    host = data.header_of("host")
    base = pd.DataFrame(
        {
            "host": data.texts[host].fillna("") if host else "",
            "rank_id": data.integers("rank_id") if data.header_of("rank_id") else rank,
            "time_ns": data.times_ns(),
            "step": data.integers("step"),
            "device_id": data.integers("device_id"),
        },
        index=range(data.rows),
    )
    parts = [base.assign(metric=data.known[h].column, value=data.numbers(h)) for h in figures]
    rows = pd.concat(parts, ignore_index=True).dropna(subset=["value"])
    return TELEMETRY, rows, {*figures, *(keys - {data.header_of("epoch"), data.header_of("n")})}


PLANS: tuple[Plan, ...] = (_settings, _data_mix, _training, _evals, _memory, _telemetry)


def _long(data: SeriesFile) -> pd.DataFrame:
    """All cells, row by row."""
    rows = min(data.rows, max(1, MAX_SERIES_CELLS // max(1, len(data.texts))))
    if rows < data.rows:
        data.notes.append(
            Note(
                file=data.file,
                where=f"data row {rows + 1}",
                problem=f"the file has {data.rows} rows of {len(data.texts)} columns that no other table takes.",
                lost="the later rows of these columns in table series",
                fix="name the columns as docs/csv_columns.md says, or cut the file",
            )
        )
    headers = list(data.texts)
    long = pd.DataFrame(
        {
            "row": np.tile(np.arange(rows), len(headers)),
            "column": np.repeat(np.array(headers, dtype=object), rows),
            "value": np.concatenate([data.plain_numbers(h)[0][:rows] for h in headers]),
            "text": pd.concat([t[:rows] for t in data.texts.values()], ignore_index=True),
        }
    )
    row_by_row = np.arange(len(long)).reshape(len(headers), rows).T.ravel()
    long = long.take(row_by_row)
    return long[long["text"].notna()].assign(file=data.file)


SERIES_TABLES = ("training_steps", "evals", "telemetry", "memory_timeline", "data_mix", "settings", "series")
KINDS = (
    FileKind(
        name="csv_series",
        meaning="CSV beside logs whose column names are known: steps, scores, telemetry, memory, data mix, settings",
        tables=SERIES_TABLES,
        sniff=sniff_series,
        read=read_series,
    ),
)
