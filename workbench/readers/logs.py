r"""Training logs of any writer -> steps, events, evaluation scores, messages, settings. One pass, bounded memory.

A line is first separated from its prefix, then offered to the block that is open, to the families of writers, and to
the messages. Writers may be mixed in one log. Source of the line forms: the modules log_*.py name theirs.
"""

from __future__ import annotations

import re
from pathlib import Path

from workbench.errors import UnreadableFileError
from workbench.readers import (
    log_blocks,
    log_huggingface,
    log_megatron,
    log_messages,
    log_mindformers,
    log_mindspore,
    log_torch,
)
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.log_lines import Line, LogLines
from workbench.readers.log_messages import MESSAGE_KINDS
from workbench.readers.log_notes import NoteBook
from workbench.readers.log_prefix import rank_of_place, split_prefix
from workbench.readers.log_rows import NO_INT, LogRows
from workbench.readers.log_tables import to_tables
from workbench.readers.text import utf16_of
from workbench.tables import Reading

__all__ = ["KINDS", "MESSAGE_KINDS", "read_log"]

FAMILIES = (log_mindformers, log_huggingface, log_mindspore, log_megatron, log_torch, log_messages)
WANTED = "|".join(f"(?:{p})" for module in (*FAMILIES, log_blocks) for p in module.WANTED)
TIME_REACH = 30  # lines for which a time holds: a report of several lines is stamped once, at its head

MARKS = re.compile(
    rb"\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] [A-Z][A-Z0-9_]*\(\d+[,:]\w+,"
    rb"|poch:?\s*\[\s*\d+/\s*\d+\],?\s*step:?\s*\[|[Ee]poch:? \d+,? step:? \d+,? loss is|poch time:\s*[\d.]+ ?ms"
    rb"|mindformers[^\n]{0,200} - (?:INFO|WARNING|ERROR) - |iteration\s+\d+/\s*\d+ \|"
    rb"|\{'(?:loss|eval_loss|train_runtime)': |\{\"current_steps\": |global_step=\d+, |step:\s+\d+\s+loss:\s"
    rb"|(?:Used peak|Actual peak) memory usage \(|NCCL INFO |EI000[26]|(?:Start|End) compiling '"
    rb"|Bad performance attention|Malloc device memory failed|Out of Memory!!! Request|Epoch \d+/\d+, Step \d+/\d+,"
    rb"|time \(ms\) \| |device_queue: \d|NPU out of memory|CUDA out of memory",
    re.MULTILINE,
)
SOURCE_FILES = (".md", ".py", ".ipynb", ".html", ".htm", ".rst", ".sh", ".c", ".cc", ".cpp", ".h", ".js", ".ts", ".pdf")
DATA_FILES = (
    ".csv",
    ".tsv",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".cfg",
    ".ini",
    ".db",
    ".parquet",
    ".xlsx",
    ".npy",
    ".npz",
)
BINARY_FILES = (".png", ".jpg", ".svg", ".zip", ".gz", ".tar", ".ckpt", ".safetensors", ".mindir", ".pb", ".mindrecord")
NOT_LOGS = frozenset((*SOURCE_FILES, *DATA_FILES, *BINARY_FILES))
PROBE_BYTES = 4 << 20


def sniff_log(path: Path, head: bytes) -> bool:
    """Whether the text holds a line that a training writes; a long preamble is looked through as well."""
    if path.suffix.lower() in NOT_LOGS:
        return False
    if MARKS.search(_plain(head)):
        return True
    if len(head) < 65536 or b"\0" in head[:4096]:
        return False
    try:
        with path.open("rb") as f:
            return MARKS.search(f.read(PROBE_BYTES)) is not None
    except OSError:
        return False


def _plain(head: bytes) -> bytes:
    encoding = utf16_of(head[:4096])
    return head.decode(encoding, "ignore").encode() if encoding else head


def read_log(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read a training log.

    The rank is that of the line where it carries one, else of the file or its folder (`worker_3.log`,
    `rank_3/info.log`), else what the log says about itself (`rank id: 3`), else the context's.

    Raises:
        UnreadableFileError: the file cannot be opened, or no line of it is known.
    """
    rows = LogRows(NoteBook(context.name(path)))
    lines = LogLines(path, WANTED, rows.notes)
    block = log_blocks.Block()
    for line in lines:
        _read_line(line, block, rows)
        lines.take_all = block.kind == "setting"
    block.close(rows)
    _end(lines.last_timed, rows)
    placed = rank_of_place(path, context.root)
    rank_id = next((r for r in (placed, rows.stated_rank) if r is not None), context.rank_id)
    tables = to_tables(rows, context.name(path), rank_id)
    if not tables:
        raise UnreadableFileError(
            f"{context.name(path)} holds no line that a known training writes.",
            fix="see docs/file_kinds.md for the line forms; give the log of the training process (worker_<rank>.log)",
        )
    return tables


def _read_line(line: Line, block: log_blocks.Block, rows: LogRows) -> None:
    now = rows.now
    if block.kind == "setting":
        now.number = line.number
        if log_blocks.read_line(line.text, block, rows):
            return
    prefix = split_prefix(line.text)
    if prefix.time_ns is not None:
        now.time_ns, now.above_ns, rows.time_line = prefix.time_ns, prefix.time_ns, line.number
    else:
        now.time_ns = NO_INT
        now.above_ns = now.above_ns if line.number - rows.time_line <= TIME_REACH else NO_INT
    now.rank_id = -1 if prefix.rank_id is None else prefix.rank_id
    now.number, now.complete = line.number, line.complete
    now.level, now.module = prefix.level, prefix.module
    in_block = bool(block.kind)
    if not in_block and log_mindformers.read_step(prefix.text, rows):
        return
    if log_blocks.read_line(prefix.text, block, rows):
        return
    if in_block and log_mindformers.read_step(prefix.text, rows):
        return
    for family in FAMILIES:
        if family.read_line(prefix.text, rows):
            return


def _end(last: Line | None, rows: LogRows) -> None:
    if last is None:
        return
    prefix = split_prefix(last.text)
    if prefix.time_ns is None:
        return
    now = rows.now
    now.number, now.time_ns, now.rank_id = last.number, prefix.time_ns, -1
    now.level, now.module = prefix.level, prefix.module
    rows.add_message("log_end", prefix.text)


KINDS = (
    FileKind(
        name="training_log",
        meaning="log of a training: MindFormers, mindspore.train, Megatron, DeepSpeed, Hugging Face, torchtitan, msrun",
        tables=("training_steps", "events", "evals", "log_messages", "parameter_groups", "series", "settings"),
        sniff=sniff_log,
        read=read_log,
    ),
)
