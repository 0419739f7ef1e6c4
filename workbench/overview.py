"""What a run has and lacks -> coverage, and the text and HTML that show it."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from workbench.readers.discovery import Source
from workbench.tables import TABLES, Note

COSTS: dict[str, str] = {
    "step_time": "where the device time of a step goes: compute, exposed communication, idle; slow ranks; stalls",
    "kernels": "slow operators, small-operator storms, throttled devices",
    "kernel_totals": "top operators by type",
    "trace_events": "the timeline, overlap of compute and communication, host launch gaps",
    "collectives": "late ranks, waiting against moving data, fusion of small collectives",
    "links": "slow links and the bandwidth matrix",
    "memory_timeline": "memory over time, leaks, fragmentation",
    "tensor_lifetimes": "who holds the memory peak, what-if for earlier frees and recomputation",
    "data_ops": "the bottleneck operator of the data pipeline",
    "data_queue_samples": "queue fill of the data pipeline over time",
    "data_batches": "waiting for each batch",
    "host_ops": "cost of host-side calls",
    "training_steps": "loss, gradient norm, throughput, step-time distribution, data-wait share",
    "parameter_groups": "gradient and parameter norms per parameter group",
    "events": "compilation, evaluation and checkpoint-saving pauses",
    "evals": "quality per subset and checkpoint",
    "eval_samples": "paired comparison of checkpoints, subset regressions with intervals",
    "variant_samples": "robustness to perturbed inputs, context beyond the training length",
    "generations": "repetition, broken output and diversity of what the model writes",
    "layer_statistics": "activations per layer over training: drift, dead layers, long contexts",
    "suspect_batches": "the samples behind jumps of the loss",
    "data_samples": "duplicates, empty and truncated samples, tokens per subset",
    "sample_ids": "shuffle quality, repeated samples, sampling share per subset over training",
    "telemetry": "physical reasons of a slow rank: temperature, clock, busy host, network",
    "log_messages": "time-outs, memory errors, slow-data warnings, recompilation in the logs",
    "settings": "comparison of configurations and versions",
}
SHOWN_NOTES = 8


def missing_tables(present: Iterable[str]) -> list[dict[str, str]]:
    """Tables that a run lacks: which analyses that costs, and what would have collected them."""
    have = set(present)
    return [
        {"table": name, "costs": costs, "collect_with": TABLES[name].fix}
        for name, costs in COSTS.items()
        if name not in have
    ]


def shown_ranks(ranks: Sequence[int]) -> str:
    """`0-3, 7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def steps_text(steps: Sequence[int]) -> str:
    """`steps 1 to 9`, or `step 13`: [first, last], not empty."""
    first, last = steps
    return f"step {first}" if first == last else f"steps {first} to {last}"


def found_lines(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """What was found, ranks with the same files together: (ranks, files)."""
    kinds_of_rank: dict[int, Counter[str]] = defaultdict(Counter)
    windows_of_rank: dict[int, set[int]] = defaultdict(set)
    for source in sources:
        kinds_of_rank[source.rank_id][source.kind] += 1
        windows_of_rank[source.rank_id].add(source.window)
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, kinds in sorted(kinds_of_rank.items()):
        windows = len(windows_of_rank[rank])
        names = [k if n == 1 else f"{k} ×{n}" for k, n in sorted(kinds.items())]
        alike[(*names, *([f"({windows} profile windows)"] if windows > 1 else []))].append(rank)
    return [
        (f"rank{'s' if len(ranks) > 1 else ''} {shown_ranks(ranks)}", ", ".join(names))
        for names, ranks in alike.items()
    ]


def plain(text: str) -> str:
    """`text` on one line, without control characters: file names may hold anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def as_text(title: str, sources: Sequence[Source], coverage: dict, notes: Sequence[Note], unknown: int) -> str:
    """The overview that `open_run` prints."""
    lines = [plain(title)]
    lines += [f"  {who}: {what}" for who, what in found_lines(sources)]
    if coverage["steps"]:
        lines.append(f"  {steps_text(coverage['steps'])}")
    lines.append(f"  tables: {', '.join(coverage['tables']) or 'none'}")
    if unknown:
        lines.append(f"  {unknown} other file(s) that no reader knows")
    if coverage["missing"]:
        lines.append("Missing, what that costs, and what collects it:")
        lines += [line for fix, tables in _by_fix(coverage["missing"]) for line in (*tables, f"    → {fix}")]
    return "\n".join([*lines, *notes_text(notes)])


def notes_text(notes: Sequence[Note]) -> list[str]:
    """Lines on what of the files could not be used, the first of them in full; none without notes."""
    if not notes:
        return []
    head = f"{len(notes)} note(s) on what could not be used (run.notes has all):"
    return [head, *(f"  {plain(str(note))}" for note in alike_notes(notes)[:SHOWN_NOTES])]


def alike_notes(notes: Sequence[Note]) -> list[Note]:
    """One note for all files with the same problem at the same place, in the order of the first of each."""
    files: dict[Note, list[str]] = defaultdict(list)
    for note in notes:
        files[replace(note, file="")].append(note.file)
    return [
        replace(note, file=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more file(s)")
        for note, names in files.items()
    ]


def _by_fix(missing: list[dict[str, str]]) -> list[tuple[str, list[str]]]:
    """Missing tables that one setting collects, together: (setting, lines on the tables)."""
    lines: dict[str, list[str]] = defaultdict(list)
    for entry in missing:
        lines[entry["collect_with"]].append(f"  {entry['table']}: {entry['costs']}")
    return list(lines.items())


def missing_html(missing: Sequence[Mapping[str, str]]) -> str:
    """Missing tables, what that costs and what collects them, folded; empty if none is missing."""
    if not missing:
        return ""
    head = "<tr><th>missing table</th><th>costs</th><th>to collect it</th></tr>"
    rows = "".join(_cells(m["table"], m["costs"], m["collect_with"]) for m in missing)
    return f"<details><summary>{len(missing)} tables are missing</summary><table>{head}{rows}</table></details>"


def _cells(*texts: str) -> str:
    return "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(plain(t))}</td>" for t in texts) + "</tr>"


def as_html(title: str, sources: Sequence[Source], coverage: dict, notes: Sequence[Note]) -> str:
    """The overview that Lab shows."""
    found = "".join(_cells(who, what) for who, what in found_lines(sources))
    problems = "".join(_cells(n.file, n.where, n.problem, n.lost, n.fix) for n in alike_notes(notes))
    tables = html.escape(", ".join(coverage["tables"]) or "none")
    parts = [f"<b>{html.escape(plain(title))}</b>", f"<table>{found}</table>", f"<p>tables: {tables}</p>"]
    parts.append(missing_html(coverage["missing"]))
    if problems:
        head = "<tr><th>file</th><th>where</th><th>problem</th><th>lost</th><th>fix</th></tr>"
        parts.append(f"<details open><summary>{len(notes)} notes</summary><table>{head}{problems}</table></details>")
    return "".join(parts)
