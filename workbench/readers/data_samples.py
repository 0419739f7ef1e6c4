"""What a run directory holds on its training data -> tables `data_samples` and `sample_ids`."""

from __future__ import annotations

from pathlib import Path

from workbench.readers.kinds import FileContext, FileKind, in_folder
from workbench.readers.parquet_file import read_parquet
from workbench.readers.records import (
    NumberedRecords,
    last_of_each,
    read_json_lines,
    records_to_table,
    shown_lines,
)
from workbench.tables import DATA_SAMPLES, SAMPLE_IDS, Note, Reading


def read_data_samples(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one `data_samples/*.parquet` into `data_samples`.

    Raises:
        UnreadableFileError: it is not a complete Parquet file.
        MissingColumnsError: it lacks a required column.
    """
    return read_parquet(DATA_SAMPLES, path, context, fix=DATA_SAMPLES.fix)


def read_sample_ids(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `sample_ids/rank_<r>.jsonl`, one line per step, into `sample_ids`, one row per sample of the step.

    A step that occurs twice (the run was restarted from a checkpoint) keeps its last record, with a note.
    """
    file = context.name(path)
    rows, notes = read_json_lines(path, context)
    rows, dropped = last_of_each(rows, ["step"])
    if dropped:
        notes.append(
            Note(
                file=file,
                where=shown_lines(dropped),
                problem="Records of the same step follow later in the file: the run was restarted.",
                lost=f"{len(dropped)} earlier record(s); the last of each step is kept",
                fix="nothing, if that is what happened; else give each run its own directory",
            )
        )
    reading = records_to_table(SAMPLE_IDS, _one_by_one(rows), file=file, constants={"rank_id": context.rank_id})
    ordered = reading.table.sort_values(["step", "position"], kind="stable", ignore_index=True)
    return {"sample_ids": Reading(ordered, notes + reading.notes)}


def _one_by_one(rows: NumberedRecords) -> NumberedRecords:
    flat = NumberedRecords([], [])
    for record, line in zip(rows.records, rows.lines, strict=True):
        samples, subsets = _list(record.get("samples")), _list(record.get("subsets"))
        for position, sample in enumerate(samples):
            subset = subsets[position] if position < len(subsets) else None
            place = {"step": record.get("step"), "epoch": record.get("epoch"), "position": position}
            flat.records.append(place | {"sample": sample, "subset": subset})
            flat.lines.append(line)
    return flat


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="run_data_samples",
        meaning="samples of the training data, looked at one by one",
        tables=(DATA_SAMPLES.name,),
        sniff=in_folder("data_samples", r".+\.parquet"),
        read=read_data_samples,
    ),
    FileKind(
        name="run_sample_ids",
        meaning="samples that each training step of a rank used",
        tables=(SAMPLE_IDS.name,),
        sniff=in_folder("sample_ids", r"rank_\d+\.jsonl"),
        read=read_sample_ids,
    ),
)
