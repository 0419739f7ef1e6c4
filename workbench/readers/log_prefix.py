r"""Beginning of a log line, and the place of a log -> rank, level, module, time, and the text behind them.

The forms are those of MindSpore (C++ and Python side), MindFormers (screen and file), Megatron, DeepSpeed, torchtitan
and Hugging Face; source: the writers themselves. A time carries no zone: it is taken as UTC.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

NS_PER_DAY = 86_400_000_000_000
EARLIEST_YEAR, LATEST_YEAR = 1970, 2200  # what int64 nanoseconds hold
SOURCE_SPAN = 300  # between the time and the level stands the place in the source
PREFIX_SPAN = 100  # a time further right belongs to the message

_LEVELS = "TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_MINDSPORE = re.compile(
    rf"\[(?P<level>{_LEVELS})\] (?P<module>[A-Z][A-Z0-9_]*)\(\d+[,:]\w+,[^)]*\):"
    r"(?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.[\d.]*) ?\[[^\]]*\] ?(?:[^\s\[\]]{1,160}\] ?)?"
)
_DASHED = re.compile(rf"- (?P<level>{_LEVELS}) - ?")
_DASHED_SOURCE = re.compile(r"[\s-]*(\w+)")
_BRACKETED = re.compile(rf"\[(?P<level>{_LEVELS})[\]|]")
_AFTER_SOURCE = re.compile(r"\s*\[(?P<module>\w+)[^\]]*\] ?(?:\w+: )?| ?>> ?")
_TIME = re.compile(
    r"\[?(?:(\d{4})[-/](\d\d)[-/](\d\d)|(?P<us>\d\d/\d\d/\d{4}))"
    r"[-T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6})(?:\.(\d{0,3}))?)?\]?"
)
_RANK_TAG = re.compile(
    r"\s*(?:\[(?:default|[Rr]ank)[ _]?(\d{1,6})\]:? ?|\[1,(\d{1,6})\]<std(?:out|err)>: ?"
    r"|(\d{1,6}): (?=[\[{ ]|\d{4}-|[Ee]poch))"
)
_RANK_INSIDE = re.compile(r"\[[Rr]ank[ _]?(\d{1,6})\]")
_RANK_NAME = re.compile(r"(?:^|[^a-zA-Z])(?:rank|worker|device)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)(\d{1,6})(\.\w+)?")


class Prefix(NamedTuple):
    """What stands before the message of a line; None where the line does not say it."""

    rank_id: int | None
    level: str | None
    module: str | None
    time_ns: int | None
    text: str


def split_prefix(line: str) -> Prefix:
    """Separate a line into prefix and message."""
    rank, line = _rank_tag(line)
    if line.startswith("[") and (match := _MINDSPORE.match(line)):
        return Prefix(rank, match["level"], match["module"], time_ns(match["time"]), line[match.end() :])
    time = _TIME.search(line, 0, PREFIX_SPAN)
    end = time.end() if time else 0
    if match := _DASHED.search(line, end, end + SOURCE_SPAN):
        source = _DASHED_SOURCE.match(line, end, match.start())
        at = _ns(time) if time else None
        return Prefix(rank, match["level"], source[1] if source else None, at, line[match.end() :])
    if not time:
        return Prefix(rank, None, None, None, line)
    return _loose(line, time, rank)


def _loose(line: str, time: re.Match[str], rank: int | None) -> Prefix:
    """Forms that put level, source and time in any order."""
    end = time.end()
    if line.startswith(" -> ", end):  # an interval, as channel summaries print them
        return Prefix(rank, None, None, None, line)
    level = _BRACKETED.search(line, 0, end + 20)
    module = None
    if level:
        end = max(end, level.end())
        source = _AFTER_SOURCE.match(line, end)
        if source:
            module, end = source["module"], source.end()
    text = line[end:] if line[: time.start()].strip(" [|{") == "" or level else line
    return Prefix(rank, level["level"] if level else None, module, _ns(time), text.lstrip())


def _rank_tag(line: str) -> tuple[int | None, str]:
    if (line[:1] in "[ \t" or ": " in line[:8]) and (match := _RANK_TAG.match(line)):
        return int(match[1] or match[2] or match[3]), line[match.end() :]
    if ("ank" in line) and (match := _RANK_INSIDE.search(line, 0, 200)):
        return int(match[1]), line
    return None, line


def time_ns(text: str) -> int | None:
    """`2025-06-17-10:02:42.480.113`, `2025-05-11 09:12:03,118` or alike -> ns since the epoch; None if it is no time.

    The parts behind the second are milliseconds and microseconds, and old writers do not pad them with zeros.
    """
    match = _TIME.search(text)
    return _ns(match) if match else None


def _ns(match: re.Match[str]) -> int | None:
    year, month, day, american, hour, minute, second, fraction, micro = match.groups()
    if american:
        month, day, year = american.split("/")
    days = _days(int(year), int(month), int(day))
    if days is None:
        return None
    ns = days * NS_PER_DAY + (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000_000
    if fraction:
        ns += int(fraction) * (1_000_000 if len(fraction) <= 3 else 10 ** (9 - len(fraction)))
    return ns + int(micro) * 1000 if micro else ns


@lru_cache(maxsize=256)
def _days(year: int, month: int, day: int) -> int | None:
    if not EARLIEST_YEAR <= year <= LATEST_YEAR:
        return None
    try:
        return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None


def rank_of_place(path: Path, root: Path | None) -> int | None:
    """Rank that the name of a log or of its folders tells; None where they do not.

    A bare number at the end (`log_3.txt`) is a rank only if the same name with 0 stands beside it.
    """
    if match := _RANK_NAME.search(path.stem):
        return int(match[1])
    numbered = _NUMBERED.fullmatch(path.name)
    if numbered and (path.parent / f"{numbered[1]}0{numbered[3] or ''}").is_file():
        return int(numbered[2])
    for folder in path.parents:
        if root is not None and folder == root.parent:
            break
        if match := _RANK_NAME.search(folder.name):
            return int(match[1])
    return None
