"""What the optional probes write into a run directory -> variant_samples, layer_statistics, suspect_batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.readers.kinds import FileContext, FileKind, in_folder
from workbench.readers.parquet_file import read_parquet
from workbench.readers.records import NumberedRecords, last_of_each, read_json_lines, records_to_table
from workbench.tables import LAYER_STATISTICS, SUSPECT_BATCHES, VARIANT_SAMPLES, Reading, Table

MEASURES = ("mean", "spread", "max_abs", "zero_share")


def read_variant_samples(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one `post_training/*.parquet` into `variant_samples`.

    Raises:
        UnreadableFileError: it is not a complete Parquet file.
        MissingColumnsError: it lacks a required column.
    """
    return read_parquet(
        VARIANT_SAMPLES,
        path,
        context,
        fix="evaluate the checkpoint again with `workbench post-training RUN --checkpoint NAME`",
    )


def read_layers(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `layers/rank_<r>.jsonl` into `layer_statistics`: a record per step, a row per layer and position range.

    A record holds `step`, `positions` ([first, last] of each range) and `layers`, {name: rows}, the first row over all
    positions, then one per range, each [mean, spread, max_abs, zero_share]. Of a step that was trained twice the last
    record counts.
    """
    rows, notes = read_json_lines(path, context)
    rows, _ = last_of_each(rows, ["step"])
    flat = NumberedRecords([], [])
    for record, line in zip(rows.records, rows.lines, strict=True):
        flat.records.extend(_layer_records(record))
        flat.lines.extend([line] * (len(flat.records) - len(flat.lines)))
    reading = records_to_table(LAYER_STATISTICS, flat, file=context.name(path), constants={"rank_id": context.rank_id})
    ordered = reading.table.sort_values(["step", "layer_index", "first_position"], na_position="first", kind="stable")
    return {"layer_statistics": Reading(ordered.reset_index(drop=True), notes + reading.notes)}


def _layer_records(record: dict[str, Any]) -> list[dict[str, Any]]:
    layers, positions = record.get("layers"), record.get("positions")
    ranges = [(None, None), *(tuple(p) for p in positions or () if isinstance(p, list) and len(p) == 2)]
    found = []
    for index, (layer, rows) in enumerate(layers.items() if isinstance(layers, dict) else ()):
        for (first, last), values in zip(ranges, rows if isinstance(rows, list) else (), strict=False):
            numbers = dict(zip(MEASURES, values if isinstance(values, list) else (), strict=False))
            place = {"first_position": first, "last_position": last, "layer": layer, "layer_index": index}
            found.append({"step": record.get("step"), **place, **numbers})
    return found


def read_batches(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read `batches/rank_<r>.jsonl` into `suspect_batches`, a row per sample."""
    rows, notes = read_json_lines(path, context)
    rows, _ = last_of_each(rows, ["spike_step", "step", "row"])
    reading = records_to_table(SUSPECT_BATCHES, rows, file=context.name(path), constants={"rank_id": context.rank_id})
    return {"suspect_batches": Reading(reading.table, notes + reading.notes)}


def _kind(name: str, meaning: str, table: Table, sniff: Any, read: Any) -> FileKind:
    return FileKind(name=name, meaning=meaning, tables=(table.name,), sniff=sniff, read=read)


KINDS: tuple[FileKind, ...] = (
    _kind(
        "run_variant_samples",
        "scores of samples whose input was varied",
        VARIANT_SAMPLES,
        in_folder("post_training", r".+\.parquet"),
        read_variant_samples,
    ),
    _kind(
        "run_layers",
        "activations per layer of one rank",
        LAYER_STATISTICS,
        in_folder("layers", r"rank_\d+\.jsonl"),
        read_layers,
    ),
    _kind(
        "run_batches",
        "batches around jumps of the loss, of one rank",
        SUSPECT_BATCHES,
        in_folder("batches", r"rank_\d+\.jsonl"),
        read_batches,
    ),
)
