"""The place of a file: what goes into finding it and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Rank of a file in the job, and the profile window of that rank."""

    rank_id: int
    window: int


@dataclass(frozen=True)
class FileToPlace:
    """A recognised file; `is_profile` where its tables have profile windows."""

    path: Path
    kind: str
    is_profile: bool
