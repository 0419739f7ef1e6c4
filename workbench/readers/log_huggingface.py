r"""Lines of the Hugging Face Trainer, mindnlp and LLaMA-Factory -> steps, evaluation scores, settings.

The Trainer prints Python dictionaries without a step number. The step is, in this order: the state of the progress bar
on the same stream; the number of the line among the lines of its kind times the logging interval, where `Total
optimization steps` or the closing dictionary tell it; else the number of the line, with a note.
Source: transformers/trainer.py.
"""

from __future__ import annotations

import json
import math
import re

from workbench.readers.log_rows import MISSING, PLANNED_STEPS, LogRows, Score
from workbench.readers.log_values import literal, metric_name, to_float, whole, whole_number

RECORD = r"\{['\"](loss|eval_|train_runtime|train_loss|grad_norm|learning_rate|epoch|current_steps)"
WANTED = (
    RECORD,
    r"\d+%\|.*\| \d+/\d+ \[",
    r"Running training",
    r"(Num examples|Num Epochs|Total optimization steps|Gradient Accumulation steps|Total train batch size"
    r"|Instantaneous batch size per device|logging_steps)[ \w(),.&]*=",
)

_RECORD = re.compile(RECORD)
_DICT = re.compile(r"\{['\"].*\}", re.DOTALL)
_BAR = re.compile(r"^\s*\d+%\|[^|]*\|\s*(\d{1,15})/(\d{1,15}) \[")
_BANNER = re.compile(
    r"(Num examples|Num Epochs|Total optimization steps|Gradient Accumulation steps|Total train batch size"
    r"|Instantaneous batch size per device|logging_steps)[ \w(),.&]*=\s*([\d,]+)"
)
STEP_PARTS = {
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
    "lr": "learning_rate",
}
STEP_KEYS = ("step", "global_step", "current_steps")
EVAL_TIMES = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


def read_line(text: str, rows: LogRows) -> bool:
    """Take in such a line; False if it is none."""
    bar = "%|" in text and _bar(text, rows)
    if "{" in text and (match := _DICT.search(text)):
        return _dictionary(match[0], text, rows) or bool(bar)
    if "{" in text and _RECORD.search(text):
        rows.notes.add("a record breaks off", rows.now.number, "its numbers", "nothing, if the run ended there")
        return True
    if "=" in text and (match := _BANNER.search(text)):
        name = match[1].lower().replace(" ", "_")
        rows.settings[name] = match[2].replace(",", "").strip()
        rows.add_message("setting", text, {name: whole(rows.settings[name])})
        return True
    return bool(bar)


def _bar(text: str, rows: LogRows) -> bool:
    """Remember the state of the training's progress bar: the first bar without a description."""
    match = _BAR.match(text)
    if match:
        done, total = int(match[1]), int(match[2])
        if rows.bar_total is None and total > 0:
            rows.bar_total = total
            rows.settings[PLANNED_STEPS] = str(total)
        if total == rows.bar_total:
            rows.bar_step = done
    return match is not None


def _dictionary(found: str, text: str, rows: LogRows) -> bool:
    values = _json(found) if found.startswith('{"') else literal(found)
    if not isinstance(values, dict):
        return False
    floats = {str(k): to_float(v) for k, v in values.items()}
    numbers = {k: v for k, v in floats.items() if v is not None}
    if "train_runtime" in numbers:
        rows.train_end = numbers
        rows.add_message("train_end", text, dict(numbers))
    elif any(k.startswith("eval_") for k in numbers):
        _evaluation(numbers, text, rows)
    elif "loss" in numbers and ("epoch" in numbers or any(k in numbers for k in STEP_KEYS)):
        _step(numbers, rows)
    else:
        return False
    return True


def _json(found: str) -> object:
    try:
        return json.loads(found)
    except ValueError:
        return None


def _step(numbers: dict[str, float], rows: LogRows) -> None:
    values: dict[str, float] = {}
    step = next((numbers.pop(k) for k in STEP_KEYS if k in numbers), None)
    if step is not None:
        values["step"] = step
    else:
        values["hf_count"] = rows.hf_count = rows.hf_count + 1
        if rows.bar_step is not None:
            values["bar_step"] = float(rows.bar_step)
    if "epoch" in numbers:
        values["epoch_fraction"] = numbers.pop("epoch")
    total = numbers.pop("total_steps", None)
    if total is not None:
        rows.settings["total_steps"] = f"{total:.0f}"
    numbers.pop("percentage", None)
    values |= {STEP_PARTS[name]: value for name, value in numbers.items() if name in STEP_PARTS}
    rows.add_step((), values)
    for name, value in numbers.items():
        if name not in STEP_PARTS:
            rows.add_extra(name, value)


def _evaluation(numbers: dict[str, float], text: str, rows: LogRows) -> None:
    """Scores of `eval_<metric>`; with several evaluation sets `eval_<set>_<metric>`, told by `eval_<set>_runtime`."""
    names = [k[len("eval_") : -len("_runtime")] for k in numbers if k.startswith("eval_") and k.endswith("_runtime")]
    subset = next((n for n in names if n), "")
    start = f"eval_{subset}_" if subset else "eval_"
    seconds = numbers.get(f"{start}runtime", MISSING)
    scores = {k[len(start) :]: v for k, v in numbers.items() if k.startswith(start)}
    shown = {metric_name(k): v for k, v in scores.items() if k not in EVAL_TIMES}
    step = next((whole_number(numbers[k]) for k in STEP_KEYS if k in numbers), None)
    rows.add_message("eval_result", text, {**shown, "seconds": seconds} if not math.isnan(seconds) else dict(shown))
    if not math.isnan(seconds):
        rows.add_ended_event("eval", seconds, "evaluation", shown).step = step
    for name, value in shown.items():
        rows.scores.append(Score(rows.step_row, step, subset or "eval", name, value, seconds, rows.now.time_ns))
