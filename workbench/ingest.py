"""Files of a run -> Parquet parts, once per content: incremental, resumable after a kill, in parallel by joblib.

Sources of one kind are read in batches. A batch is done when its manifest is there; it is written last and atomically,
so a kill costs the batches that were being read. A batch is named by the content of its sources (path, size, mtime), so
a changed file makes a new batch and an unchanged one is never read again.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import joblib
import msgspec
import pyarrow as pa
from tqdm.auto import tqdm

import workbench
from workbench.errors import WorkbenchError
from workbench.files import write_json_atomic
from workbench.readers.discovery import KINDS_BY_NAME, Source, relative_name
from workbench.readers.kinds import FileContext, Sink
from workbench.store import PartWriter, to_arrow
from workbench.tables import Note, Reading, table

BATCH_BYTES = 8 << 20  # small files share a part: thousands of ranks must not become thousands of tiny files
BATCH_FILES = 64
PARALLEL_BYTES = 64 << 20  # below, starting worker processes costs more than it saves
STALE_SECONDS = 600.0  # another process may still be reading what this one finds outdated


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
    facts = [(relative_name(root, s.path), s.size_bytes, s.mtime_ns, s.kind, s.rank_id, s.window) for s in group]
    return hashlib.sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()[:24]


def reader_fingerprint() -> str:
    """Changes with every change of a reader or table declaration: what was read by other code is read again."""
    package = Path(workbench.__file__).parent
    code = [*sorted((package / "readers").glob("*.py")), package / "tables.py", Path(__file__)]
    facts = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in code]
    return hashlib.sha256(repr((workbench.__version__, facts)).encode()).hexdigest()[:12]


class Ingest:
    """The Parquet parts of one run, filled on demand."""

    def __init__(self, root: Path, sources: list[Source], directory: Path) -> None:
        self._root = root
        self._directory = directory / reader_fingerprint()
        self._batches = plan_batches(sources, root)
        self._done: dict[str, Manifest] = {}
        self._load()

    @property
    def directory(self) -> Path:
        """Where the Parquet parts are."""
        return self._directory / "parts"

    @property
    def scratch(self) -> Path:
        """Directory for temporary files of queries."""
        return self._directory / "scratch"

    @property
    def notes(self) -> list[Note]:
        """Notes of everything that has been read."""
        return [Note(**note) for m in self._manifests() for note in m.notes]

    @property
    def pending(self) -> list[Source]:
        """Sources that have not been read yet."""
        return [s for b in self._batches if b.key not in self._done for s in b.sources]

    def entries(self, name: str) -> list[TableEntry]:
        """What has been read of table `name`, in the order of the sources."""
        return [m.tables[name] for m in self._manifests() if name in m.tables]

    def parts(self, name: str) -> list[Path]:
        """Parquet files of table `name`, read so far."""
        return [self._directory / "parts" / part for e in self.entries(name) for part in e.parts]

    def ensure(
        self, names: Collection[str] | None = None, *, at_most_bytes: int | None = None, jobs: int | None, quiet: bool
    ) -> None:
        """Read what is missing of the tables `names` (of all tables by default).

        Args:
            names: tables.
            at_most_bytes: leave files above this size for later.
            jobs: worker processes; None lets `joblib.parallel_config` decide, and uses all cores without one.
            quiet: no progress bar.
        """
        self._forget_vanished()
        wanted = [b for b in self._batches if b.key not in self._done and _fills(b, names)]
        if at_most_bytes is not None:
            wanted = [b for b in wanted if b.size_bytes <= at_most_bytes]
        if not wanted:
            return
        total = sum(b.size_bytes for b in wanted)
        work = (joblib.delayed(read_batch)(b, self._root, self._directory) for b in _largest_first(wanted))
        with tqdm(total=total, unit="B", unit_scale=True, desc="reading", disable=quiet, delay=1.0) as bar:
            for key, size in _parallel(total, len(wanted), jobs)(work):
                self._done[key] = _load_manifest(self._manifest_path(key))
                bar.update(size)

    def _manifests(self) -> Iterator[Manifest]:
        return (self._done[b.key] for b in self._batches if b.key in self._done)

    def _manifest_path(self, key: str) -> Path:
        return self._directory / "batches" / f"{key}.json"

    def _load(self) -> None:
        _remove_other_fingerprints(self._directory)
        current = {b.key for b in self._batches}
        for path in sorted((self._directory / "batches").glob("*.json")):
            if path.stem in current:
                self._done[path.stem] = _load_manifest(path)
            elif time.time() - path.stat().st_mtime > STALE_SECONDS:
                _remove_batch(path, self._directory / "parts")
        self._forget_vanished()

    def _forget_vanished(self) -> None:
        """Drop batches whose parts someone has removed, so that they are read again."""
        for key, manifest in list(self._done.items()):
            parts = [self._directory / "parts" / p for e in manifest.tables.values() for p in e.parts]
            if not all(p.exists() for p in parts):
                del self._done[key]


def _fills(batch: Batch, names: Collection[str] | None) -> bool:
    return names is None or not set(names).isdisjoint(KINDS_BY_NAME[batch.kind].tables)


def _largest_first(batches: list[Batch]) -> list[Batch]:
    return sorted(batches, key=lambda b: -b.size_bytes)


def _parallel(total_bytes: int, batches: int, jobs: int | None) -> joblib.Parallel:
    configured = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    if jobs is not None or configured.n_jobs != 1:
        return configured
    cores = joblib.cpu_count() if total_bytes >= PARALLEL_BYTES else 1
    return joblib.Parallel(n_jobs=min(cores, batches), return_as="generator_unordered")


def _load_manifest(path: Path) -> Manifest:
    return msgspec.json.decode(path.read_bytes(), type=Manifest)


def _remove_other_fingerprints(directory: Path) -> None:
    if not directory.parent.is_dir():
        return
    for other in directory.parent.iterdir():
        if other.is_dir() and other != directory and time.time() - other.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _remove_batch(manifest: Path, parts: Path) -> None:
    for entry in _load_manifest(manifest).tables.values():
        for part in entry.parts:
            (parts / part).unlink(missing_ok=True)
    manifest.unlink(missing_ok=True)


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
        writers[name].write(rows)

    try:
        for source in batch.sources:
            notes += _read_source(source, source.context(root, scratch=directory / "scratch"), sink)
        entries = {name: _finish(writer) for name, writer in writers.items() if writer.rows}
    finally:
        for writer in writers.values():
            writer.discard()
    manifest = Manifest(
        sources=[relative_name(root, s.path) for s in batch.sources],
        tables=entries,
        notes=[_plain(note) for note in notes],
    )
    write_json_atomic(directory / "batches" / f"{batch.key}.json", manifest)
    return batch.key, batch.size_bytes


def _plain(note: Note) -> dict[str, str]:
    facts = {"file": note.file, "where": note.where, "problem": note.problem, "lost": note.lost, "fix": note.fix}
    return {k: v.encode(errors="backslashreplace").decode() for k, v in facts.items()}


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
        return _write_readings(kind.read(source.path, context), sink)
    except WorkbenchError as error:
        return [_whole_file(context.name(source.path), error.problem, error.fix)]
    except Exception as error:  # noqa: BLE001 - one file must not cost the others; the note names the defect
        problem = f"The reader of {kind.name} failed: {type(error).__name__}: {error}."
        return [_whole_file(context.name(source.path), problem, "report it with the file; the other files are read")]


def _write_readings(readings: dict[str, Reading], sink: Sink) -> list[Note]:
    notes = []
    for name, reading in readings.items():
        notes += reading.notes
        if len(reading.table):
            sink(name, to_arrow(reading.table, table(name)))
    return notes


def _whole_file(file: str, problem: str, fix: str) -> Note:
    return Note(file=file, where="whole file", problem=problem, lost="everything in it", fix=fix)
