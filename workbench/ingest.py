"""Files of a run -> Parquet parts, once per content: incremental, resumable after a kill, in parallel by joblib.

Sources of one kind are read in batches. A batch is done when its manifest is there; it is written last and atomically,
so a kill costs the batches that were being read. A batch is named by the content of its sources (path, size, mtime), so
a changed file makes a new batch and an unchanged one is never read again.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import joblib
import msgspec
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm.auto import tqdm

import workbench
from workbench.batches import Batch, Manifest, TableEntry, not_writable, plan_batches, read_batch
from workbench.errors import WorkbenchError
from workbench.files import write_json_atomic
from workbench.readers.discovery import KINDS_BY_NAME, FileKey, Source
from workbench.tables import Note

BYTES_PER_SECOND = 150e6  # one process, measured on traces; CSV and JSON tables are a little slower
SECONDS_PER_FILE = 0.004  # on top of that, measured on small CSV files
SECONDS_PER_FILE_TOGETHER = 0.0005  # where a kind reads many at once
PARALLEL_SECONDS = 4.0  # of work: below, starting worker processes costs more than it saves
STALE_SECONDS = 600.0  # another process may still be reading what this one finds outdated


def reader_fingerprint() -> str:
    """Changes with every change of a reader or table declaration: what was read by other code is read again."""
    package = Path(workbench.__file__).parent
    code = [*sorted((package / "readers").glob("*.py")), *(package / f"{n}.py" for n in ("tables", "store", "batches"))]
    facts = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in code]
    return hashlib.sha256(repr((workbench.__version__, facts)).encode()).hexdigest()[:12]


class Ingest:
    """The Parquet parts of one run, filled on demand."""

    def __init__(self, root: Path, sources: list[Source], directory: Path) -> None:
        self._root = root
        self._directory = _tables_directory(directory)
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

    def kinds(self, name: str) -> set[str]:
        """Kinds of the files that gave rows of table `name`."""
        return {b.kind for b in self._batches if b.key in self._done and name in self._done[b.key].tables}

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
        try:
            self._read(wanted, jobs, quiet)
        except OSError as error:
            raise not_writable(self._directory, error) from None
        except TerminatedWorkerError:
            raise WorkbenchError(
                "A worker process was killed while reading, most likely for want of memory.",
                fix="open the run with jobs=1 (`workbench import PATH --jobs 1`); what is finished is kept",
            ) from None

    def _read(self, wanted: list[Batch], jobs: int | None, quiet: bool) -> None:
        total = sum(b.size_bytes for b in wanted)
        work = (joblib.delayed(read_batch)(b, self._root, self._directory) for b in _largest_first(wanted))
        with tqdm(total=total, unit="B", unit_scale=True, desc="reading", disable=quiet, delay=1.0) as bar:
            for key, size in _parallel(wanted, jobs)(work):
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
            with suppress(FileNotFoundError, msgspec.DecodeError):  # removed by another process, or damaged: read again
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
    return any(s.tables if names is None else not set(names).isdisjoint(s.tables) for s in batch.sources)


def _largest_first(batches: list[Batch]) -> list[Batch]:
    return sorted(batches, key=lambda b: -b.size_bytes)


def _parallel(batches: list[Batch], jobs: int | None) -> joblib.Parallel:
    configured = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    if jobs is not None or configured.n_jobs != 1:
        return configured
    seconds = sum(_seconds(b) for b in batches)
    cores = joblib.cpu_count() if seconds >= PARALLEL_SECONDS else 1
    return joblib.Parallel(n_jobs=min(cores, len(batches)), return_as="generator_unordered")


def _seconds(batch: Batch) -> float:
    """Estimated work, to decide whether worker processes pay."""
    together = KINDS_BY_NAME[batch.kind].read_many is not None
    per_file = SECONDS_PER_FILE_TOGETHER if together else SECONDS_PER_FILE
    return batch.size_bytes / BYTES_PER_SECOND + len(batch.sources) * per_file


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


def load_known(directory: Path) -> dict[FileKey, str | None]:
    """Kinds of files that were recognised when the run was opened before."""
    try:
        rows = msgspec.json.decode(_known_path(directory).read_bytes(), type=list[tuple[str, int, int, str | None]])
    except (OSError, msgspec.DecodeError):
        return {}
    return {(name, size, mtime): kind for name, size, mtime, kind in rows}


def save_known(directory: Path, kinds: dict[FileKey, str | None]) -> None:
    """Remember the kinds of files; names that are not UTF-8 are recognised anew each time."""
    rows = [(*key, kind) for key, kind in kinds.items() if key[0].isprintable()]
    write_json_atomic(_known_path(directory), rows)


def _known_path(directory: Path) -> Path:
    return _tables_directory(directory) / "known.json"


def _tables_directory(directory: Path) -> Path:
    """Folder of what these readers read: nothing else lies below `tables/`, so that older folders may be removed."""
    return directory / "tables" / reader_fingerprint()
