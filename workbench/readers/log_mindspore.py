r"""Lines of mindspore.train callbacks, model-zoo scripts and the graph compiler -> steps, events, scores.

LossMonitor counts steps inside the epoch; TimeMonitor prints one line per epoch. Source: mindspore/train/callback, and
the message strings of the compiler (INFO level).
"""

from __future__ import annotations

import math
import re

from workbench.readers.log_mindformers import add_scores
from workbench.readers.log_rows import MISSING, NO_INT, PLANNED_STEPS, LogRows
from workbench.readers.log_values import NUMBER, literal, number, whole

WANTED = (
    r"loss is ",
    r"poch time:",
    r"Eval result: ",
    r"(?i)^[^{]{0,200}\bresult\s?: ",
    r"\{'[a-z_ ]*(acc|auc|loss|precision|recall|f1|map)",
    r"Epoch \d+/\d+, Step \d+/\d+",
    r"Start compiling|End compiling",
)

_LOSS = re.compile(r"epoch:?\s*(\d+),?\s*step:?\s*(\d+),? loss is:?\s*(?P<loss>[^\s,]+)", re.IGNORECASE)
_EPOCH = re.compile(
    rf"(?P<mode>Train|Eval|) ?[Ee]poch time:\s*(?P<epoch>{NUMBER}) ?ms, per step time:\s*(?P<step>{NUMBER}) ?ms"
    rf"(?: \(data time:\s*(?P<data>{NUMBER}) ?ms\))?(?:, avg loss:\s*(?P<loss>{NUMBER}))?"
)
_EVAL = re.compile(r"Eval result: epoch (\d+), metrics: (\{.*\})")
_SCORES = re.compile(r"^\s*(?:epoch:?\s*)?(\d+)?\s*:?\s*(\{'\w.*\})\s*$")
_RESULT = re.compile(r"^[\w ]*result\s?: (.*)$", re.IGNORECASE)
_PAIR = re.compile(rf"([A-Za-z][\w.@-]*)\s*[=:]\s*({NUMBER})(?![\w.])")
_YOLO = re.compile(r"Epoch (\d+)/(\d+), Step (\d+)/(\d+),(.*)")
_YOLO_PART = re.compile(rf"([A-Za-z]\w*(?: \w+)?): \[?({NUMBER})")
_PHASE = re.compile(r"Start compiling, phase: (.+)\.(\d+)\s*$")
_START = re.compile(r"Start compiling '([^']+)'")
_END = re.compile(r"End compiling '([^']+)'")


def read_line(text: str, rows: LogRows) -> bool:
    """Take in such a line; False if it is none."""
    return any(reader(text, rows) for token, reader in _READERS if token in text)


def _loss(text: str, rows: LogRows) -> bool:
    match = _LOSS.search(text)
    if not match:
        return False
    loss = number(match["loss"])
    if not rows.now.complete and loss is not None and _looks_cut(match["loss"], rows):
        loss = None
    if loss is None:
        rows.notes.add(
            "a loss cannot be read", rows.now.number, "the loss; it is missing in its row", "look at the line"
        )
    rows.loss_digits = len(match["loss"])
    rows.epoch_rows[rows.now.rank_id] = rows.epoch_rows.get(rows.now.rank_id, 0) + 1
    where = {"epoch": float(match[1]), "step_in_epoch": float(match[2])}
    rows.add_step(("epoch", "step_in_epoch"), where | ({"loss": loss} if loss is not None else {}))
    return "NAN or INF" not in text  # the line that ends the training is a message as well


def _looks_cut(loss: str, rows: LogRows) -> bool:
    """A last number without its line end counts only if it is about as long as the one before."""
    return len(loss) < rows.loss_digits - 2


def _epoch(text: str, rows: LogRows) -> bool:
    match = _EPOCH.search(text)
    if not match:
        return False
    epoch_us, step_us = _us(match["epoch"]), _us(match["step"])
    facts = {"epoch_us": epoch_us, "step_us": step_us}
    data_us = _us(match["data"]) if match["data"] else MISSING
    loss = float(match["loss"]) if match["loss"] else MISSING
    facts |= {} if math.isnan(data_us) else {"data_wait_us": data_us}
    facts |= {"average_loss": loss} if match["loss"] else {}
    if match["mode"] == "Eval":
        rows.add_ended_event("eval", epoch_us / 1e6, "evaluation", facts)
        rows.add_message("eval_time", text, facts)
        return True
    _train_epoch(step_us, data_us, loss, facts, rows)
    rows.add_message("epoch_time", text, facts)
    return True


