"""Damages real files in many ways, and checks what a reader makes of the result.

For a new kind of file, list its samples and run both functions over some seeds:

    @pytest.mark.parametrize("seed", range(40))
    @pytest.mark.parametrize("sample", SAMPLES)
    def test_damaged(sample, seed, tmp_path, data_samples):
        source = data_samples / sample
        kind = kind_of(source)                                   # tests.readers.profiles
        damaged, how = mutate(source.read_bytes(), seed)
        path = tmp_path / source.name
        path.write_bytes(damaged)
        check_contract(kind, path, how)

`mutate` is deterministic; `how` names the damages. Use `mutations=BYTE_MUTATIONS` for files that are no tables of text.
The contract: rows, or notes, or UnreadableFileError with a fix; never another exception, never an empty table without a
note. `check_nothing_invented` compares the rows of a cut file with those of the whole one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import HEAD_BYTES, FileContext, FileKind
from workbench.tables import TABLES, Reading

Mutation = Callable[[bytes, random.Random], bytes]
MAX_DAMAGES = 3
JUNK_CELLS = (
    "N/A",
    "",
    "NaN",
    "-",
    "1.69512E+15",
    "#####",
    "1,234",
    "4294967295",
    "-1",
    "inf",
    "0x1f",
    "１２",
    "<script>",
)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Cut at any byte."""
    return data[: rng.randrange(len(data) + 1)]


def flip_bytes(data: bytes, rng: random.Random) -> bytes:
    """Replace one to twenty bytes."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 20) if data else 0):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def insert_garbage(data: bytes, rng: random.Random) -> bytes:
    """Put random bytes somewhere."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randint(1, 200)) + data[at:]


def insert_nul(data: bytes, rng: random.Random) -> bytes:
    """Put NUL bytes somewhere, as a full disk does."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + b"\0" * rng.randint(1, 4096) + data[at:]


def delete_block(data: bytes, rng: random.Random) -> bytes:
    """Leave out a stretch."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randint(1, 5000) :]


def repeat_block(data: bytes, rng: random.Random) -> bytes:
    """Write a stretch twice."""
    start = rng.randrange(len(data) + 1)
    end = start + rng.randint(1, 5000)
    return data[:end] + data[start:end] + data[end:]


def utf16(data: bytes, rng: random.Random) -> bytes:
    """Save as UTF-16, as editors do."""
    return data.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-16-le", "utf-16-be"]))


def byte_order_mark(data: bytes, rng: random.Random) -> bytes:
    """Put a UTF-8 byte-order mark in front."""
    return b"\xef\xbb\xbf" + data


def gbk(data: bytes, rng: random.Random) -> bytes:
    """Replace some words by Chinese ones, in GBK."""
    words = re.findall(rb"[A-Za-z]{4,}", data)
    damaged = data
    for word in rng.sample(words, min(3, len(words))):
        damaged = damaged.replace(word, "矩阵乘法".encode("gbk"))
    return damaged


def empty_file(data: bytes, rng: random.Random) -> bytes:
    """Leave nothing."""
    return b""


def mixed_line_ends(data: bytes, rng: random.Random) -> bytes:
    """End each line in one of three ways."""
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    return b"".join(line + rng.choice([b"\n", b"\r\n", b"\r\r\n"]) for line in lines)


def delete_lines(data: bytes, rng: random.Random) -> bytes:
    """Leave some lines out, the first one as well."""
    return b"".join(line for line in data.splitlines(keepends=True) if rng.random() > 0.2)


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    """Mix the lines."""
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


def header_alone(data: bytes, rng: random.Random) -> bytes:
    """Keep the first line."""
    return data.split(b"\n", 1)[0] + b"\n"


def twice(data: bytes, rng: random.Random) -> bytes:
    """Put the file behind itself."""
    return data + data


