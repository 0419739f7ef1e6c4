"""Checkpoint files and log lines -> checkpoints that cannot be read or lack shards, and reads and saves that failed.

A file that changed a moment ago, with no later checkpoint, may still be being written: it is not judged.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import pandas as pd

from workbench.tables import CHECKPOINT_FILES, LOG_MESSAGES

SETTLED_NS = 600 * 10**9  # since the last change: storage that writes a file for longer adds to it more often
LATER_NS = 60 * 10**9  # how much later another one is: files that are copied side by side take turns
CHECKPOINTS = (
    "series", "checkpoint", "step", "files", "modified_ns", "damaged", "missing", "is_settled", "file", "shard",
    "size_bytes", "least_bytes", "whole_bytes", "damage", "problem",
)  # fmt: skip
NEAR_LINES = 60  # a traceback between a failure and the line that names the file
_NAMED = re.compile(r"['\" ](?P<file>[^\s'\"]+?\.(?:ckpt|safetensors|pth|pt))\b")
_NO_SPACE = re.compile(r"No space left on device|Errno 28|Disk quota exceeded|Errno 122")


class Pattern(NamedTuple):
    """A message: what it tells, how sure it is that the file is damaged, and how it is recognised."""

    what: Literal["read", "save"]
    is_sure: bool
    text: re.Pattern[str]


# Sources: MindSpore 2.10 train/serialization.py, safetensors src/tensor.rs, torch caffe2/serialize/inline_container.cc
PATTERNS = (
    Pattern("read", True, re.compile(r"Failed to read the checkpoint file (?P<file>\S+)\. The file may be corrupted")),
    Pattern("read", False, re.compile(r"Failed to read the checkpoint file (?P<file>\S+)\. May not have permission")),
    Pattern("read", True, re.compile(r"'load_checkpoint', the crc check (?:is|has) failed")),
    Pattern("read", True, re.compile(r"Fail to parse the input safetensors: '(?P<file>[^']+)'")),
    Pattern("read", True, re.compile(r"SafeTensorError::(?:MetadataIncomplete|InvalidHeader|Header|TensorInvalid)\w*")),
    Pattern("read", True, re.compile(r"Error while deserializing header: (?!.*No such file)")),
    Pattern("read", True, re.compile(
        r"PytorchStreamReader failed reading (?:zip archive|file).*(?:central directory|corrupted|invalid header)")),
    Pattern("read", False, re.compile(r"UnpicklingError: invalid load key")),
    Pattern("save", True, re.compile(r"PytorchStreamWriter failed writing file")),
    Pattern("save", False, re.compile(r"Failed to save the checkpoint file (?P<file>\S+)\. Maybe don't have")),
)  # fmt: skip


def checkpoints(checkpoint_files: pd.DataFrame, *, now_ns: int) -> pd.DataFrame:
    """The checkpoints that lie there, each with all its files.

    Shards are missing where names tell how many there are (00001-of-00005) and another checkpoint of the series has
    the one that lacks (else it may lie on another node), or where every other checkpoint of the series that is not the
    oldest has a rank that this one lacks; the oldest may be on its way out. Where the oldest is the only other, a rank
    is missing between those that are there: without the last ones, the job may have become smaller.

    Args:
        checkpoint_files: table `checkpoint_files`.
        now_ns: time of the look, ns since epoch.

    Returns:
        One row per checkpoint with columns `CHECKPOINTS`, in the order of writing: files, damaged (how many of them);
        missing (names of shards); is_settled (nobody writes it any more); of the first damaged file: file, shard,
        size_bytes, least_bytes, damage, problem; whole_bytes (median size of whole files of the series).
    """
    files = CHECKPOINT_FILES.check(checkpoint_files)
    rows = [
        _checkpoint(str(series), str(name), part, group, now_ns)
        for series, group in files.groupby("series", sort=False)
        for name, part in group.groupby("checkpoint", sort=False)
    ]
    table = pd.DataFrame(rows, columns=list(CHECKPOINTS)).astype({"step": "Int64", "least_bytes": "Int64"})
    return table.sort_values("modified_ns", kind="stable", ignore_index=True)


def _checkpoint(series: str, name: str, part: pd.DataFrame, group: pd.DataFrame, now_ns: int) -> dict[str, object]:
    damaged = part[part["damage"].notna()]
    first = damaged.iloc[0] if len(damaged) else None
    written = int(part["modified_ns"].max())
    others = group[group["checkpoint"] != name].groupby("checkpoint")["modified_ns"].max()
    whole = group[group["damage"].isna()]["size_bytes"]
    return {
        "series": series, "checkpoint": name, "step": part["step"].max(), "files": len(part), "modified_ns": written,
        "damaged": len(damaged), "missing": _missing(name, part, group),
        "is_settled": bool((others > written + LATER_NS).any()) or now_ns - written > SETTLED_NS,
        "file": None if first is None else first["file"],
        "shard": None if first is None else first["shard"],
        "size_bytes": int(part["size_bytes"].sum()) if first is None else int(first["size_bytes"]),
        "least_bytes": pd.NA if first is None else first["least_bytes"],
        "whole_bytes": float(whole.median()) if len(whole) else float("nan"),
        "damage": None if first is None else first["damage"],
        "problem": None if first is None else first["problem"],
    }  # fmt: skip


def _missing(name: str, part: pd.DataFrame, group: pd.DataFrame) -> tuple[str, ...]:
    counted = part[part["shards"].notna()]
    lacking: list[str] = []
    for total, shards in counted.groupby("shards"):
        others = group[(group["checkpoint"] != name) & (group["shards"] == total).fillna(False)]
        lacking += [f"{n} of {total}" for n in sorted(map(int, set(others["shard"]) - set(shards["shard"])))]
    ranks = group[group["shards"].isna() & group["shard"].notna()]
    written = ranks.groupby("checkpoint")["modified_ns"].max().sort_values(kind="stable")
    if name not in written.index[1:]:
        return tuple(lacking)
    of = {str(c): set(ranks.loc[ranks["checkpoint"] == c, "shard"]) for c in written.index}
    own, oldest, *later = of.pop(name), *of.values()
    if later:
        return (*lacking, *sorted(set.intersection(*later) - own))
    return (*lacking, *sorted((s for s in oldest - own if _numbers(s) < max(map(_numbers, own))), key=_numbers))


def _numbers(shard: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", shard))


def checkpoint_failures(log_messages: pd.DataFrame) -> pd.DataFrame:
    """Lines of logs that say a checkpoint could not be read or written.

    A full disk counts where the line, or one near it in the same log, is about a checkpoint.

    Args:
        log_messages: table `log_messages`.

    Returns:
        One row per log, kind of failure and checkpoint: what (read or save), is_sure, is_full (the disk), rank_id,
        source, line, step, checkpoint (its file, missing where no line names it), text; in the order of the lines.
    """
    columns = ["what", "is_sure", "is_full", "rank_id", "source", "line", "step", "checkpoint", "text"]
    messages = LOG_MESSAGES.check(log_messages)
    messages = messages[messages["kind"].isin(["exception", "error", "warning"])]
    failed = {index: found for index, text in messages["text"].items() if (found := _failure(str(text))) is not None}
    with_failures = messages.loc[list(failed), "file"]  # few of thousands of logs
    rows = []
    for source, said in messages[messages["file"].isin(with_failures)].groupby("file", sort=False):
        full = said.loc[said["text"].str.contains(_NO_SPACE, na=False), "line"]
        for row in said[said.index.isin(failed)].itertuples():
            what, is_sure, file = failed[row.Index]
            near = (full - int(str(row.line))).abs() <= NEAR_LINES
            is_full = what == "save" and (bool(near.any()) or _NO_SPACE.search(str(row.text)) is not None)
            named = file or _named_near(said, int(str(row.line)))
            rows.append((what, is_sure or is_full, is_full, row.rank_id, source, row.line, row.step, named, row.text))
    table = pd.DataFrame(rows, columns=columns).astype({"rank_id": "Int64", "step": "Int64", "checkpoint": "string"})
    return table.sort_values("is_sure", ascending=False, kind="stable").drop_duplicates(
        ["source", "what", "checkpoint"], ignore_index=True
    )


def _failure(text: str) -> tuple[str, bool, str | None] | None:
    """What failed, whether the line alone proves it, and the file that it names."""
    for pattern in PATTERNS:
        if match := pattern.text.search(text):
            return pattern.what, pattern.is_sure, match.groupdict().get("file")
    if _NO_SPACE.search(text) and (named := _NAMED.search(text)):
        return "save", True, named["file"]
    return None


def _named_near(said: pd.DataFrame, line: int) -> str | None:
    near = said[(said["line"] - line).abs() <= NEAR_LINES]
    for text in near.loc[(near["line"] - line).abs().sort_values(kind="stable").index, "text"]:
        if match := _NAMED.search(str(text)):
            return match["file"]
    return None
