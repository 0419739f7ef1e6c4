"""The place of a file -> rank and profile window.

Most formats do not say whose rank they are, and the folder of a modern profile has no rank in its name either: it
stands in `profiler_info_<rank>.json` beside it. Several captures of one rank are windows, in the order of their times.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.readers.place_names import (
    LEGACY_FOLDER,
    OUTPUT_FOLDER,
    capture_process,
    capture_time,
    is_ascend_folder,
    is_capture_folder,
    is_prof_folder,
    rank_in_file_name,
    rank_in_folder_name,
    rank_in_profiler_info,
    rank_of_facts,
    rank_suffix,
    ranks_of_listing,
)
from workbench.readers.placing import FileToPlace, Place
from workbench.readers.siblings import separate_siblings
from workbench.tables import Note

DESCRIPTIONS = frozenset({"profiler_info", "profiler_metadata"})  # a capture that holds only these measured nothing


def place_files(root: Path, files: Sequence[FileToPlace]) -> tuple[dict[Path, Place], list[Note]]:
    """Rank and window of each file. A second copy of a capture is left out, with a note."""
    notes: list[Note] = []
    captures = _captures([f.path for f in files if f.is_profile])
    kinds = {f.path: f.kind for f in files}
    known = {folder: _rank_of_capture(root, folder, paths) for folder, paths in captures.items()}
    _share_one_rank(known, captures, kinds)
    _number_unknown(root, known, captures, notes)
    ranks = {f.path: _rank_of_file(root, f.path) for f in files if not f.is_profile}
    members: dict[int, dict[Path, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for folder, paths in captures.items():
        for path in paths:
            ranks[path] = _rank_in_capture(path, folder, known[folder])
            members[ranks[path]][folder].append(path)
    places = {path: Place(rank, 0) for path, rank in ranks.items()}
    for rank, folders in members.items():
        kinds_of = {folder: {kinds[p] for p in paths} for folder, paths in folders.items()}
        for folder, window in _windows(root, rank, list(folders), kinds_of, notes).items():
            for path in folders[folder]:
                if window is None:
                    del places[path]
                else:
                    places[path] = Place(rank, window)
    places, more = separate_siblings(places, kinds)
    measured = {place.rank_id for path, place in places.items() if kinds[path] not in DESCRIPTIONS}
    return places, notes + more + _missing_ranks(sorted(measured & members.keys()))


def _captures(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    folder_of: dict[Path, Path] = {}
    captures: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        if path.parent not in folder_of:
            folder_of[path.parent] = _capture_folder(path.parent)
        captures[folder_of[path.parent]].append(path)
    return captures


def _capture_folder(folder: Path) -> Path:
    """The folder that holds everything of one capture: of one rank, or of a whole MindInsight-era job."""
    chain = [folder, *folder.parents]
    for candidate in chain:
        if is_ascend_folder(candidate.name):
            return candidate
    for candidate in chain:
        if candidate.name == OUTPUT_FOLDER:
            return candidate.parent
    for is_kind in (is_prof_folder, LEGACY_FOLDER.__eq__):
        for candidate in chain:
            if is_kind(candidate.name):
                return candidate
    return folder


def _rank_of_capture(root: Path, folder: Path, paths: Sequence[Path]) -> int | None:
    """The one rank of a capture folder, or None if it is not known or there are several."""
    names = _listing(folder)
    ranks = ranks_of_listing(names) or ranks_of_listing([p.name for p in paths])
    if not ranks and "profiler_info.json" in names:
        inside = rank_in_profiler_info(folder / "profiler_info.json")
        ranks = set() if inside is None else {inside}
    if len(ranks) > 1:
        return None
    if ranks:
        return ranks.pop()
    return _rank_in_folders(root, folder, paths)


def _rank_in_folders(root: Path, folder: Path, paths: Sequence[Path]) -> int | None:
    for candidate in [folder, *folder.parents]:
        if (rank := rank_in_folder_name(candidate.name)) is not None:
            return rank
        if candidate == root:
            break
    if is_prof_folder(folder.name):
        around = ranks_of_listing(_listing(folder.parent))
        cards = {rank_in_folder_name(p.parent.name) for p in paths} | {
            rank_in_folder_name(p.parent.parent.name) for p in paths
        }
        found = around or {c for c in cards if c is not None}
        return found.pop() if len(found) == 1 else None
    return None


def _listing(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _share_one_rank(known: dict[Path, int | None], captures: dict[Path, list[Path]], kinds: dict[Path, str]) -> None:
    """Folders that a user made for different kinds of files are one rank: the only known one, else 0."""
    made = [f for f, rank in known.items() if rank is None and not is_capture_folder(f)]
    if _repeats_a_kind(made, {f: {kinds[p] for p in captures[f]} for f in made}):
        return
    ranks = {rank for rank in known.values() if rank is not None}
    for folder in made:
        known[folder] = next(iter(ranks)) if len(ranks) == 1 else 0


def _number_unknown(
    root: Path, known: dict[Path, int | None], captures: dict[Path, list[Path]], notes: list[Note]
) -> None:
    unknown = [f for f in known if known[f] is None and not all(_has_own_rank(p, f) for p in captures[f])]
    taken = {rank for rank in known.values() if rank is not None}
    processes = {p: rank for f, rank in known.items() if rank is not None and (p := capture_process(f.name))}
    guessed: set[int] = set()
    for folder in sorted(unknown, key=lambda f: (capture_process(f.name) or str(f), str(f))):
        process = capture_process(folder.name) or str(folder)
        if process not in processes:
            processes[process] = next(n for n in range(len(taken) + 1) if n not in taken)
            taken.add(processes[process])
            guessed.add(processes[process])
        known[folder] = processes[process]
    if len(guessed) > 1 or (guessed and len(taken) > len(guessed)):
        notes.append(
            Note(
                file=_name(root, min(unknown)),
                where="rank",
                problem=f"{len(guessed)} profile folder(s) do not say their rank: they are numbered by name.",
                lost="the true rank numbers",
                fix="keep profiler_info_<rank>.json beside ASCEND_PROFILER_OUTPUT, or name the folders rank_<rank>",
            )
        )


def _has_own_rank(path: Path, folder: Path) -> bool:
    return rank_in_file_name(path.name) is not None or _suffix(path, folder) is not None


def _suffix(path: Path, folder: Path) -> int | None:
    """Rank at the end of the name; files of msprof end in device, model and iteration instead."""
    between = path.relative_to(folder).parts[:-1]
    if is_prof_folder(folder.name) or any(is_prof_folder(part) for part in between):
        return None
    return rank_suffix(path.name)


def _rank_in_capture(path: Path, folder: Path, known: int | None) -> int:
    if known is not None and (is_ascend_folder(folder.name) or is_prof_folder(folder.name)):
        return known
    for rank in (rank_in_file_name(path.name), _suffix(path, folder), known):
        if rank is not None:
            return rank
    return 0


def _rank_of_file(root: Path, path: Path) -> int:
    if (rank := rank_in_file_name(path.name)) is not None:
        return rank
    for folder in path.parents:
        if (rank := rank_in_folder_name(folder.name)) is not None:
            return rank
        if folder == root:
            break
    return rank_of_facts(path.name) or 0


def _repeats_a_kind(folders: Sequence[Path], kinds: Mapping[Path, set[str]]) -> bool:
    return len(set().union(*(kinds[f] for f in folders))) < sum(len(kinds[f]) for f in folders)


def _windows(
    root: Path, rank: int, folders: list[Path], kinds: Mapping[Path, set[str]], notes: list[Note]
) -> dict[Path, int | None]:
    """Window of each capture folder of one rank; None for a second copy of a capture."""
    windows: dict[Path, int | None] = {}
    inside = {f: [g for g in folders if f in g.parents] for f in folders}
    leaves = sorted((f for f in folders if not inside[f]), key=lambda f: (capture_time(f.name), str(f)))
    captures = [f for f in leaves if is_capture_folder(f)] or (leaves if _repeats_a_kind(leaves, kinds) else leaves[:1])
    seen: dict[str, Path] = {}
    for folder in captures:
        first = seen.setdefault(folder.name if capture_time(folder.name) else str(folder), folder)
        if first is folder:
            windows[folder] = len(seen) - 1
        else:
            windows[folder] = None
            notes.append(_copy(root, rank, folder, first))
    processes = {p for f in captures if windows[f] is not None and (p := capture_process(f.name))}
    if len(processes) > 1:
        notes.append(_several_processes(root, rank, captures, len(processes)))
    for folder in folders:  # files around a capture, or beside all of them, belong to it, or to the first
        if folder not in windows:
            windows[folder] = min((w for g in inside[folder] if (w := windows.get(g)) is not None), default=0)
    return windows


def _copy(root: Path, rank: int, folder: Path, first: Path) -> Note:
    return Note(
        file=_name(root, folder),
        where="whole directory",
        problem=f"A second copy of the capture {_name(root, first)} of rank {rank}.",
        lost="nothing: the first copy is read",
        fix="remove one of the two, or open the one you mean",
    )


def _several_processes(root: Path, rank: int, folders: list[Path], processes: int) -> Note:
    return Note(
        file=_name(root, folders[-1]),
        where="rank",
        problem=f"Rank {rank} was profiled by {processes} processes: a restart, or runs that do not belong together.",
        lost="nothing: they are profile windows of the rank, in the order of their times",
        fix="open the directory of one run only, if they do not belong together",
    )


def _missing_ranks(ranks: list[int]) -> list[Note]:
    if len(ranks) < 2:
        return []
    missing = sorted(set(range(ranks[-1] + 1)) - set(ranks))
    if not missing or len(missing) >= len(ranks):
        return []
    shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
    return [
        Note(
            file=".",
            where="ranks",
            problem=f"{len(ranks)} of {ranks[-1] + 1} ranks are here; missing: {shown}.",
            lost="whatever only these ranks show: the slow one may be among them",
            fix="copy the folders of these ranks, too",
        )
    ]


def _name(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
