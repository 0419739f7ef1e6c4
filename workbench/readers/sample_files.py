"""Training data files (JSON, JSON Lines, CSV, plain text; also .gz) -> samples one by one, unusable ones with a reason.

Nothing is held in memory but the sample at hand, and no line makes reading fail: what cannot be used is handed over as
such, so that a caller can set it aside. Only a file without any sample at all is an error.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

import msgspec

from workbench.errors import UnknownContentError, UnknownParameterError, UnreadableFileError
from workbench.readers.json_document import (
    CHUNK_CHARACTERS,
    RawSample,
    json_document,
    object_sample,
    problem_of_text,
    shown,
)
from workbench.readers.text import utf16_of

FORMS = ("jsonl", "json", "csv", "text")
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv", ".txt": "text"}
LONGEST_SAMPLE_BYTES = 8 << 20  # a MindRecord page of 32 MiB holds it with its copy in every encoding
SAMPLES_PER_REPORT = 500
DELIMITERS = ",\t;|"


def sample_files(path: Path) -> list[Path]:
    """The data files at `path`: itself, or those with a known ending in the folder and below, by name.

    Raises:
        UnknownContentError: there is nothing, or no data file.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UnknownContentError(f"{path} does not exist.", fix="check the path of the data")
    files = sorted(p for p in path.rglob("*") if p.is_file() and _ending(p) in SUFFIXES and not _hidden(p, path))
    if not files:
        raise UnknownContentError(
            f"{path} holds no data file.", fix=f"name a file, or a folder with files that end in {', '.join(SUFFIXES)}"
        )
    return files


def left_out(path: Path) -> list[Path]:
    """Files of a folder that `sample_files` does not take, hidden ones aside; none if `path` is a file."""
    if path.is_file():
        return []
    return sorted(p for p in path.rglob("*") if p.is_file() and _ending(p) not in SUFFIXES and not _hidden(p, path))


