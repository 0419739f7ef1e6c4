"""Parquet parts of tables on disk, and DuckDB over them. A cache: rebuilt from the files of the run at any time."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workbench.errors import UnknownParameterError, WorkbenchError
from workbench.tables import Table, table

_ARROW_TYPES = {
    "float64": pa.float64(),
    "int64": pa.int64(),
    "Int64": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
ROWS_PER_GROUP = 1 << 16
QUERY_MEMORY_LIMIT = "256MB"


def arrow_schema(declared: Table) -> pa.Schema:
    """Arrow types of a declared table."""
    return pa.schema([(c.name, _ARROW_TYPES[c.dtype]) for c in declared.columns])


def to_arrow(frame: pd.DataFrame, declared: Table) -> pa.Table:
    """A checked table as Arrow columns."""
    return pa.Table.from_pandas(frame, schema=arrow_schema(declared), preserve_index=False).replace_schema_metadata(
        None
    )


class PartWriter:
    """Writes one Parquet part piece by piece; it appears under its name only when closed."""

    def __init__(self, path: Path, declared: Table) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows = 0
        self.ranks: set[int] = set()
        self.steps: tuple[int, int] | None = None
        self._names = set(declared.column_names)
        self._temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows. Small pieces wait for each other, so that row groups are not tiny."""
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._temporary, rows.schema, compression="zstd", compression_level=1)
        self._writer.write_table(rows.unify_dictionaries())
        self._waiting, self._waiting_rows = [], 0
        if "rank_id" in self._names:
            self.ranks.update(r for r in pc.unique(rows.column("rank_id")).to_pylist() if r is not None)
        if "step" in self._names:
            self._widen_steps(pc.min_max(rows.column("step")).as_py())

    def _widen_steps(self, found: dict[str, int | None]) -> None:
        low, high = found["min"], found["max"]
        if low is None or high is None:
            return
        self.steps = (min(low, self.steps[0]), max(high, self.steps[1])) if self.steps else (low, high)

    def close(self) -> None:
        """Complete the part."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._temporary.replace(self.path)
            self._writer = None

    def discard(self) -> None:
        """Remove what is not complete."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._temporary.unlink(missing_ok=True)


def read_parts(declared: Table, parts: Sequence[Path], *, ranks: Collection[int] | None = None) -> pd.DataFrame:
    """Rows of all parts, in the order of the parts, as the declared table; `ranks` leaves out the other ranks.

    Raises:
        UnknownParameterError: `ranks` for a table without ranks.
        WorkbenchError: a part is damaged.
    """
    if ranks is not None and "rank_id" not in declared.column_names:
        raise UnknownParameterError(f"Table {declared.name} has no ranks.", fix="leave out `ranks`")
    rows = None if ranks is None else pc.field("rank_id").isin(sorted(ranks))
    try:
        pieces = [pq.read_table(p, columns=declared.column_names, filters=rows) for p in parts]
    except (OSError, pa.ArrowException) as error:
        raise WorkbenchError(
            f"A derived table is damaged: {str(error).splitlines()[0]}",
            fix=f"remove {parts[0].parent.parent} and open the run again: it is built anew from the files",
        ) from None
    return to_pandas(pieces, declared)


def to_pandas(pieces: Sequence[pa.Table], declared: Table) -> pd.DataFrame:
    """Arrow tables with the columns of a declared table, one after the other, as a frame with its dtypes."""
    if not pieces:
        return declared.empty()
    data = pa.concat_tables([p.cast(arrow_schema(declared)) for p in pieces])
    return pd.DataFrame(
        {c.name: _pandas_column(data.column(c.name), c.dtype) for c in declared.columns}, columns=declared.column_names
    )


def _pandas_column(values: pa.ChunkedArray, dtype: str) -> pd.Series:
    if dtype in ("float64", "int64"):
        return values.to_pandas().astype(dtype)
    extension = pd.api.types.pandas_dtype(dtype)
    return values.to_pandas(types_mapper=lambda _: extension)


def query(
    sql: str, tables: Mapping[str, Sequence[Path] | pa.Table], *, scratch: Path, known: Collection[str] = ()
) -> pd.DataFrame:
    """Result of a DuckDB query in which each table is a view over its parts, or over Arrow columns.

    Args:
        sql: one SELECT statement.
        tables: Parquet files, or rows, of each table that the statement may name.
        scratch: directory for results that do not fit into memory.
        known: tables that the message about a wrong statement lists, if other than `tables`.

    Raises:
        UnknownParameterError: the statement is wrong, or there is none.
    """
    with duckdb.connect(config={"memory_limit": QUERY_MEMORY_LIMIT, "temp_directory": str(scratch)}) as connection:
        for name, content in tables.items():
            if isinstance(content, pa.Table):
                connection.register(name, content)
                continue
            files = ", ".join("'" + _literal(p) + "'" for p in content)
            columns = ", ".join(f'"{c}"' for c in table(name).column_names)
            connection.execute(f'CREATE VIEW "{name}" AS SELECT {columns} FROM read_parquet([{files}])')
        fix = f"use the tables {sorted(known or tables)} and their columns"
        try:
            result = connection.execute(sql)
            if result is None:  # nothing but white space or a comment
                raise UnknownParameterError("The query is empty.", fix=fix)
            return result.df()
        except duckdb.OutOfMemoryException as error:
            raise WorkbenchError(f"The query needs too much memory: {error}", fix="aggregate or filter more") from None
        except duckdb.Error as error:
            raise UnknownParameterError(f"The query failed: {error}", fix=fix) from None


def _literal(path: Path) -> str:
    """Path in an SQL text, in which DuckDB must not see a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''")
