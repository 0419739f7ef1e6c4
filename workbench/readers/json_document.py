"""One JSON document, read piece by piece -> its samples; and what a sample is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, TextIO

from workbench.errors import UnreadableFileError

SHOWN_CHARACTERS = 500  # of an unusable sample, for the file of what was set aside
CHUNK_CHARACTERS = 1 << 16
_NOT_TEXT = re.compile("[\ud800-\udfff]")


class RawSample(NamedTuple):
    """One sample as it stands in a file, or the reason why it cannot be used."""

    place: int  # line of a line-based file, element of a JSON array, row of a CSV below its header; from 1
    fields: dict[str, Any] | None  # None: unusable
    problem: str  # why; empty for a usable one
    text: str  # what stood there, cut, where it is unusable


def problem_of_text(text: str) -> str:
    """Why `text` is no text, empty where it is."""
    if "\0" in text:
        return "NUL bytes: the file was damaged, or its disk was full"
    if text.isascii():
        return ""
    if found := _NOT_TEXT.search(text):
        return f"not in the file's encoding at character {found.start() + 1}; name the encoding (e.g. gb18030)"
    return ""


def shown(text: str) -> str:
    """The beginning of `text` in characters that can be written."""
    return text[:SHOWN_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def object_sample(number: int, value: object, text: str) -> RawSample:
    """A decoded JSON value as a sample; unusable unless it is an object."""
    if isinstance(value, dict):
        return RawSample(number, value, "", "")
    return RawSample(number, None, f"a JSON {_json_word(value)}, not an object", shown(text))


def _json_word(value: object) -> str:
    words = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return words.get(type(value), "number")


def json_document(stream: TextIO, name: str, longest: int, skip: int) -> Iterator[RawSample]:
    """Elements of the outermost array, or of the first array of objects inside an object."""
    window = _Window(stream, longest)
    window.skip_to_array(name)
    return islice(window.elements(), skip, None)


class _Window:
    """A piece of a JSON text that grows until an element fits."""

    def __init__(self, stream: TextIO, longest: int) -> None:
        self.stream, self.longest, self.text, self.at, self.ended = stream, longest, "", 0, False
        self.decode = json.JSONDecoder().raw_decode

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        piece = self.stream.read(max(CHUNK_CHARACTERS, len(self.text) - self.at))
        self.text, self.at = self.text[self.at :] + piece, 0
        self.ended = not piece
        return bool(piece)

    def skip_to_array(self, name: str) -> None:
        """Go behind the bracket of the array that holds the samples."""
        self.more()
        while (found := re.search(r"\[\s*[\{\]]|^\s*\[", self.text)) is None:
            if len(self.text) > self.longest or not self.more():
                raise UnreadableFileError(
                    f"{name} is JSON without an array of objects.",
                    fix="give an array of objects, an object with such an array, or JSON Lines",
                )
        self.at = self.text.index("[", found.start()) + 1

    def elements(self) -> Iterator[RawSample]:
        """The array's elements; a broken one is the last, since nothing tells where the next begins."""
        number = 0
        goes_on = True
        while goes_on and self._at_element():
            number += 1
            found, goes_on = self._element(number)
            yield found

    def _at_element(self) -> bool:
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n,":
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at] != "]"
            if not self.more():
                return False

    def _element(self, number: int) -> tuple[RawSample, bool]:
        """The element at hand, and whether the array can be read on behind it."""
        while True:
            try:
                value, end = self.decode(self.text, self.at)
            except RecursionError:
                return self._broken(number, "nested too deeply"), False
            except json.JSONDecodeError as error:
                if len(self.text) - self.at <= self.longest and self.more():
                    continue
                return self._broken(number, self._why(error)), False
            if end < len(self.text) or not self.more():  # a number at the end may go on
                return self._taken(number, value, end), True

    def _broken(self, number: int, why: str) -> RawSample:
        return RawSample(number, None, f"{why}; what follows it in the array is lost", shown(self.text[self.at :]))

    def _taken(self, number: int, value: object, end: int) -> RawSample:
        text = self.text[self.at : end]
        self.at = end
        problem = f"the element is longer than {self.longest:,} characters" if len(text) > self.longest else ""
        if isinstance(value, dict) and not (problem := problem or problem_of_text(text)):
            return RawSample(number, value, "", "")
        problem = problem or f"a JSON {_json_word(value)}, not an object"
        return RawSample(number, None, problem, shown(text))

    def _why(self, error: json.JSONDecodeError) -> str:
        if self.ended:
            return f"the file ends inside the element, or it is not JSON: {error.msg}"
        return f"not JSON, or longer than {self.longest:,} characters: {error.msg}"