def read_samples(
    path: Path,
    *,
    form: str | None = None,
    encoding: str | None = None,
    longest_bytes: int = LONGEST_SAMPLE_BYTES,
    skip: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[RawSample]:
    """The samples of one file, in file order.

    Args:
        path: the file; `.gz` is unpacked on the way.
        form: one of FORMS; by default by ending, and for `.json` by content (many of them are JSON Lines).
        encoding: of the text; by default UTF-8, or UTF-16 where the file shows it.
        longest_bytes: a longer line, element or cell is unusable.
        skip: samples, usable or not, to pass over quickly (to go on where an earlier reading ended).
        on_progress: told from time to time how many bytes of the file were read.

    Raises:
        UnreadableFileError: no bytes, cannot be opened, or not of the form at all.
        UnknownParameterError: unknown form or encoding.
    """
    head, encoding = _head(path, encoding)
    chosen = form or _form_of(path, head, encoding)
    if chosen not in FORMS:
        raise UnknownParameterError(f"{chosen!r} is no form of data files.", fix=f"use one of {', '.join(FORMS)}")
    last = 0
    with path.open("rb") as raw, _text(raw, path, encoding) as stream:
        try:
            for sample in _READ[chosen](stream, path, longest_bytes, skip):
                last += 1
                if on_progress and last % SAMPLES_PER_REPORT == 1:
                    on_progress(raw.tell())
                yield sample
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"the compressed file is cut off or damaged here, its rest is lost: {error}"
            yield RawSample(skip + last + 1, None, problem, "")


def form_of(path: Path, *, encoding: str | None = None) -> str:
    """The form of a file: by ending, and for `.json` and unknown endings by content."""
    return _form_of(path, *_head(path, encoding))


def _ending(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _head(path: Path, encoding: str | None) -> tuple[str, str]:
    try:
        with path.open("rb") as f:
            head = _unpacked(f, path).read(CHUNK_CHARACTERS)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableFileError(
            f"{path} cannot be read: {reason}.", fix="check that the file exists and may be read"
        ) from None
    if not head.strip():
        raise UnreadableFileError(f"{path} is empty: it holds no sample.", fix="copy or write the file again")
    chosen = encoding or utf16_of(head) or "utf-8-sig"
    try:
        return head.decode(chosen, "replace"), chosen
    except LookupError:
        raise UnknownParameterError(
            f"There is no encoding {encoding!r}.", fix="use utf-8, utf-16, gb18030, ..."
        ) from None


def _unpacked(raw: BinaryIO, path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if path.suffix.lower() == ".gz" else raw


def _text(raw: BinaryIO, path: Path, encoding: str) -> TextIO:
    # invalid bytes become lone surrogates (U+FFFD in UTF-16), which `problem_of_text` finds line by line
    errors = "replace" if encoding.lower().startswith(("utf-16", "utf-32")) else "surrogateescape"
    return io.TextIOWrapper(_unpacked(raw, path), encoding=encoding, errors=errors, newline="\n")


def _form_of(path: Path, head: str, _encoding: str) -> str:
    known = SUFFIXES.get(_ending(path), "")
    if known and known != "json":
        return known
    start = head.lstrip()
    if start.startswith("["):
        return "json"
    if start.startswith("{"):
        lines = [line for line in start.splitlines() if line.strip()]
        return "jsonl" if _is_object(lines[0]) and (len(lines) > 1 or known != "json") else "json"
    if known == "json":
        return "jsonl"  # each line will say what is wrong with it
    raise UnreadableFileError(
        f"Neither the ending nor the first bytes of {path.name} tell what form of data it is.",
        fix=f"name the form: one of {', '.join(FORMS)}",
    )


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


# lines
def _lines(stream: TextIO, longest: int, skip: int) -> Iterator[RawSample | tuple[int, str]]:
    """Lines that are not blank, as (number, text) or as an unusable sample; `skip` of them passed over."""
    number = 0
    while line := stream.readline(longest + 2):
        number += 1
        whole = line.endswith("\n")
        ended = whole or len(line) < longest + 2
        if not ended:
            _pass_line(stream)
        if not line.strip():
            continue
        if skip:
            skip -= 1
            continue
        text = line.rstrip("\r\n")
        problem = "" if ended else f"the line is longer than {longest:,} characters"
        problem = problem or problem_of_text(text)
        yield RawSample(number, None, problem, shown(text)) if problem else (number, text)


def _pass_line(stream: TextIO) -> None:
    while piece := stream.readline(CHUNK_CHARACTERS):
        if piece.endswith("\n"):
            return


def _json_lines(stream: TextIO, _path: Path, longest: int, skip: int) -> Iterator[RawSample]:
    for item in _lines(stream, longest, skip):
        if isinstance(item, RawSample):
            yield item
        else:
            yield _json_sample(*item)


def _json_sample(number: int, text: str) -> RawSample:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):  # Python's json also takes NaN, and says where it stops
        try:
            value = json.loads(text)
        except ValueError as error:
            return RawSample(number, None, f"not JSON: {error}", shown(text))
        except RecursionError:
            return RawSample(number, None, "nested too deeply", shown(text))
    except RecursionError:
        return RawSample(number, None, "nested too deeply", shown(text))
    return object_sample(number, value, text)


def _text_lines(stream: TextIO, _path: Path, longest: int, skip: int) -> Iterator[RawSample]:
    for item in _lines(stream, longest, skip):
        yield item if isinstance(item, RawSample) else RawSample(item[0], {"text": item[1]}, "", "")


# CSV
def _csv_rows(stream: TextIO, path: Path, longest: int, skip: int) -> Iterator[RawSample]:
    header_line = next((line for line in iter(stream.readline, "") if line.strip()), "")
    delimiter = "\t" if _ending(path) == ".tsv" else max(DELIMITERS, key=header_line.count)
    try:
        header = [name.strip() for name in next(csv.reader([header_line], delimiter=delimiter), [])]
    except csv.Error:
        header = []
    if not header or not all(header) or len(set(header)) < len(header):
        raise UnreadableFileError(
            f"The first line of {path.name} is no header of distinct names: {shown(header_line)[:80]!r}.",
            fix="begin the file with a line of distinct column names",
        )
    csv.field_size_limit(longest)
    rows = csv.reader(stream, delimiter=delimiter)
    number = 0
    while True:
        cells: list[str] | csv.Error
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            cells = error
        if cells == []:
            continue
        number += 1
        if number > skip:
            yield _csv_sample(cells, header, number)


def _csv_sample(cells: list[str] | csv.Error, header: list[str], number: int) -> RawSample:
    if isinstance(cells, csv.Error):
        return RawSample(number, None, f"not a CSV row: {cells}", "")
    text = ",".join(cells)
    problem = "" if len(cells) == len(header) else f"{len(cells)} cells, the header has {len(header)} columns"
    if problem := problem or problem_of_text(text):
        return RawSample(number, None, problem, shown(text))
    return RawSample(number, dict(zip(header, cells, strict=True)), "", "")


def _json_elements(stream: TextIO, path: Path, longest: int, skip: int) -> Iterator[RawSample]:
    return json_document(stream, path.name, longest, skip)


_READ: dict[str, Callable[[TextIO, Path, int, int], Iterator[RawSample]]] = {
    "jsonl": _json_lines,
    "json": _json_elements,
    "csv": _csv_rows,
    "text": _text_lines,
}
