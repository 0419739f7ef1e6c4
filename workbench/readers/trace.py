"""Timelines in Chrome trace form -> `trace_events`, as a stream.

Reads trace_view.json of all generations, the timelines of msprof, MindInsight-era `ascend_timeline_display`, and Kineto
traces, plain or gzip. Times stay integers: 19 digits of nanoseconds do not fit into a float64.
"""

from __future__ import annotations

import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import HEAD_BYTES, FileContext, FileKind, Sink
from workbench.readers.trace_events import (
    GZIP_MAGIC,
    Chunk,
    Event,
    ExactEvent,
    Tail,
    decode,
    read_chunks,
)
from workbench.readers.trace_names import Codes, Threads, named
from workbench.readers.trace_times import Nanoseconds, to_ns
from workbench.store import to_pandas
from workbench.tables import TRACE_EVENTS, Note, Reading

SPOOL_IN_MEMORY_BYTES = 16 << 20
ROWS_PER_GROUP = 1 << 16
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
_OTHER_INTERVALS = ("B", "E", "b", "e")
_PHASES = frozenset("BEXiICbnestfTpFSPNODMVvRc(),=")  # of the trace event format, old letters too; others are damage


@dataclass
class _Losses:
    """What of a trace could not be used."""

    damaged: int = 0
    first_damaged: int | None = None
    timeless: int = 0
    other_intervals: int = 0


def stream_trace(path: Path, context: FileContext, sink: Sink) -> list[Note]:
    """Hand over the complete events ("X") of a trace, chunk by chunk.

    Names of processes and threads may stand anywhere in the file, so rows wait in a compressed temporary file until
    all of it was read. What precedes damage or a truncated tail, and what follows damage, is kept.

    Returns:
        Notes on damaged events (with the first byte offset), a truncated tail, events without times.

    Raises:
        UnreadableFileError: the file cannot be opened or has no list of events.
    """
    tail, threads, losses = Tail(), Threads(), _Losses()
    folder = str(context.scratch) if context.scratch else None
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY_BYTES, dir=folder) as spool:
        rows = _spool(path, spool, tail, threads, losses)
        if not tail.found:
            raise UnreadableFileError(
                f"{context.name(path)} has no list of trace events.", fix="collect or copy the trace again"
            )
        base = _BASE.search(tail.header) or _BASE.search(tail.footer)
        spool.seek(0)
        for group in _groups(spool) if rows else ():
            sink(TRACE_EVENTS.name, _finished(group, threads, context, int(base[1]) if base else 0))
    return _notes(context.name(path), tail, losses, rows)


def read_trace(path: Path, context: FileContext) -> dict[str, Reading]:
    """The same as one table in memory, for small files."""
    pieces: list[pa.Table] = []
    notes = stream_trace(path, context, lambda _, rows: pieces.append(rows))
    if not pieces:
        return {TRACE_EVENTS.name: Reading(TRACE_EVENTS.empty(), notes)}
    return {TRACE_EVENTS.name: Reading(to_pandas(pieces, TRACE_EVENTS), notes)}


def _spool(path: Path, spool: IO[bytes], tail: Tail, threads: Threads, losses: _Losses) -> int:
    rows = 0
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    try:
        with path.open("rb") as stream:
            for chunk in read_chunks(stream, tail):
                batch = _columns(chunk, threads, losses)
                if batch.num_rows:
                    writer = writer or pa.ipc.new_stream(spool, batch.schema, options=_SPOOL_OPTIONS)
                    writer.write_batch(batch)
                    rows += batch.num_rows
    except OSError as error:
        raise UnreadableFileError(
            f"{path} cannot be read: {error.strerror or error}.", fix="check the path, its permissions and free disk"
        ) from None
    if writer:
        writer.close()
    return rows


_SPOOL_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def _groups(spool: IO[bytes]) -> Iterator[pa.Table]:
    """Spooled batches, several together: a Parquet file of small row groups is slow to read."""
    group: list[pa.RecordBatch] = []
    with pa.ipc.open_stream(spool) as reader:
        for batch in reader:
            group.append(batch)
            if sum(b.num_rows for b in group) >= ROWS_PER_GROUP:
                yield pa.Table.from_batches(group).unify_dictionaries().combine_chunks()
                group = []
    if group:
        yield pa.Table.from_batches(group).unify_dictionaries().combine_chunks()


