"""The checkpoint files that lie in a run now -> table `checkpoint_files`, judged by structure without loading any.

Written under another name until they are whole, and so left out: temporary, hidden and breakpoint files.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Literal

import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.checkpoint_files import RECORD_KEY, Damage, find_damage
from workbench.readers.checkpoints import NOT_COMPLETE, checkpoint_directory, find_checkpoints, step_from_name
from workbench.readers.discovery import find_files, relative_name
from workbench.readers.kinds import encodable
from workbench.tables import CHECKPOINT_FILES

FILES_MOST = 1000  # the last written ones: thousands of headers on shared storage take minutes
CHECKSUM_BYTES = 64 << 20  # of a larger file only the structure is read
MINDSPORE = ".ckpt"
TORCH = (".pt", ".pth", ".bin")
SUFFIXES = (MINDSPORE, ".safetensors", *TORCH)
ZIP_MARK = b"PK\x03\x04"
POINTER_MARK = b"version https://git-lfs"
ENCRYPTED_MARKS = (
    b"\xd8\x5e\x3a\x7f",
    b"\xd9\x5e\x3a\x7f",
    b"\xda\x5e\x3a\x7f",
)  # MindSpore: AES-GCM, AES-CBC, SM4-CBC
PICKLE_MARK = b"\x80"  # older files of torch
FOREIGN = Damage("garbled", "It begins with other bytes than the MindSpore checkpoints of its series.")
HEAD_BYTES = 64
TEMPORARY = re.compile(r"^\.|tmp|temp|\.part\b|incomplete", re.IGNORECASE)
_OF_TORCH = re.compile(r"ckpt|checkpoint|iter_\d|global_step|mp_rank|pytorch_model|optim", re.IGNORECASE)
_STEP_FOLDER = re.compile(r"(?:checkpoint|global_?step|iter|step)[-_]?0*(\d{1,15})", re.IGNORECASE)
_SHARD = re.compile(r"(?:[a-z]+_)*rank_?\d+(?:_\d+)*")
_OF = re.compile(r"-?0*(\d+)-of-0*(\d+)")

Format = Literal["mindspore", "known", "foreign", "unknown"]


def read_checkpoint_files(root: Path, others: Iterable[Path] = ()) -> pd.DataFrame:
    """Table `checkpoint_files` of a run: its checkpoint folder, and `others` that are checkpoints by name and content.

    A file that is removed while it is looked at, that may not be read, or whose format is not known (encrypted, of
    another framework), gives no row. Bytes of no known format are damage where others of the series are of MindSpore.

    Args:
        root: what was opened; a single file has no checkpoints.
        others: files elsewhere in it.
    """
    there = _candidates(root, others) if root.is_dir() else []
    found = {path: status for path in there if (status := _status(path)) is not None}
    steps = _known_steps(root) if found else {}
    newest = sorted(found, key=lambda p: (-found[p].st_mtime_ns, str(p)))[:FILES_MOST]
    judged = [row for path in sorted(newest) if (row := _row(root, path, found[path], steps)) is not None]
    of_mindspore = {row["series"] for row, format_ in judged if format_ == "mindspore"}
    rows = [row for row, format_ in judged if format_ != "foreign" or row["series"] in of_mindspore]
    return CHECKPOINT_FILES.check(pd.DataFrame(rows, columns=list(CHECKPOINT_FILES.column_names)))


def _candidates(root: Path, others: Iterable[Path]) -> list[Path]:
    folder = checkpoint_directory(root)
    own = [f.path for f in find_files(folder, [])] if os.path.isdir(folder) else []
    return [p for p in dict.fromkeys([*own, *others]) if _may_be_checkpoint(root, p)]


def _may_be_checkpoint(root: Path, path: Path) -> bool:
    name = path.name
    if path.suffix not in SUFFIXES or TEMPORARY.search(name) or name.endswith(NOT_COMPLETE):
        return False
    return path.suffix not in TORCH or _OF_TORCH.search(relative_name(root, path)) is not None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:  # removed since it was listed: training keeps the last few
        return None


def _known_steps(root: Path) -> dict[Path, int]:
    try:
        return {c.path: c.step for c in find_checkpoints(root) if c.step is not None}
    except UnreadableFileError:  # the folder cannot be listed: then no file of it is a candidate either
        return {}


def _row(
    root: Path, path: Path, status: os.stat_result, steps: dict[Path, int]
) -> tuple[dict[str, object], Format] | None:
    try:
        format_, damage = _judge(path, status.st_size)
    except OSError:  # removed, or not for us to read: nothing can be said
        return None
    if format_ == "unknown":
        return None
    name = relative_name(root, path)
    place = _place(PurePath(name))
    return place | {
        "file": encodable(name),
        "step": steps.get(path, place["step"]),
        "size_bytes": status.st_size,
        "least_bytes": damage.least_bytes if damage else None,
        "modified_ns": status.st_mtime_ns,
        "damage": damage.kind if damage else None,
        "problem": damage.problem if damage else None,
    }, format_


def _judge(path: Path, size: int) -> tuple[Format, Damage | None]:
    """The format by the first bytes, and what is wrong with the file."""
    if size == 0:
        return "known", Damage("cut_short", "The file is empty.")
    with path.open("rb") as f:
        head = f.read(HEAD_BYTES)
    if not any(head):
        return "known", Damage("cut_short", "The file begins with zeros: its content was never written.")
    if head.startswith(POINTER_MARK):
        return "known", Damage("garbled", "A pointer of git-lfs lies in its place: the file itself was never fetched.")
    if head.startswith(ZIP_MARK):  # of torch
        return "known", None if zipfile.is_zipfile(path) else Damage(
            "cut_short", "The archive has no directory at its end: its writing was cut off."
        )
    if path.suffix in TORCH:
        return "unknown", None
    if path.suffix == MINDSPORE and head[0] != RECORD_KEY:
        return ("unknown", None) if head.startswith((*ENCRYPTED_MARKS, PICKLE_MARK)) else ("foreign", FOREIGN)
    damage = find_damage(path, checksum_bytes=CHECKSUM_BYTES)
    return "mindspore" if path.suffix == MINDSPORE and damage is None else "known", damage


def _place(name: PurePath) -> dict[str, object]:
    """Checkpoint, series, shard, number of shards and step, by the file's name and folders."""
    folders, stem = name.parts[:-1], name.stem
    at = next((i for i, part in enumerate(folders) if _STEP_FOLDER.fullmatch(part)), None)
    rest = "/".join((*folders[0 if at is None else at + 1 :], stem))
    ranks, of = _SHARD.findall(rest), _OF.search(stem)
    if at is None:
        checkpoint, step = _OF.sub("", _SHARD.sub("rank_*", rest)), step_from_name(stem, None)
    else:
        matched = _STEP_FOLDER.fullmatch(folders[at])
        checkpoint, step = "/".join(folders[: at + 1]), int(matched[1]) if matched else None
    return {
        "checkpoint": encodable(checkpoint),
        "series": encodable(re.sub(r"\d+", "#", checkpoint)),
        "shard": ranks[0] if ranks else of[1] if of else None,
        "shards": int(of[2]) if of else None,
        "step": step,
    }
