"""Work units of reading: a batch of files of one kind -> Parquet parts and a manifest, in one worker process."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa

from workbench.cache import CACHE_VARIABLE
from workbench.errors import CacheWriteError, WorkbenchError
from workbench.files import write_json_atomic
from workbench.readers.discovery import KINDS_BY_NAME, Source, relative_name
from workbench.readers.kinds import FileContext, encodable
from workbench.readers.pieces import is_large_table, read_pieces
from workbench.readers.plausible import plausible
from workbench.store import ROWS_PER_GROUP, PartWriter, to_arrow
from workbench.tables import Note, Reading, table

BATCH_BYTES = 8 << 20  # small files share a part: thousands of ranks must not become thousands of tiny files
BATCH_FILES = 64


class TableEntry(msgspec.Struct, frozen=True):
    """Rows of one table in one batch."""

    parts: list[str]
    rows: int
    ranks: list[int]
    first_step: int | None = None
    last_step: int | None = None


class Manifest(msgspec.Struct, frozen=True):
    """What a finished batch holds."""

    sources: list[str]
    tables: dict[str, TableEntry]
    notes: list[dict[str, str]]


class Batch(msgspec.Struct, frozen=True):
    """Sources that one worker reads together."""

    key: str
    kind: str
    sources: tuple[Source, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(s.size_bytes for s in self.sources)


def plan_batches(sources: Iterable[Source], root: Path) -> list[Batch]:
    """Split sources into batches of one kind, in their order, of at most BATCH_BYTES and BATCH_FILES."""
    by_kind: dict[str, list[Source]] = defaultdict(list)
    for source in sources:
        by_kind[source.kind].append(source)
    return [
        Batch(_key(root, group), kind, tuple(group)) for kind, members in by_kind.items() for group in _split(members)
    ]


def _split(members: list[Source]) -> Iterator[list[Source]]:
    group: list[Source] = []
    size = 0
    for source in members:
        if group and (size + source.size_bytes > BATCH_BYTES or len(group) == BATCH_FILES):
            yield group
            group, size = [], 0
        group.append(source)
        size += source.size_bytes
    if group:
        yield group


def _key(root: Path, group: list[Source]) -> str:
    facts = [
        (relative_name(root, s.path), s.size_bytes, s.mtime_ns, s.kind, s.rank_id, s.window, s.tables) for s in group
    ]
    return hashlib.sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()[:24]


class _Parts:
    """The Parquet parts of one batch. Frames of small files are joined before they are converted: that is faster."""

    def __init__(self, batch: Batch, root: Path, directory: Path) -> None:
        self.notes: list[Note] = []
        self._batch = batch
        self._root = root
        self._directory = directory
        self._writers: dict[str, PartWriter] = {}
        self._frames: dict[str, list[pd.DataFrame]] = defaultdict(list)

    def add_frame(self, name: str, frame: pd.DataFrame) -> None:
        """Add rows of a checked table."""
        self._frames[name].append(frame)
        if sum(map(len, self._frames[name])) >= ROWS_PER_GROUP:
            self._convert(name)

    def add_rows(self, name: str, rows: pa.Table) -> None:
        """Add rows that are Arrow columns already."""
        if name not in self._writers:
            path = self._directory / "parts" / f"{name}-{self._batch.key}.parquet"
            self._writers[name] = PartWriter(path, table(name))
        try:
            self._writers[name].write(rows)
        except OSError as error:
            raise not_writable(self._directory, error) from None

    def finish(self) -> dict[str, TableEntry]:
        """Complete all parts."""
        for name in list(self._frames):
            self._convert(name)
        return {name: _finish(writer) for name, writer in self._writers.items() if writer.rows}

    def discard(self) -> None:
        """Remove what is not complete."""
        for writer in self._writers.values():
            writer.discard()

    def _convert(self, name: str) -> None:
        rows = pd.concat(self._frames.pop(name), ignore_index=True)
        frame, notes = plausible(rows, table(name), _files_of(self._batch, self._root))
        self.notes += notes
        self.add_rows(name, to_arrow(frame, table(name)))


def read_batch(batch: Batch, root: Path, directory: Path) -> tuple[str, int]:
    """Read the sources of `batch` into Parquet parts and write its manifest; return its key and its bytes.

    Runs in a worker process, here or on another machine that sees the same files.
    """
    (directory / "scratch").mkdir(parents=True, exist_ok=True)
    parts = _Parts(batch, root, directory)
    notes: list[Note] = []
    try:
        if not _read_together(batch, root, directory, parts):
            for source in batch.sources:
                notes += _read_source(source, source.context(root, scratch=directory / "scratch"), parts)
        entries = parts.finish()
    finally:
        parts.discard()
    manifest = Manifest(
        sources=[encodable(relative_name(root, s.path)) for s in batch.sources],
        tables=entries,
        notes=[_plain(note) for note in [*notes, *parts.notes]],
    )
    write_json_atomic(directory / "batches" / f"{batch.key}.json", manifest)
    return batch.key, batch.size_bytes


def not_writable(directory: Path, error: OSError) -> CacheWriteError:
    """The error that says where derived tables could not be written, and why."""
    return CacheWriteError(
        f"The tables cannot be written to {directory}: {error.strerror or error}.",
        fix=f"free some space there, or set {CACHE_VARIABLE} to a directory with space; what is finished is kept",
    )


def _files_of(batch: Batch, root: Path) -> str:
    first = relative_name(root, batch.sources[0].path)
    return first if len(batch.sources) == 1 else f"{first} or {len(batch.sources) - 1} more of its kind"


def _plain(note: Note) -> dict[str, str]:
    facts = {"file": note.file, "where": note.where, "problem": note.problem, "lost": note.lost, "fix": note.fix}
    return {k: encodable(v) for k, v in facts.items()}


def _finish(writer: PartWriter) -> TableEntry:
    writer.close()
    steps = writer.steps
    return TableEntry(
        parts=[writer.path.name],
        rows=writer.rows,
        ranks=sorted(writer.ranks),
        first_step=steps[0] if steps else None,
        last_step=steps[1] if steps else None,
    )


def _read_together(batch: Batch, root: Path, directory: Path, parts: _Parts) -> bool:
    """Read all sources at once, if their kind can and none of them needs care."""
    kind = KINDS_BY_NAME[batch.kind]
    if kind.read_many is None or len(batch.sources) == 1 or any(s.tables != kind.tables for s in batch.sources):
        return False
    files = [(s.path, s.context(root, scratch=directory / "scratch")) for s in batch.sources]
    readings = kind.read_many(files)
    for name, reading in (readings or {}).items():
        parts.add_frame(name, reading.table)
    return readings is not None


def _read_source(source: Source, context: FileContext, parts: _Parts) -> list[Note]:
    kind = KINDS_BY_NAME[source.kind]
    try:
        if kind.stream is not None:
            return kind.stream(source.path, context, parts.add_rows)
        if is_large_table(kind, source.path, source.size_bytes):
            return read_pieces(kind, source.path, context, lambda readings: _add(readings, source, parts))
        return _take(kind.read(source.path, context), source, context, parts)
    except CacheWriteError:
        raise  # not the fault of this file
    except WorkbenchError as error:
        return [_whole_file(context.name(source.path), error.problem, error.fix)]
    except Exception as error:  # noqa: BLE001 - one file must not cost the others; the note names the defect
        problem = f"The reader of {kind.name} failed: {type(error).__name__}: {error}."
        return [_whole_file(context.name(source.path), problem, "report it with the file; the other files are read")]


def _take(readings: dict[str, Reading], source: Source, context: FileContext, parts: _Parts) -> list[Note]:
    notes: list[Note] = []
    for name, reading in readings.items():
        if name not in source.tables:
            continue
        notes += [note for note in reading.notes if note not in notes]  # tables of a file share their notes
        if len(reading.table):
            parts.add_frame(name, reading.table)
    if source.tables and not notes and not any(len(reading.table) for reading in readings.values()):
        problem = f"It was recognised as {KINDS_BY_NAME[source.kind].meaning}, but no row of it could be used."
        fix = "if there should be some, check that the file is whole"
        notes.append(
            Note(file=context.name(source.path), where="whole file", problem=problem, lost="all of it", fix=fix)
        )
    return notes


def _add(readings: dict[str, Reading], source: Source, parts: _Parts) -> None:
    for name, reading in readings.items():
        if name in source.tables and len(reading.table):
            parts.add_frame(name, reading.table)


def _whole_file(file: str, problem: str, fix: str) -> Note:
    return Note(file=file, where="whole file", problem=problem, lost="everything in it", fix=fix)
