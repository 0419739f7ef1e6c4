"""A directory -> the files in it that a reader knows, with rank and profile window of each."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import UnknownContentError
from workbench.files import RunFiles
from workbench.readers import ALL_KINDS
from workbench.readers.kinds import HEAD_BYTES, FileContext, FileKind
from workbench.readers.places import place_files
from workbench.readers.placing import FileToPlace
from workbench.readers.precedence import OVER_ALL_RANKS, tables_to_read
from workbench.tables import TABLES, Note

FileKey = tuple[str, int, int]  # name inside the run, size, modification time: the same file as before
KINDS_BY_NAME: Mapping[str, FileKind] = {kind.name: kind for kind in ALL_KINDS}
_BY_CONTENT_ALONE = frozenset({"log_messages", "series"})  # kinds of logs and CSV series, whose names say nothing
_DIGITS = re.compile(r"\d+")
_PROFILE_KINDS = frozenset({"profiler_info", "profiler_metadata"})
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
    tables: tuple[str, ...]  # that it is read for

    def context(self, root: Path, *, scratch: Path | None = None) -> FileContext:
        """What its place tells the reader."""
        return FileContext(rank_id=self.rank_id, window=self.window, root=root, scratch=scratch)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What lies in a directory."""

    sources: list[Source]
    unknown: list[Path]  # files that no reader knows
    notes: list[Note]
    kinds: dict[FileKey, str | None]  # what was recognised, to be given as `known` next time


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file with the facts that tell whether it changed."""

    path: Path
    size_bytes: int
    mtime_ns: int


def file_key(root: Path, found: FoundFile) -> FileKey:
    """The same key means the same content."""
    return relative_name(root, found.path), found.size_bytes, found.mtime_ns


def discover(root: Path, *, known: Mapping[FileKey, str | None] | None = None) -> Discovery:
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
    recogniser = _Recogniser(root, known or {}, notes)
    kinds: dict[FileKey, str | None] = {}
    for found in find_files(root, notes):
        kind = kinds[file_key(root, found)] = recogniser.kind_of(found)
        if kind is None:
            unknown.append(found.path)
        else:
            sources.append((found, kind))
    placed, place_notes = _place(root, sources)
    ordered = sorted(placed, key=lambda s: (s.rank_id, s.window, str(s.path)))
    return Discovery(sources=ordered, unknown=unknown, notes=notes + place_notes, kinds=kinds)


def _place(root: Path, sources: list[tuple[FoundFile, str]]) -> tuple[list[Source], list[Note]]:
    files = [FileToPlace(found.path, kind, _is_profile(kind)) for found, kind in sources]
    places, notes = place_files(root, files)
    kept = [(found, kind, places[found.path]) for found, kind in sources if found.path in places]
    tables = tables_to_read(
        [(f.path, kind, (place.rank_id, place.window), KINDS_BY_NAME[kind].tables) for f, kind, place in kept]
    )
    placed = [
        Source(
            path=found.path,
            kind=kind,
            rank_id=place.rank_id,
            window=place.window,
            size_bytes=found.size_bytes,
            mtime_ns=found.mtime_ns,
            tables=tables[found.path],
        )
        for found, kind, place in kept
    ]
    return placed, notes


def _is_profile(kind: str) -> bool:
    """Whether files of the kind belong to a profile of one rank."""
    tables = KINDS_BY_NAME[kind].tables
    in_profile = any("window" in TABLES[t].column_names for t in tables) and "training_steps" not in tables
    return (in_profile or kind in _PROFILE_KINDS) and kind not in OVER_ALL_RANKS


def find_files(root: Path, notes: list[Note]) -> Iterator[FoundFile]:
    """Regular files under `root` in name order; links are followed, but no directory is entered twice."""
    if root.is_file():
        yield from _regular(root, root.stat())
        return
    entered: set[tuple[int, int]] = set()
    checkpoints = RunFiles(root).checkpoints
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
        folders = []
        for entry in entries:
            found = _status(entry)
            if found is None:
                notes += [_leads_nowhere(root, Path(entry.path))] if entry.is_symlink() else []
                continue
            if stat.S_ISDIR(found.st_mode):
                folders.append(Path(entry.path))
            else:
                yield from _regular(Path(entry.path), found)
        stack += [f for f in reversed(folders) if f.name not in SKIPPED_FOLDERS and f != checkpoints]


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:
        return None  # a dangling or looping link, or a file that has just been removed


def _regular(path: Path, status: os.stat_result) -> Iterator[FoundFile]:
    if stat.S_ISREG(status.st_mode):  # no sockets, pipes, devices: opening them may block
        yield FoundFile(path=path, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


class _Recogniser:
    """Tells the kind of each file; a kind found for a name is tried first for the next name that differs in digits."""

    def __init__(self, root: Path, known: Mapping[FileKey, str | None], notes: list[Note]) -> None:
        self._root = root
        self._known = known
        self._notes = notes
        self._by_name: dict[str, FileKind] = {}

    def kind_of(self, found: FoundFile) -> str | None:
        key = file_key(self._root, found)
        if key in self._known:
            return self._known[key]
        try:
            with found.path.open("rb") as f:
                head = f.read(HEAD_BYTES)
        except OSError as error:
            self._notes.append(_unreadable(self._root, found.path, error))
            return None
        pattern = _DIGITS.sub("0", f"{found.path.parent.name}/{found.path.name}")
        likely = self._by_name.get(pattern)
        if likely is not None and likely.sniff(found.path, head):
            return likely.name
        kind = next((k for k in ALL_KINDS if k.sniff(found.path, head)), None)
        if kind is not None and _BY_CONTENT_ALONE.isdisjoint(kind.tables):
            self._by_name[pattern] = kind
        return kind.name if kind else None


def relative_name(root: Path, path: Path) -> str:
    """Name of a file inside the run, as notes show it."""
    inside, whole = f"{root}{os.sep}", str(path)
    return whole[len(inside) :] if whole.startswith(inside) else path.name


def _unreadable(root: Path, path: Path, error: OSError) -> Note:
    return Note(
        file=relative_name(root, path),
        where="whole directory" if path.is_dir() else "whole file",
        problem=f"It cannot be read: {error.strerror or error}.",
        lost="everything in it",
        fix="give yourself the permission to read it, or copy it",
    )


def _leads_nowhere(root: Path, link: Path) -> Note:
    return Note(
        file=relative_name(root, link),
        where="whole file",
        problem="The link leads nowhere.",
        lost="what it should lead to",
        fix="copy that file here, or remove the link",
    )
