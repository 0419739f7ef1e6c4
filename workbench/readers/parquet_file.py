"""A Parquet file of a run directory -> the declared table that it holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.tables import Reading, Table


def read_parquet(table: Table, path: Path, context: FileContext, *, fix: str) -> dict[str, Reading]:
    """Read a Parquet file into `table`.

    Raises:
        UnreadableFileError: it is not a complete Parquet file.
        MissingColumnsError: it lacks a required column.
    """
    try:
        frame = pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFileError(
            f"{context.name(path)} is not a complete Parquet file: {str(error).splitlines()[0]}", fix=fix
        ) from None
    return {table.name: Reading(table.check(frame), [])}