def stray_quotes(data: bytes, rng: random.Random) -> bytes:
    """Put quotes somewhere."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + b'"' + data[at:]
    return data


def other_delimiter(data: bytes, rng: random.Random) -> bytes:
    """Replace the commas."""
    return data.replace(b",", rng.choice([b";", b"\t", b"|", b" "]))


def drop_column(data: bytes, rng: random.Random) -> bytes:
    """Leave one cell out of each line."""
    at = rng.randrange(8)
    return _each_line(data, lambda cells: cells[:at] + cells[at + 1 :])


def reorder_columns(data: bytes, rng: random.Random) -> bytes:
    """Turn the order of the cells of each line round."""
    return _each_line(data, lambda cells: cells[::-1])


def rename_columns(data: bytes, rng: random.Random) -> bytes:
    """Change letters in the first line."""
    header, separator, rest = data.partition(b"\n")
    return header.replace(rng.choice([b"a", b"e", b"T", b"(", b"i"]), b"x") + separator + rest


def junk_cells(data: bytes, rng: random.Random) -> bytes:
    """Replace some cells below the header."""

    def some(cells: list[bytes]) -> list[bytes]:
        return [rng.choice(JUNK_CELLS).encode() if rng.random() < 0.05 else cell for cell in cells]

    header, separator, rest = data.partition(b"\n")
    return header + separator + _each_line(rest, some)


def lose_cells(data: bytes, rng: random.Random) -> bytes:
    """Make some lines shorter or longer."""

    def some(cells: list[bytes]) -> list[bytes]:
        if rng.random() > 0.1:
            return cells
        return cells[: rng.randrange(len(cells) + 1)] if rng.random() < 0.5 else [*cells, b"1", b"x"]

    return _each_line(data, some)


def _each_line(data: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    return b"\n".join(b",".join(change(line.split(b","))) for line in data.split(b"\n"))


BYTE_MUTATIONS: tuple[Mutation, ...] = (
    truncate, flip_bytes, insert_garbage, insert_nul, delete_block, repeat_block, empty_file, twice,
)  # fmt: skip
TEXT_MUTATIONS: tuple[Mutation, ...] = (
    *BYTE_MUTATIONS, utf16, byte_order_mark, gbk, mixed_line_ends, delete_lines, swap_lines, header_alone, stray_quotes,
)  # fmt: skip
TABLE_MUTATIONS: tuple[Mutation, ...] = (
    *TEXT_MUTATIONS, other_delimiter, drop_column, reorder_columns, rename_columns, junk_cells, lose_cells,
)  # fmt: skip


def mutate(data: bytes, seed: int, mutations: tuple[Mutation, ...] = TABLE_MUTATIONS) -> tuple[bytes, str]:
    """`data` with one to three damages, and their names. Each mutation comes first for one seed in `len(mutations)`."""
    rng = random.Random(seed)
    chosen = [mutations[seed % len(mutations)], *rng.sample(mutations, rng.randint(0, MAX_DAMAGES - 1))]
    for mutation in chosen:
        data = mutation(data, rng)
    return data, f"seed {seed}: " + ", ".join(m.__name__ for m in chosen)


def check_contract(kind: FileKind, path: Path, how: str) -> Mapping[str, Reading] | None:
    """Read `path` and assert the contract; returns what was read, None where the file is unreadable."""
    assert kind.sniff(path, path.read_bytes()[:HEAD_BYTES]) in (True, False), how
    readings = _read(kind, path)
    if isinstance(readings, UnreadableFileError):
        assert path.name in readings.problem, how
        assert readings.fix, how
        return None
    assert readings or not kind.tables, f"{how}: no table and no error"
    for name, (table, notes) in readings.items():
        assert name in kind.tables, how
        pd.testing.assert_frame_equal(TABLES[name].check(table), table, obj=f"{how}: {name}")
        assert len(table) or notes, f"{how}: empty table {name} without a note"
        assert all(n.file and n.where and n.problem and n.lost and n.fix for n in notes), how
        assert all(str(n).isprintable() for n in notes), f"{how}: control characters in a note"
    return readings


def _read(kind: FileKind, path: Path) -> Mapping[str, Reading] | UnreadableFileError:
    try:
        return kind.read(path, FileContext(root=path.parent))
    except UnreadableFileError as error:
        return error


def check_nothing_invented(
    whole: Mapping[str, Reading], cut: Mapping[str, Reading] | None, how: str, *, at_line_end: bool = False
) -> None:
    """Assert that each cell of a cut file is that of the whole file, or missing, and that notes tell of absent rows.

    Nothing tells of a cut `at_line_end`.
    """
    for name, (table, notes) in (cut or {}).items():
        expected = whole[name].table
        assert len(table) <= len(expected), how
        expected = expected.iloc[: len(table)]
        same = (table == expected).fillna(False).astype(bool) | table.isna()
        assert same.to_numpy().all(), f"{how}: {name} has values that the whole file has not"
        if not at_line_end and not (table.equals(expected) and len(table) == len(whole[name].table)):
            assert notes, f"{how}: {name} lost something without a note"
