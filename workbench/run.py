"""`open_run(path)`: any directory or file of a run -> its tables."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from workbench.cache import CACHE_VARIABLE, cache_directory, usable_directory
from workbench.errors import MissingTableError, UnknownContentError, UnknownParameterError, UnreadableFileError
from workbench.files import RunFiles
from workbench.ingest import Ingest, load_known, save_known
from workbench.overview import as_html, as_text, missing_tables
from workbench.readers.combine import combine
from workbench.readers.discovery import Discovery, Source, discover, relative_name
from workbench.readers.kinds import encodable
from workbench.readers.recorded_runs import only_one_run
from workbench.readers.run_directory import read_run_info
from workbench.store import query, read_parts, to_arrow
from workbench.tables import TABLES, Note, table

EAGER_TOTAL_BYTES = 64 << 20  # a run below this is read when it is opened, so that its notes are complete
EAGER_FILE_BYTES = 16 << 20
PACKED = frozenset({".gz", ".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar"})
_NOT_TRAINED_RANKS = frozenset({"telemetry", "log_messages", "settings"})


def open_run(path: str | os.PathLike[str], *, quiet: bool = False, jobs: int | None = None, eager: bool = True) -> Run:
    """Open a run: ours, or any directory or file in which profiles, logs or recorded series lie.

    Prints what was found per rank, what is missing, which analyses that costs, and what would have collected it. Small
    runs are read at once, large ones table by table when asked; what was read is kept as Parquet and not read again.

    Args:
        path: directory or file.
        quiet: print nothing, show no progress.
        jobs: worker processes. By default all cores, or what `joblib.parallel_config` says (a Dask cluster, say).
        eager: read small runs at once; else each table when it is asked for, so that the first comes soon.

    Raises:
        UnknownContentError: nothing there that a reader knows.
    """
    root = Path(path).expanduser().absolute()  # a notebook may change its folder later
    _must_be_reachable(root)
    info = _info(root)
    wanted = cache_directory(root, is_ours=info is not None)
    directory = usable_directory(wanted)
    known = load_known(directory)
    discovery = discover(root, known=known)
    if not discovery.sources:
        raise _nothing_known(root, discovery)
    only_one_run(root, discovery, info)
    if discovery.kinds != known:
        save_known(directory, discovery.kinds)
    if directory != wanted:
        discovery.notes.append(_temporary_cache(wanted))
    run = Run(root, discovery, directory, info, jobs=jobs, quiet=quiet, eager=eager)
    if not quiet:
        print(run)
    return run


def _must_be_reachable(root: Path) -> None:
    try:
        root.stat()
    except FileNotFoundError:
        raise UnknownContentError(f"{root} does not exist.", fix="check the path") from None
    except (OSError, ValueError) as error:  # a forbidden parent, a link to itself, a name no file can have
        why = getattr(error, "strerror", None) or error
        raise UnknownContentError(
            f"{root} cannot be opened: {why}.", fix="check the path and its permissions"
        ) from None


def _nothing_known(root: Path, discovery: Discovery) -> UnknownContentError:
    seen = discovery.unknown
    what = f"{len(seen)} file(s), such as {', '.join(_shown(root, p) for p in seen[:3])}" if seen else "no file"
    notes = "".join(f"\n{note}" for note in discovery.notes)
    tables = any(p.suffix.lower() in (".csv", ".tsv") for p in seen)
    return UnknownContentError(
        f"{root} holds nothing that a reader knows: {what}.{notes}",
        fix="give a run directory, a profile directory (*_ascend_ms, profiler/), or a folder of training logs"
        + ("; CSV files are known by their columns (step, loss, ...): docs/csv_columns.md lists all names" * tables),
    )


def _shown(root: Path, path: Path) -> str:
    hint = " (packed: unpack it)" if path.suffix in PACKED else ""
    with contextlib.suppress(OSError):
        hint = hint if path.stat().st_size else " (empty)"
    return f"{relative_name(root, path)!r}{hint}"


def _temporary_cache(wanted: Path) -> Note:
    return Note(
        file=str(wanted),
        where="whole directory",
        problem="It cannot be written to.",
        lost="nothing, but everything is read again when the run is opened again",
        fix=f"set {CACHE_VARIABLE} to a directory that you can write to",
    )


class Run:
    """A run that was opened. Make one with `open_run`.

    Attributes:
        root: what was opened.
        info: `run.json` of a recorded run, else empty.
        is_ours: whether the Recorder wrote the directory.
    """

    def __init__(
        self,
        root: Path,
        discovery: Discovery,
        directory: Path,
        info: dict[str, Any] | None,
        *,
        jobs: int | None = None,
        quiet: bool = True,
        eager: bool = True,
    ) -> None:
        self.root = root
        self.is_ours = info is not None
        self.info = info or {}
        self._discovery = discovery
        self._jobs = jobs
        self._quiet = quiet
        self._ingest = Ingest(root, discovery.sources, directory)
        if eager and sum(s.size_bytes for s in discovery.sources) <= EAGER_TOTAL_BYTES:
            self._ingest.ensure(at_most_bytes=EAGER_FILE_BYTES, jobs=jobs, quiet=quiet)

    @property
    def run_id(self) -> str:
        """Id of a recorded run, else the name of what was opened."""
        return str(self.info.get("run_id") or self.root.resolve().name)

    @property
    def sources(self) -> pd.DataFrame:
        """One row per recognised file: file, kind, rank_id, window, size_bytes, tables."""
        return pd.DataFrame(
            [
                (
                    encodable(relative_name(self.root, s.path)),
                    s.kind,
                    s.rank_id,
                    s.window,
                    s.size_bytes,
                    ", ".join(s.tables),
                )
                for s in self._discovery.sources
            ],
            columns=["file", "kind", "rank_id", "window", "size_bytes", "tables"],
        )

    @property
    def unknown_files(self) -> list[Path]:
        """Files that no reader knows."""
        return self._discovery.unknown

    @property
    def notes(self) -> list[Note]:
        """What could not be used, of the directory and of all files read so far."""
        return self._discovery.notes + self._ingest.notes

    @property
    def ranks(self) -> list[int]:
        """Ranks that any table has rows of, or may have once it is read."""
        found = {
            rank
            for name in TABLES.keys() - _NOT_TRAINED_RANKS
            for entry in self._ingest.entries(name)
            for rank in entry.ranks
        }
        return sorted(found | {s.rank_id for s in self._ingest.pending if _has_ranks(s)})

    @property
    def tables(self) -> list[str]:
        """Names of the tables with rows. One whose large files have not been read yet is listed, too."""
        pending = {name for s in self._ingest.pending for name in s.tables}
        return [name for name in TABLES if name in pending or self._ingest.entries(name)]

    def has(self, name: str) -> bool:
        """Whether the run has rows of table `name`; files that may give it are read first."""
        if name not in self.tables:
            return False
        self._ingest.ensure([name], jobs=self._jobs, quiet=self._quiet)
        return bool(self._ingest.entries(name))

    def table(self, name: str, *, ranks: Collection[int] | None = None) -> pd.DataFrame:
        """Table `name` as declared in `workbench.tables`, in the order rank, window, file.

        Rows of several files about the same thing are one row (`workbench.readers.combine`).

        Args:
            name: one of `run.tables`.
            ranks: leave out the other ranks.

        Raises:
            MissingTableError: the run has no rows of it.
            UnknownParameterError: there is no such table, or none of these ranks.
        """
        declared = table(name)
        self._need(name)
        rows = combine(name, read_parts(declared, self._ingest.parts(name), ranks=ranks))
        if ranks and rows.empty and not set(ranks) & {*self.ranks}:
            raise UnknownParameterError(
                f"Run {self.run_id} has no rank {', '.join(map(str, ranks))}.", fix=f"use ranks of {self.ranks}"
            )
        return rows

    def sql(self, statement: str) -> pd.DataFrame:
        """Result of a DuckDB query over the tables of the run, for what does not fit into memory.

        The column `window` is a word of SQL: write it in double quotes.

        Example: `run.sql("SELECT rank_id, avg(computing_us) AS computing_us FROM step_time GROUP BY rank_id")`.

        Raises:
            MissingTableError: it names a table that the run has no rows of.
            UnknownParameterError: the statement is wrong; the message lists the tables.
        """
        words = set(re.findall(r"\w+", statement.lower()))
        named = [name for name in TABLES if name in words and name in self.tables]
        lacking = [name for name in TABLES if re.search(rf"\b(?:from|join)\s+\"?{name}\b", statement, re.IGNORECASE)]
        for name in {*named, *lacking}:
            self._need(name)
        content = {name: self._content(name) for name in {*named, *lacking}}
        return query(statement, content, scratch=self._ingest.scratch, known=self.tables)

    def _content(self, name: str) -> list[Path] | pa.Table:
        """Parts of a table; its combined rows where several kinds of files tell of the same things."""
        if len(self._ingest.kinds(name)) < 2:
            return self._ingest.parts(name)
        return to_arrow(self.table(name), table(name))

    def _need(self, name: str) -> None:
        self._ingest.ensure([name], jobs=self._jobs, quiet=self._quiet)
        if not self._ingest.entries(name):
            reasons = "".join(f"\n{note}" for note in self.notes[:5])
            raise MissingTableError(
                f"Run {self.run_id} has no table {name}; it has {', '.join(self.tables) or 'none'}.{reasons}",
                fix=table(name).fix,
            )

    def count(self, name: str) -> int:
        """Rows of table `name` that have been read, before those that tell of the same thing are combined."""
        return sum(entry.rows for entry in self._ingest.entries(name))

    def read_all(self, *, quiet: bool | None = None) -> Path:
        """Read everything that has not been read yet; return the directory of the Parquet files."""
        self._ingest.ensure(jobs=self._jobs, quiet=self._quiet if quiet is None else quiet)
        return self._ingest.directory

    def coverage(self) -> dict[str, Any]:
        """What verdicts on this run rest on: ranks, [first, last] step, tables, and what is missing."""
        entries = [e for name in ("training_steps", "step_time") for e in self._ingest.entries(name)]
        first = [e.first_step for e in entries if e.first_step is not None]
        last = [e.last_step for e in entries if e.last_step is not None]
        return {
            "ranks": self.ranks,
            "steps": [min(first), max(last)] if first else [],
            "tables": self.tables,
            "missing": missing_tables(self.tables),
        }

    def _title(self) -> str:
        whose = "recorded by the workbench" if self.is_ours else "not recorded by the workbench"
        return f"Run {self.run_id}, {whose}, at {os.path.normpath(self.root)}"

    def __repr__(self) -> str:
        unknown = len(self._discovery.unknown)
        return as_text(self._title(), self._discovery.sources, self.coverage(), self.notes, unknown)

    def _repr_html_(self) -> str:
        return as_html(self._title(), self._discovery.sources, self.coverage(), self.notes)


def _info(root: Path) -> dict[str, Any] | None:
    """`run.json` of a run that the Recorder wrote, empty if it is damaged; None for a directory of others."""
    path = RunFiles(root).run_json
    if not os.path.isfile(path):  # unlike Path.is_file also where the directory is forbidden
        return None
    try:
        info = read_run_info(path)
    except UnreadableFileError:
        return {}  # the reader of run.json notes it
    return info if "run_id" in info or "schema" in info else None


def _has_ranks(source: Source) -> bool:
    return any("rank_id" in TABLES[name].column_names for name in source.tables if name not in _NOT_TRAINED_RANKS)
