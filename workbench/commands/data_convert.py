"""`workbench data convert`: data files to MindRecord shards."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.commands.command import Command

NAMED = 3


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="JSON, JSON Lines, CSV or text file (also .gz), or a folder of them")
    parser.add_argument("output", type=Path, help="folder for the shards; call again with the same after a kill")
    parser.add_argument("--form", choices=("jsonl", "json", "csv", "text"), help="form of the files (default: seen)")
    parser.add_argument("--encoding", help="encoding of the files (default: UTF-8, or UTF-16 where the file shows it)")
    parser.add_argument(
        "--field", action="append", default=[], metavar="NAME[:KIND]",
        help="a field of the shards, repeated for each; kinds: string, int64, float64, int64-array, ... "
        "(default: inferred from the first samples)",
    )  # fmt: skip
    parser.add_argument("--shard-mb", type=int, default=128, help="about how large a shard becomes (default: 128)")


def run_convert(arguments: argparse.Namespace) -> int:
    """Convert, or go on converting, and say what became of the samples."""
    from workbench.probes.mindrecord import SET_ASIDE, convert_to_mindrecord
    from workbench.probes.mindrecord_schema import fields_from_words
    from workbench.readers.sample_files import left_out

    done = convert_to_mindrecord(
        arguments.source,
        arguments.output,
        form=arguments.form,
        encoding=arguments.encoding,
        fields=fields_from_words(arguments.field) or None,
        shard_bytes=arguments.shard_mb << 20,
    )
    print(f"{done.rows_written:,} rows from {done.samples_read:,} samples, in {len(done.shards)} shard(s):")
    print("  fields: " + ", ".join(f"{f.name} ({f.kind})" for f in done.fields))
    for key, count in sorted(done.unknown_keys.items()):
        print(f"  not converted: {key!r}, which is no field, in {count:,} sample(s)")
    if done.samples_set_aside:
        print(f"  set aside: {done.samples_set_aside:,} samples, reasons in {arguments.output / SET_ASIDE}")
    if others := left_out(arguments.source):
        names = ", ".join(str(p.relative_to(arguments.source)) for p in others[:NAMED])
        print(f"  left out: {len(others):,} file(s) of other kinds, such as {names}")
    print(f"Result: {arguments.output}")
    return 0


SUBCOMMANDS = (
    Command(
        name="convert",
        summary="JSON, JSON Lines, CSV or text to MindRecord shards; goes on after a kill, sets bad lines aside",
        examples=(
            "workbench data convert corpus.jsonl corpus_mindrecord",
            "workbench data convert corpus/ out --field text --field tokens:int32-array",
        ),
        add_arguments=_add_convert,
        run=run_convert,
    ),
)
