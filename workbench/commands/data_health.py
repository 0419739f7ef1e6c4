"""`workbench data health`: what ails the samples of a data set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from workbench.commands.command import Command


def _add_health(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="JSON, JSON Lines, CSV, text or MindRecord file, or a folder of them")
    parser.add_argument("--length", type=int, help="tokens that training keeps of a sample")
    parser.add_argument("--tokenizer", help="tokenizer.json, or the word bytes (default: characters are counted)")
    parser.add_argument("--text-field", help="field with the text (default: text, content, or the longest)")
    parser.add_argument("--subset-field", help="field that names the subset (default: subset, source, ... or the file)")
    parser.add_argument("--form", choices=("jsonl", "json", "csv", "text"), help="form of the files (default: seen)")
    parser.add_argument("--encoding", help="encoding of the files (default: UTF-8, or UTF-16 where the file shows it)")
    parser.add_argument("--limit", type=int, help="look at the first so many samples only")
    parser.add_argument(
        "--no-near", action="store_true", help="leave out the search for near duplicates (1 ms a sample)"
    )
    parser.add_argument("--run", type=Path, help="keep the result in this run, for its reports and `diagnose`")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run_health(arguments: argparse.Namespace) -> int:
    """Print what ails each subset, and the findings; return 1 if one is at warning or above, else 0."""
    import msgspec

    from workbench.analyses.data_health import drop_counts, subset_health
    from workbench.analyses.lengths import length_summary
    from workbench.findings.data_health import find_bad_samples
    from workbench.probes.data_set import probe_data_set, save_data_samples

    samples = probe_data_set(
        arguments.path,
        form=arguments.form,
        encoding=arguments.encoding,
        text_field=arguments.text_field,
        subset_field=arguments.subset_field,
        tokenizer=arguments.tokenizer,
        training_length=arguments.length,
        near_duplicates=not arguments.no_near,
        limit=arguments.limit,
        show_progress=not arguments.json,
    )
    found = find_bad_samples(samples)
    health, lengths, drops = subset_health(samples), length_summary(samples), drop_counts(samples)
    kept = save_data_samples(samples, arguments.run) if arguments.run else None
    if arguments.json:
        tables = {"health": health, "lengths": lengths, "dropped": drops}
        plain = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
        print(msgspec.json.encode({"schema": 1, "findings": [f.to_dict() for f in found], **plain}).decode())
    else:
        for title, table in (("Shares per subset", health), ("Lengths", lengths), ("Dropped", drops)):
            rows = "none" if table.empty else table.to_string(index=False, float_format=lambda x: f"{x:.4g}")
            print(f"{title}:\n{rows}\n")
        for number, finding in enumerate(found, 1):
            print(f"{number}. [{finding.severity}] {finding.title}\n   Fix: {finding.fix}")
        print("" if found else "Nothing found: the samples are as they should be, as far as these figures show.")
        print(f"Result: {kept}" if kept else "Keep it for reports and `diagnose` with --run RUN.")
    return int(any(f.severity != "info" for f in found))


SUBCOMMANDS = (
    Command(
        name="health",
        summary="duplicates, empty, cut and unusable samples, lengths and tokens per subset (status 1: found some)",
        examples=(
            "workbench data health corpus.jsonl --tokenizer tokenizer.json --length 4096",
            "workbench data health corpus/ --tokenizer bytes --run runs/demo",
        ),
        add_arguments=_add_health,
        run=run_health,
    ),
)
