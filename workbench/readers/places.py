"""The place of a file -> rank and profile window: folder and file names are all that most formats tell about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.tables import Note

_RANK_FOLDER = re.compile(r"(?:^|.*_)rank[-_]?(\d+)(?:$|[-_].*)|(?:worker|device)[-_]?(\d+)$", re.IGNORECASE)
_RANK_FILE = re.compile(r"(?:rank|worker)[-_]?(\d+)", re.IGNORECASE)
_PROFILE_FOLDER = re.compile(r".*_(\d{14,17})_ascend_(?:ms|pt)$")
_PROFILER_INFO = re.compile(r"profiler_info_(\d+)\.json")
_SUFFIX = re.compile(r"_(\d{1,6})(?:_detail_time|_detail|_type)?\.\w+$")


@dataclass(frozen=True)
class Place:
    """Rank of a file in the job, and the profile window of that rank."""

    rank_id: int
    window: int


def place_files(root: Path, files: Sequence[tuple[Path, str]]) -> tuple[dict[Path, Place], list[Note]]:
    """Rank and window of each (path, kind); files that are left out are named in a note."""
    profile_of = {path: _profile_folder(root, path) for path, _ in files}
    rank_of_profile = {p: _rank_of_profile(p) for p in set(profile_of.values()) if p is not None}
    ranks = {path: _rank(root, path, profile_of[path], rank_of_profile) for path, _ in files}
    windows = _windows(ranks, profile_of)
    return {path: Place(ranks[path], windows[path]) for path, _ in files}, []


def _profile_folder(root: Path, path: Path) -> Path | None:
    for folder in path.parents:
        if _PROFILE_FOLDER.match(folder.name):
            return folder
        if folder == root:
            return None
    return None


def _rank_of_profile(folder: Path) -> int | None:
    for name in sorted(p.name for p in folder.glob("profiler_info_*.json")):
        if match := _PROFILER_INFO.fullmatch(name):
            return int(match[1])
    return None


def _rank(root: Path, path: Path, profile: Path | None, rank_of_profile: dict[Path, int | None]) -> int:
    from_profile = rank_of_profile.get(profile) if profile else None
    if from_profile is not None:
        return from_profile
    for pattern in (_RANK_FILE, _SUFFIX):
        if match := pattern.search(path.name):
            return int(match[1])
    for folder in path.parents:
        if match := _RANK_FOLDER.fullmatch(folder.name):
            return int(match[1] or match[2])
        if folder == root:
            break
    return 0


def _windows(ranks: dict[Path, int], profile_of: dict[Path, Path | None]) -> dict[Path, int]:
    folders: dict[int, set[Path]] = {}
    for path, folder in profile_of.items():
        if folder is not None:
            folders.setdefault(ranks[path], set()).add(folder)
    ordered = {rank: sorted(of_rank, key=_window_time) for rank, of_rank in folders.items()}
    return {
        path: ordered[ranks[path]].index(folder) if folder is not None else 0 for path, folder in profile_of.items()
    }


def _window_time(folder: Path) -> tuple[str, str]:
    match = _PROFILE_FOLDER.match(folder.name)
    return (match[1].ljust(17, "0") if match else "", str(folder))


def ranks_of(places: Iterable[Place]) -> list[int]:
    """Ranks in ascending order, each once."""
    return sorted({place.rank_id for place in places})