def _columns(chunk: Chunk, threads: Threads, losses: _Losses) -> pa.RecordBatch:
    losses.damaged += chunk.damaged
    if losses.first_damaged is None:
        losses.first_damaged = chunk.first_damaged
    phases = Counter(map(attrgetter("ph"), chunk.events))
    losses.other_intervals += sum(phases[p] for p in _OTHER_INTERVALS)
    losses.timeless += sum(count for phase, count in phases.items() if phase not in _PHASES)
    if phases["M"]:
        threads.learn(chunk.text)
    events = [e for e in chunk.events if e.ph == "X"]
    start = _start_ns(chunk, events)
    duration = to_ns(list(map(attrgetter("dur"), events)))
    usable = start.usable & duration.usable & (duration.ns >= 0)
    batch = pa.record_batch(
        {
            "pid": threads.pids.of(list(map(attrgetter("pid"), events))),
            "tid": threads.tids.of(list(map(attrgetter("tid"), events))),
            "name": Codes().encode(list(map(attrgetter("name"), events))),
            "category": Codes().encode(list(map(attrgetter("cat"), events))),
            "start_ns": start.ns,
            "duration_ns": duration.ns,
        }
    )
    if usable.all():
        return batch
    losses.timeless += int((~usable).sum())
    return batch.filter(pa.array(usable))


def _start_ns(chunk: Chunk, events: list[Event]) -> Nanoseconds:
    start = to_ns(list(map(attrgetter("ts"), events)))
    if start.exact:
        return start
    again = decode(chunk.text, ExactEvent)
    return to_ns([e.ts for e in again if e.ph == "X"]) if again is not None else start


def _finished(batch: pa.Table, threads: Threads, context: FileContext, base_ns: int) -> pa.Table:
    """Rows of the declared table: names of layers and tracks are known now."""
    pids = batch.column("pid").to_numpy()
    pairs, unique_pairs = pd.factorize(pids.astype(np.int64) << 32 | batch.column("tid").to_numpy())
    all_pids, all_tids = list(threads.pids), list(threads.tids)
    tracks = [threads.track(all_pids[p >> 32], all_tids[p & 0xFFFFFFFF]) for p in unique_pairs.tolist()]
    rows = batch.num_rows
    start = batch.column("start_ns").to_numpy()
    data = {
        "rank_id": np.full(rows, context.rank_id, np.int64),
        "window": np.full(rows, context.window, np.int64),
        "layer": named(pids, [threads.layer(p) for p in all_pids]),
        "track": named(pairs, tracks),
        "name": batch.column("name"),
        "category": batch.column("category"),
        "start_ns": start + base_ns if base_ns else start,
        "duration_ns": batch.column("duration_ns"),
    }
    return pa.table({name: data[name] for name in TRACE_EVENTS.column_names})


def _notes(file: str, tail: Tail, losses: _Losses, rows: int) -> list[Note]:
    notes = []
    again = "collect or copy the trace again, if the lost part matters"
    if losses.damaged:
        where = f"byte {losses.first_damaged}"
        problem = f"{losses.damaged} event(s) from here on are damaged."
        notes.append(Note(file=file, where=where, problem=problem, lost="those events", fix=again))
    if not tail.closed or tail.stream_error:
        reason = f" ({tail.stream_error})" if tail.stream_error else ""
        problem = f"The file breaks off inside the list of events{reason}."
        where = f"byte {tail.bytes_read}"
        notes.append(Note(file=file, where=where, problem=problem, lost="all later events", fix=again))
    if losses.timeless:
        problem = f"{losses.timeless} event(s) have no usable phase, start or duration."
        notes.append(Note(file=file, where="events", problem=problem, lost="those events", fix="collect it again"))
    if losses.other_intervals:
        problem = f"{losses.other_intervals} begin/end events: only complete events are read."
        fix = "export the trace with complete events (ph X)"
        notes.append(Note(file=file, where="events", problem=problem, lost="those intervals", fix=fix))
    if not rows:
        problem = "The trace holds no complete event."
        notes.append(Note(file=file, where="whole file", problem=problem, lost="the timeline", fix=TRACE_EVENTS.fix))
    return notes


def sniff_trace(path: Path, head: bytes) -> bool:
    """Whether a file is a Chrome trace: by its beginning, or by the name that profilers give it."""
    if head.startswith(GZIP_MAGIC):
        head = _unpacked(head)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"[") and start[1:].lstrip()[:1] == b"{" and b'"ph"' in start:
        return True
    if start.startswith(b"{") and (b'"traceEvents"' in start or b'"deviceProperties"' in start):
        return True
    return path.name == "trace_view.json"


def _unpacked(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="trace",
        meaning="timeline in Chrome trace form (trace_view.json, msprof, MindInsight, Kineto; plain or gzip)",
        tables=(TRACE_EVENTS.name,),
        sniff=sniff_trace,
        read=read_trace,
        stream=stream_trace,
    ),
)
