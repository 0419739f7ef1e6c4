"""Lines that say something without being a step -> rows of `log_messages`.

`MESSAGE_KINDS` is the list of words in column `kind`. Numbers of a line go to `fields`, units in the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from workbench.readers.log_rows import LogRows
from workbench.readers.log_rules import RULES

MESSAGE_KINDS: Mapping[str, str] = {
    "timeout_collective": "a running collective timed out: a rank did not take part, or came too late",
    "timeout_link": "the link to another rank could not be set up in time",
    "timeout_stream": "the host waited too long for a stream or an event of the device",
    "link_memory": "no device memory was left for a communication link",
    "task_failed": "a device task or graph failed; the reason stands around it",
    "oom": "an allocation failed on the device",
    "oom_warning": "the writer expects an out-of-memory, or host memory is almost full",
    "memory_summary": "block of device memory figures: budget, used peak, actual peak",
    "memory_pool": "state of the device memory pool",
    "memory_report": "allocated and reserved memory of a rank, as Megatron prints it",
    "device_in_use": "the device had too little free memory at start: another process holds it",
    "slow_data": "the data pipeline was slower than the writer's limit",
    "data_queue": "block with the last fill levels of host and device queue, and push times",
    "data_hang": "a worker process of the data pipeline does not answer",
    "data_timeout": "the device waited for data until its limit",
    "data_autotune": "a line of the data pipeline's automatic tuning",
    "shared_memory": "a row does not fit into the shared memory of the data workers",
    "recompile": "a function is compiled again, or the writer warns that it will be",
    "compile_phase": "a phase is about to be compiled; its counter tells how often before",
    "compile_start": "compilation of a function begins",
    "compile_end": "compilation of a function ends",
    "pass_time": "block with the seconds of the compiler's passes",
    "checkpoint_start": "saving of a checkpoint begins",
    "checkpoint_save": "a checkpoint was saved, with its seconds",
    "eval_result": "scores of an evaluation",
    "eval_time": "time of an evaluation epoch",
    "epoch_time": "time of an epoch, mean step time and data time",
    "train_end": "closing record of a training: run time and totals",
    "overflow": "gradients overflowed and the step was skipped, or the loss scale is at its end",
    "norm_guard": "the gradient norm passed the writer's threshold",
    "hardware_check": "stress test or silent-error check of the device",
    "nan_stop": "training stopped because the loss was not a number",
    "network_transport": "which transport the collectives use",
    "pipeline_loss": "only the last pipeline stage prints a valid loss",
    "gc_pause": "garbage collection stopped the process",
    "setting": "a setting of the run; also in table settings",
    "stage": "a stage of the start-up: data, network, optimizer, compilation, end",
    "exception": "an exception reached the log",
    "warning": "another warning; `fields` counts its repetitions",
    "error": "another error; `fields` counts its repetitions",
    "log_end": "the last line with a time: how long this rank was alive",
}

_STATED_RANK = re.compile(r"This node \d+ rank id: (\d{1,6})\b")
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]: ?)?(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Interrupt)): ?(?P<what>.*)")
_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+")
MAX_TEMPLATES = 5000
SHOWN_PER_TEMPLATE = 3

WANTED = (
    *(re.escape(rule.token).replace(r"\ ", " ") for rule in RULES),
    r"This node \d+ rank id",
    r"^(\[rank\d+\]: ?)?[\w.]*(Error|Exception|KeyboardInterrupt):",
    r"\[(ERROR|CRITICAL|WARNING)\]",
    r" - (ERROR|CRITICAL|WARNING) - ",
)


def read_line(text: str, rows: LogRows) -> bool:
    """Take in a message; False if the line says nothing that is known."""
    for rule in RULES:
        if rule.token in text and (match := rule.pattern.search(text)):
            rows.add_message(rule.kind, text, rule.facts(match))
            return True
    if match := _STATED_RANK.search(text):
        rows.stated_rank = int(match[1])
        return True
    if match := _EXCEPTION.match(text):
        rows.add_message("exception", text, {"type": match["type"]})
        return True
    level = rows.now.level
    if level in ("WARNING", "ERROR", "CRITICAL"):
        _other("warning" if level == "WARNING" else "error", text, rows)
        return True
    return False


def _other(kind: str, text: str, rows: LogRows) -> None:
    """Keep the first lines of each template (digits left out), and count the others in the fields of the last kept."""
    template = (kind, _VARIABLE.sub("#", text[:200]))
    seen, last = rows.templates.get(template, (0, None))
    if not seen and len(rows.templates) >= MAX_TEMPLATES:
        rows.notes.add(
            "too many different warnings; later ones were left out", rows.now.number, "their text", "read the log"
        )
        return
    if seen < SHOWN_PER_TEMPLATE:
        last = rows.add_message(kind, text)
    elif last is not None:
        last.fields.update({"repeats": seen + 1 - SHOWN_PER_TEMPLATE, "last_line": rows.now.number})
    rows.templates[template] = (seen + 1, last)