def _us(milliseconds: str) -> float:
    return round(float(milliseconds) * 1e3, 3)


def _train_epoch(step_us: float, data_us: float, loss: float, facts: dict[str, float], rows: LogRows) -> None:
    """An epoch's mean step time belongs to the step row only if the epoch printed just that one row (sink mode)."""
    rank = rows.now.rank_id
    printed = rows.epoch_rows.pop(rank, 0)
    rows.epochs_done[rank] = rows.epochs_done.get(rank, 0) + 1
    times = {"step_us": step_us} | ({} if math.isnan(data_us) else {"data_wait_us": data_us})
    steps = facts["epoch_us"] / step_us if step_us > 0 else MISSING
    half_digit = 0.5 / step_us if step_us > 0 else 0.0
    rows.steps_per_epoch.append((steps, steps * half_digit))
    if printed == 0:
        average = {} if math.isnan(loss) else {"loss": loss}
        rows.add_step((), {"epoch_index": rows.epochs_done[rank], **times, **average})
    elif printed == 1:
        rows.steps.update(rows.step_row, times)
    if printed and not math.isnan(loss):
        rows.add_extra("average_loss", loss)


def _eval_result(text: str, rows: LogRows) -> bool:
    match = _EVAL.search(text)
    scores = literal(match[2]) if match else None
    if isinstance(scores, dict):
        add_scores(scores, MISSING, text, rows)
    return isinstance(scores, dict)


def _bare_scores(text: str, rows: LogRows) -> bool:
    """`600 : {'accuracy': 0.767}`: scripts print their metrics like this."""
    match = _SCORES.match(text)
    scores = literal(match[2]) if match else None
    if not isinstance(scores, dict) or not scores or not all(isinstance(v, int | float) for v in scores.values()):
        return False
    add_scores(scores, MISSING, text, rows)
    return True


def _named_scores(text: str, rows: LogRows) -> bool:
    match = _RESULT.match(text)
    pairs: dict[object, object] = {m[1]: float(m[2]) for m in _PAIR.finditer(match[1])} if match else {}
    if pairs:
        add_scores(pairs, MISSING, text, rows)
    return bool(pairs)


def _yolo(text: str, rows: LogRows) -> bool:
    match = _YOLO.search(text)
    if not match:
        return False
    where = dict(
        zip(("epoch", "epochs", "step_in_epoch", "steps_per_epoch"), map(float, match.groups()[:4]), strict=True)
    )
    rows.settings[PLANNED_STEPS] = f"{where['epochs'] * where['steps_per_epoch']:.0f}"
    parts = {name.strip(): float(value) for name, value in _YOLO_PART.findall(match[5])}
    names = {"loss": ("loss", 1.0), "cur_lr": ("learning_rate", 1.0), "step time": ("step_us", 1e3)}
    values = {column: parts.pop(name) * factor for name, (column, factor) in names.items() if name in parts}
    rows.add_step(("epoch", "step_in_epoch"), where | values)
    for name, value in parts.items():
        rows.add_extra(name, value)
    return True


def _compile(text: str, rows: LogRows) -> bool:
    rank = rows.now.rank_id
    if match := _PHASE.search(text):
        rows.phases[rank] = {"phase": match[1], "counter": whole(match[2])}
        rows.add_message("compile_phase", text, rows.phases[rank])
    elif match := _START.search(text):
        facts = {"function": match[1], **rows.phases.pop(rank, {})}
        rows.add_message("compile_start", text, facts)
        event = rows.add_event("compile", rows.now.time_ns, MISSING, match[1], facts)
        rows.open_compiles.append(event)
    elif match := _END.search(text):
        _compiled(match[1], text, rows)
    return True


def _compiled(function: str, text: str, rows: LogRows) -> None:
    now = rows.now
    event = next(
        (e for e in reversed(rows.open_compiles) if e.name == function and e.rank_id == now.rank_id),
        None,
    )
    facts: dict[str, object] = {"function": function}
    if event is not None:
        rows.open_compiles.remove(event)
        if NO_INT not in (now.time_ns, event.start_ns):
            event.duration_us = (now.time_ns - event.start_ns) / 1e3
            facts["seconds"] = event.duration_us / 1e6
    rows.add_message("compile_end", text, facts)


_READERS = (
    ("loss is", _loss),
    ("poch time:", _epoch),
    ("metrics: {", _eval_result),
    (", Step ", _yolo),
    (" compiling", _compile),
    ("esult", _named_scores),
    ("{'", _bare_scores),
)
