"""A directory -> the files in it that a reader knows, with rank and profile window of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import UnknownContentError
from workbench.files import RunFiles
from workbench.readers import ALL_KINDS
from workbench.readers.kinds import HEAD_BYTES, FileContext, FileKind
from workbench.readers.places import place_files
from workbench.tables import Note

KINDS_BY_NAME: Mapping[str, FileKind] = {kind.name: kind for kind in ALL_KINDS}
SKIPPED_FOLDERS = frozenset({".workbench", ".git", ".ipynb_checkpoints", "__pycache__", "node_modules", ".venv"})


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file that a reader knows."""

    path: Path
    kind: str  # name of its FileKind
    rank_id: int
    window: int
    size_bytes: int
    mtime_ns: int

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that the file fills."""
        return KINDS_BY_NAME[self.kind].tables

    def context(self, root: Path, *, scratch: Path | None = None) -> FileContext:
        """What its place tells the reader."""
        return FileContext(rank_id=self.rank_id, window=self.window, root=root, scratch=scratch)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What lies in a directory."""

    sources: list[Source]
    unknown: list[Path]  # files that no reader knows
    notes: list[Note]


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file with the facts that tell whether it changed."""

    path: Path
    size_bytes: int
    mtime_ns: int


def discover(root: Path, *, known: Mapping[tuple[str, int, int], str | None] | None = None) -> Discovery:
    """Find and recognise every file under `root` (a directory or a single file).

    Args:
        root: what the user opened.
        known: kinds found earlier, by (relative path, size, mtime); such files are not opened again.

    Raises:
        UnknownContentError: `root` does not exist.
    """
    if not root.exists():
        raise UnknownContentError(f"{root} does not exist.", fix="check the path")
    notes: list[Note] = []
    sources: list[tuple[FoundFile, str]] = []
    unknown: list[Path] = []
    for found in find_files(root, notes):
        kind = _kind_of(found, root, known or {}, notes)
        if kind is None:
            unknown.append(found.path)
        else:
            sources.append((found, kind))
    places, place_notes = place_files(root, [(found.path, kind) for found, kind in sources])
    placed = [
        Source(
            path=found.path,
            kind=kind,
            rank_id=places[found.path].rank_id,
            window=places[found.path].window,
            size_bytes=found.size_bytes,
            mtime_ns=found.mtime_ns,
        )
        for found, kind in sources
        if found.path in places
    ]
    return Discovery(
        sources=sorted(placed, key=lambda s: (s.rank_id, s.window, str(s.path))),
        unknown=unknown,
        notes=notes + place_notes,
    )


def find_files(root: Path, notes: list[Note]) -> Iterator[FoundFile]:
    """Regular files under `root` in name order; links are followed, but no directory is entered twice."""
    if root.is_file():
        yield from _stat(root, notes)
        return
    entered: set[tuple[int, int]] = set()
    skipped = {RunFiles(root).checkpoints}
    stack = [root]
    while stack:
        folder = stack.pop()
        try:
            status = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            notes.append(_unreadable(root, folder, error))
            continue
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        folders = [Path(e.path) for e in entries if _is_folder(e) and e.name not in SKIPPED_FOLDERS]
        stack += [f for f in reversed(folders) if f not in skipped]
        yield from _files_of(entries, notes)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _files_of(entries: Iterable[os.DirEntry[str]], notes: list[Note]) -> Iterator[FoundFile]:
    for entry in entries:
        if not _is_folder(entry):
            yield from _stat(Path(entry.path), notes)


def _stat(path: Path, notes: list[Note]) -> Iterator[FoundFile]:
    if not path.is_file():
        return  # a dangling or looping link, a socket, a pipe
    status = path.stat()
    yield FoundFile(path=path, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def _kind_of(
    found: FoundFile, root: Path, known: Mapping[tuple[str, int, int], str | None], notes: list[Note]
) -> str | None:
    key = (relative_name(root, found.path), found.size_bytes, found.mtime_ns)
    if key in known:
        return known[key]
    try:
        with found.path.open("rb") as f:
            head = f.read(HEAD_BYTES)
    except OSError as error:
        notes.append(_unreadable(root, found.path, error))
        return None
    return next((kind.name for kind in ALL_KINDS if kind.sniff(found.path, head)), None)


def relative_name(root: Path, path: Path) -> str:
    """Name of a file inside the run, as notes show it."""
    return str(path.relative_to(root)) if path != root and path.is_relative_to(root) else path.name


def _unreadable(root: Path, path: Path, error: OSError) -> Note:
    return Note(
        file=relative_name(root, path),
        where="whole directory" if path.is_dir() else "whole file",
        problem=f"It cannot be read: {error.strerror or error}.",
        lost="everything in it",
        fix="give yourself the permission to read it, or copy it",
    )
