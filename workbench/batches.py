"""Work units of reading: a batch of files of one kind -> Parquet parts and a manifest, in one worker process."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from workbench.errors import CacheWriteError, WorkbenchError
from workbench.files import write_json_atomic
from workbench.readers.discovery import KINDS_BY_NAME, Source, relative_name
from workbench.readers.kinds import FileContext, Sink
from workbench.store import CACHE_VARIABLE, PartWriter, to_arrow
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


def read_batch(batch: Batch, root: Path, directory: Path) -> tuple[str, int]:
    """Read the sources of `batch` into Parquet parts and write its manifest; return its key and its bytes.

    Runs in a worker process, here or on another machine that sees the same files.
    """
    writers: dict[str, PartWriter] = {}
    notes: list[Note] = []
    (directory / "scratch").mkdir(parents=True, exist_ok=True)

    def sink(name: str, rows: pa.Table) -> None:
        if name not in writers:
            writers[name] = PartWriter(directory / "parts" / f"{name}-{batch.key}.parquet", table(name))
        try:
            writers[name].write(rows)
        except OSError as error:
            raise not_writable(directory, error) from None

    try:
        for source in batch.sources:
            notes += _read_source(source, source.context(root, scratch=directory / "scratch"), sink)
        entries = {name: _finish(writer) for name, writer in writers.items() if writer.rows}
    finally:
        for writer in writers.values():
            writer.discard()
    manifest = Manifest(
        sources=[_encodable(relative_name(root, s.path)) for s in batch.sources],
        tables=entries,
        notes=[_plain(note) for note in notes],
    )
    write_json_atomic(directory / "batches" / f"{batch.key}.json", manifest)
    return batch.key, batch.size_bytes


def not_writable(directory: Path, error: OSError) -> CacheWriteError:
    """The error that says where derived tables could not be written, and why."""
    return CacheWriteError(
        f"The tables cannot be written to {directory}: {error.strerror or error}.",
        fix=f"free some space there, or set {CACHE_VARIABLE} to a directory with space; what is finished is kept",
    )


def _plain(note: Note) -> dict[str, str]:
    facts = {"file": note.file, "where": note.where, "problem": note.problem, "lost": note.lost, "fix": note.fix}
    return {k: _encodable(v) for k, v in facts.items()}


def _encodable(text: str) -> str:
    """Names that are not UTF-8 in a form that JSON can hold."""
    return text.encode(errors="backslashreplace").decode()


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


def _read_source(source: Source, context: FileContext, sink: Sink) -> list[Note]:
    kind = KINDS_BY_NAME[source.kind]
    try:
        if kind.stream is not None:
            return kind.stream(source.path, context, sink)
        return _write_readings(kind.read(source.path, context), source.tables, sink)
    except CacheWriteError:
        raise  # not the fault of this file
    except WorkbenchError as error:
        return [_whole_file(context.name(source.path), error.problem, error.fix)]
    except Exception as error:  # noqa: BLE001 - one file must not cost the others; the note names the defect
        problem = f"The reader of {kind.name} failed: {type(error).__name__}: {error}."
        return [_whole_file(context.name(source.path), problem, "report it with the file; the other files are read")]


def _write_readings(readings: dict[str, Reading], wanted: Collection[str], sink: Sink) -> list[Note]:
    notes = []
    for name, reading in readings.items():
        if name not in wanted:
            continue
        notes += reading.notes
        if len(reading.table):
            sink(name, to_arrow(reading.table, table(name)))
    return notes


def _whole_file(file: str, problem: str, fix: str) -> Note:
    return Note(file=file, where="whole file", problem=problem, lost="everything in it", fix=fix)
