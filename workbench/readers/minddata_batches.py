"""Per-batch records of MindData (host side) and of the device's dequeue operator -> data_batches.

Source: mindspore/ccsrc/minddata/dataset/engine/perf (dataset_iterator_tracing, device_queue_tracing); formats.md §5.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.plain_lines import read_lines, share_of_lines
from workbench.tables import DATA_BATCHES, Reading

BATCH_LINE = re.compile(r"([01]) (\d{1,9}) (\d{1,15}) (-?\d{1,15})(?: (\d{1,18}))?")
DEQUEUE_LINE = re.compile(r"(\w*dequeue\w*) +(\d{1,18}) +(\d{1,18}) +(-?\d{1,9})")
NAMES = ("dataset_iterator_profiling", "device_queue_profiling")
TIME_COLUMNS = {0: "pipeline_us", 1: "push_us", 2: "total_us"}
US_PER_MS = 1e3
LINES_PER_BATCH = 4


def sniff_batches(path: Path, head: bytes) -> bool:
    """Lines of four or five integers; without the usual name only where a whole batch is in sight."""
    share = share_of_lines(head, BATCH_LINE)
    if path.name.startswith(NAMES):
        return share > 0
    return share > 0.9 and head.count(b"\n") >= LINES_PER_BATCH


def read_batches(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `dataset_iterator_profiling` or `device_queue_profiling`: `type extra batch value [time]`.

    Type 0 is a duration in ms (extra 0 pipeline, 1 push, 2 whole batch), type 1 the queue (extra capacity, value fill).
    The time is the monotonic clock in ms; MindSpore up to 1.1 wrote none.
    """
    lines = read_lines(path, context, _integers, what="four or five integers")
    long = pd.DataFrame(lines.records, columns=["type", "extra", "batch", "value", "time_ms"])
    long["again"] = long.groupby(["batch", "type", "extra"]).cumcount()  # a second window in the same file
    keys = ["again", "batch"]
    wide = long.groupby(keys, sort=False).agg(time_us=("time_ms", "max"))
    wide["time_us"] *= US_PER_MS
    for extra, column in TIME_COLUMNS.items():
        of_kind = long[(long["type"] == 0) & (long["extra"] == extra)].set_index(keys)
        wide[column] = of_kind["value"] * US_PER_MS
    queue = long[long["type"] == 1].drop_duplicates(keys).set_index(keys)
    wide["queue_size"], wide["queue_capacity"] = queue["value"], queue["extra"]
    table = wide.reset_index().assign(rank_id=context.rank_id)
    return {"data_batches": Reading(DATA_BATCHES.check(table), lines.notes)}


def sniff_dequeues(path: Path, head: bytes) -> bool:
    """Lines that begin with the name of the dequeue operator."""
    return share_of_lines(head, DEQUEUE_LINE) > (0 if path.name.startswith("minddata_aicpu") else 0.5)


def read_dequeues(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `minddata_aicpu`: `GetNext_dequeue_wait start end queue_size`, times in us on the device clock.

    `batch` numbers the dequeues from 1; a step may dequeue more than once.
    """
    lines = read_lines(path, context, _dequeue, what="'<name> <start> <end> <queue size>'")
    frame = pd.DataFrame(lines.records, columns=["start_us", "end_us", "device_queue_size"])
    table = frame.assign(
        rank_id=context.rank_id,
        batch=range(1, len(frame) + 1),
        device_wait_us=(frame["end_us"] - frame["start_us"]).astype("float64"),
        time_us=frame["end_us"],
    )
    return {"data_batches": Reading(DATA_BATCHES.check(table), lines.notes)}


def _integers(line: str) -> tuple[int, int, int, int, float] | None:
    found = BATCH_LINE.fullmatch(line)
    if not found:
        return None
    kind, extra, batch, value = (int(found[i]) for i in range(1, 5))
    return kind, extra, batch, value, float(found[5]) if found[5] else float("nan")


def _dequeue(line: str) -> tuple[int, int, int] | None:
    found = DEQUEUE_LINE.fullmatch(line)
    return (int(found[2]), int(found[3]), int(found[4])) if found else None


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="minddata_dequeues",
        meaning="minddata_aicpu: how long the device waited for each batch",
        tables=("data_batches",),
        sniff=or_named(sniff_dequeues, r"minddata_aicpu_\d+\.txt"),
        read=filled(read_dequeues),
    ),
    FileKind(
        name="minddata_batches",
        meaning="dataset_iterator_profiling or device_queue_profiling: time and queue of each batch",
        tables=("data_batches",),
        sniff=or_named(sniff_batches, r"(dataset_iterator|device_queue)_profiling_\d+\.txt"),
        read=filled(read_batches),
    ),
)
