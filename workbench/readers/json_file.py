"""JSON files -> values. Of a damaged file everything but the damaged members, with a note on the byte of the damage."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.readers.text import decode_to_utf8, normalise_bytes, read_bytes
from workbench.tables import Note

MAX_REPAIRS = 20
FIX = "copy the file again from the training host, or parse the profile again"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)
SCALAR_END = re.compile(r"[,\]}]")
LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class Json(NamedTuple):
    """The value, and notes on what is lost of it."""

    value: Any
    notes: list[Note]


def read_json(path: Path, context: FileContext, *, expect: type | tuple[type, ...] = (dict, list)) -> Json:
    """Read a JSON file. Members that are damaged are left out; a cut file gives the members before the cut.

    Args:
        path: the file.
        context: gives the name in notes.
        expect: types that the outermost value may have.

    Returns:
        The value (NaN and Infinity, which Python writes, become null), and a note for each damage.

    Raises:
        UnreadableFileError: empty, nothing can be saved, or another outermost value than expected.
    """
    file = context.name(path)
    data, notes = normalise_bytes(read_bytes(path, context), file)
    raw, more = decode_to_utf8(data, file)
    notes += more
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        value, damage = _repaired(LONE_SURROGATE.sub(r"\\ufffd", raw.decode()))
        if not value and damage:
            raise UnreadableFileError(f"{file} is damaged at byte {damage[0][0]}: no JSON.", fix=FIX) from None
        notes += [
            Note(file=file, where=f"byte {at}", problem=problem, lost=lost, fix=FIX) for at, problem, lost in damage
        ]
    if not isinstance(value, expect):
        raise UnreadableFileError(
            f"{file} holds a JSON {type(value).__name__}, which is not what such a file holds.",
            fix="check that the file is what its name says",
        )
    return Json(value, notes)


def _repaired(text: str) -> tuple[Any, list[tuple[int, str, str]]]:
    """The value of `text` without its damaged members, and (byte, problem, what is lost) of each damage."""
    damage: list[tuple[int, str, str]] = []
    removed = 0
    for _ in range(MAX_REPAIRS):
        value, at = _decoded(text)
        if at is None:
            return value, damage
        byte = len(text[:at].encode()) + removed
        shorter = _without_member(text, at)
        if shorter is None:
            break
        damage.append((byte, "this place is not JSON.", "the member there"))
        removed += len(text.encode()) - len(shorter.encode())
        text = shorter
    else:
        byte = len(text[:at].encode()) + removed
    damage.append((byte, "the file is cut, or not JSON from there on.", "all that comes after it"))
    value, at = _decoded(_closed(text[:at]))
    return (value if at is None else None), damage


def _decoded(text: str) -> tuple[Any, int | None]:
    """The value, or the character at which the text stops being JSON."""
    ignore: Callable[[str], None] = lambda _word: None  # noqa: E731
    try:
        return json.loads(text, parse_constant=ignore), None
    except json.JSONDecodeError as e:
        return None, e.pos
    except RecursionError:
        return None, 0


def _without_member(text: str, at: int) -> str | None:
    """`text` without the member around character `at`; None where the text ends there."""
    start, opener = 0, False
    for token in TOKEN.finditer(text, 0, at):
        if token.group() in "{[,":
            start, opener = token.start(), token.group() != ","
    found = SCALAR_END.search(text, at)
    if found is None or found.start() <= start:
        return None
    end = found.start()
    if not opener:
        return text[:start] + text[end:]
    return text[: start + 1] + text[end + (found.group() == ",") :]


def _closed(text: str) -> str:
    """The beginning of a JSON text, cut after its last whole member, with the open brackets closed.

    An open list of plain values is no whole member: half of it would be another value.
    """
    closers: list[str] = []
    cuts: list[int] = []  # for each open bracket where its last whole member ends
    for token in TOKEN.finditer(text):
        what = token.group()
        if what in "{[":
            closers.append("}" if what == "{" else "]")
            cuts.append(token.end() if what == "{" else -1)
        elif what in "}]":
            if not closers or closers.pop() != what:
                break
            cuts.pop()
            if cuts:
                cuts[-1] = token.end()
        elif what == "," and closers and (closers[-1] == "}" or cuts[-1] >= 0):
            cuts[-1] = token.start()
    while cuts and cuts[-1] < 0:
        cuts.pop()
        closers.pop()
    return text[: cuts[-1]] + "".join(reversed(closers)) if cuts else ""
