"""JSONL files of generated texts, of any model -> table `generations`.

Read: our own files; flat records (prompt, response, ...); `choices` of completion services; `messages` with the
assistant's last answer; `resps` of lm-evaluation-harness. Training data looks alike (prompt, completion): a record with
one of those names counts only if it also has something that only a generation has (a finish reason, a model, ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.records import NumberedRecords, Record, read_json_lines, records_to_table
from workbench.tables import GENERATIONS, Note, Reading

CERTAIN = ("generated_text", "generation", "generations", "model_output", "model_response", "prediction", "predictions",
           "resps", "filtered_resps", "choices")  # fmt: skip
AMBIGUOUS = ("output", "outputs", "completion", "completions", "response", "responses", "answer", "text", "messages")
MARKS = ("finish_reason", "stop_reason", "finish_details", "checkpoint", "model", "model_name", "step", "temperature",
         "seed", "usage", "output_tokens", "tokens_generated", "completion_tokens", "generation_config")  # fmt: skip
ALIASES: Mapping[str, tuple[str, ...]] = {
    "checkpoint": ("checkpoint", "model", "model_name"),
    "step": ("step", "global_step"),
    "subset": ("subset", "task", "task_name", "category", "dataset", "benchmark"),
    "sample_id": ("sample_id", "id", "prompt_id", "doc_id", "question_id", "task_id", "index", "idx"),
    "prompt": ("prompt", "input", "question", "instruction", "query", "context"),
    "finish_reason": ("finish_reason", "stop_reason"),
    "output_tokens": ("output_tokens", "tokens_generated", "completion_tokens"),
    "expects": ("expects", "format", "language"),
    "constraints": ("constraints", "instructions"),
    "temperature": ("temperature",),
    "repeat": ("repeat", "sample_index"),
}
TEXT_KEYS = ("text", "content", "generated_text", "output", "message")


def read_generations(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one JSONL file of generated texts into `generations`.

    The subset is the file's stem where records name none; the sample id the line number. A record without an output is
    left out with a note. Several outputs of a record are rows with `repeat` 0, 1, ...
    """
    rows, notes = read_json_lines(path, context)
    flat, without = NumberedRecords([], []), []
    for record, line in zip(rows.records, rows.lines, strict=True):
        found = list(_texts(record))
        if not found:
            without.append(line)
        for repeat, (output, reason) in enumerate(found):
            flat.records.append(_row(record, output, reason, repeat, line, path.stem))
            flat.lines.append(line)
    name = context.name(path)
    if without:
        notes.append(_without_output(name, without))
    reading = records_to_table(GENERATIONS, flat, file=name, constants={"source": name})
    return {"generations": Reading(reading.table, notes + reading.notes)}


def _row(record: Record, output: str, reason: object, repeat: int, line: int, stem: str) -> Record:
    values = {column: _first(record, names) for column, names in ALIASES.items()}
    prompt = values["prompt"] if values["prompt"] is not None else _asked(record)
    given = {
        "output": output,
        "prompt": prompt if prompt is None or isinstance(prompt, str) else msgspec.json.encode(prompt).decode(),
        "finish_reason": reason if isinstance(reason, str) else values["finish_reason"],
        "repeat": values["repeat"] if isinstance(values["repeat"], int) else repeat,
        "subset": stem if values["subset"] is None else values["subset"],
        "sample_id": f"line {line}" if values["sample_id"] is None else values["sample_id"],
    }
    return {**values, **given}


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[n] for n in names if record.get(n) is not None), None)


def _texts(record: Record) -> Iterator[tuple[str, object]]:
    """Outputs of a record with their finish reasons."""
    for name in (*CERTAIN, *AMBIGUOUS):
        value = record.get(name)
        if value is None:
            continue
        if name == "messages":
            value = _said_last(value)
        found = list(_flat(value))
        if found:
            yield from found
            return


def _flat(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, str):
        yield value, None
    elif isinstance(value, list):
        for part in value:
            yield from _flat(part)
    elif isinstance(value, dict):
        reason = value.get("finish_reason") or value.get("stop_reason")
        inner = _first(value, TEXT_KEYS)
        yield from ((text, reason or own) for text, own in _flat(inner))


def _said_last(messages: object) -> object:
    """The assistant's last answer; nothing where the last to speak was another."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    return last if isinstance(last, dict) and last.get("role") in ("assistant", "model", "bot") else None


def _asked(record: Record) -> object:
    """The prompt where it has no name of its own: `arguments` of lm-evaluation-harness, earlier messages."""
    arguments = record.get("arguments")
    while isinstance(arguments, list | dict) and arguments:
        arguments = arguments[0] if isinstance(arguments, list) else next(iter(arguments.values()))
    if isinstance(arguments, str):
        return arguments
    messages = record.get("messages")
    asked = messages[:-1] if isinstance(messages, list) else []
    said = [str(m.get("content")) for m in asked if isinstance(m, dict)]
    return "\n".join(said) if said else None


def is_generation(record: object) -> bool:
    """Whether a JSON value is a record of a generated text."""
    if not isinstance(record, dict) or not any(True for _ in _texts(record)):
        return False
    names = set(record)
    return bool(names & set(CERTAIN)) or bool(names & set(MARKS))


def sniff_generations(path: Path, head: bytes) -> bool:
    """Whether the first complete line is a record of a generated text."""
    first = head.lstrip().split(b"\n", 1)[0]
    if path.suffix not in (".jsonl", ".json", ".ndjson") or not first.startswith(b"{"):
        return False
    try:
        return is_generation(msgspec.json.decode(first))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return path.parent.name == "generations"  # our own folder: an empty or damaged file is still named in a note


def _without_output(file: str, lines: list[int]) -> Note:
    shown = ", ".join(map(str, lines[:3])) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
    return Note(
        file=file,
        where=f"line {shown}",
        problem="A record without a generated text.",
        lost=f"{len(lines)} row(s) of table generations",
        fix=f"name the text by one of {', '.join((*CERTAIN, *AMBIGUOUS))}",
    )


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="generated_text",
        meaning="generated texts, a JSON object per line",
        tables=(GENERATIONS.name,),
        sniff=sniff_generations,
        read=read_generations,
    ),
)
