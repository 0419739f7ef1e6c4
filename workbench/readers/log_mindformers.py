r"""MindFormers lines -> steps, checkpoint and evaluation events, evaluation scores, settings, state monitors.

The loss line is read part by part, split at its commas, because versions 0.3 to 1.7 differ in which parts they print
and in the brackets around them, and old MindSpore examples print the same line with fewer parts.
Source: MFLossMonitor, CheckpointMonitor, EvalCallBack and TrainingStateMonitor of these versions.
"""

from __future__ import annotations

import re

from workbench.readers.log_rows import MISSING, NO_INT, PLANNED_STEPS, LogRows, Score
from workbench.readers.log_values import NUMBER, literal, metric_name, number, numeric_leaves, whole

WANTED = (
    r"step:\s*\[",
    r"samples/s/p",
    r"global_batch_size =",
    r"model flops is",
    r"(?i)saving (ckpt|network|trainable_params)",
    r"Save (checkpoint|common info) cost time",
    r"Eval result",
    r"local_norm|weight_norm|adam_[mv]_norm",
    r"drop_rate:",
    r"dataset size:",
    r"Will be Training epochs",
    r"\.{8,} ?[A-Z][\w ,]+?\.{8,}",
)

_STEP = re.compile(r"Epoch:?\s*\[\s*(\d+)/\s*(\d+)\],?\s*step:?\s*\[\s*(\d+)/\s*(\d+)\](?P<rest>.*)", re.DOTALL)
_STATE = re.compile(rf"\s*,?\s*(?P<tag>[\w./-]+): (?P<value>{NUMBER})\b(?!.*,.*:)")
_LONE_STATE = re.compile(rf"(?:^|[\s-])(?P<tag>[\w./-]*(?:_norm|_norm/[\w./-]+)): (?P<value>{NUMBER})\s*$")
_WHOLE_END = re.compile(r"(\]|\bms|T|\})\s*$")
_THROUGHPUT = re.compile(rf"({NUMBER}) samples/s/p")
_BATCH = re.compile(r"global_batch_size = (?P<names>[\w* ]+) = (?P<values>[\d* ]+) = (?P<result>\d+)")
_BATCH_RESULT = re.compile(r"global_batch_size =(?:.*=)? (\d+)\s*$")
_FLOPS = re.compile(r"Full model flops is (\d+)(?:, Shard model flops is (\d+))?")
_SIZES = re.compile(r"(dataset size|Training epochs|sink_size):\s?(\d+)")
_SAVED = re.compile(rf"Finish saving (\w+) of epoch (\d+) step (\d+) using ({NUMBER}) seconds")
_SAVE_COST = re.compile(rf"Save (checkpoint|common info) cost time: ({NUMBER}) ?s")
_EVAL = re.compile(rf"Eval result: (?P<scores>\{{.*\}})(?:, eval time is (?P<seconds>{NUMBER}) s)?")
_DROP = re.compile(rf"layer: (\d+), drop_rate: ({NUMBER})")
_STAGE = re.compile(r"\.{8,}\s*([A-Z][\w ,]+?)\s*\.{8,}")

_US = 1e3
PARTS = {  # name in the line -> (column, factor)
    "loss": ("loss", 1.0),
    "time": ("step_us", _US),
    "per_step_time": ("step_us", _US),
    "lr": ("learning_rate", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "global_norm": ("gradient_norm", 1.0),
    "grad_norm": ("gradient_norm", 1.0),
    "train_throughput_per_npu": ("flops_per_s", 1e12),
}
NOT_GIVEN = ("none", "unavailable", "")
NORM_COLUMNS = (("local_norm/", "gradient_norm"), ("weight_norm/", "parameter_norm"))


def read_line(text: str, rows: LogRows) -> bool:
    """Take in any other line of MindFormers; False if it is none."""
    return any(reader(text, rows) for token, reader in _READERS if token in text)


def read_step(text: str, rows: LogRows) -> bool:
    """Take in a line of the loss monitor, by far the most frequent ones; False if it is none."""
    if "step:" in text and "poch" in text and (match := _STEP.search(text)):
        return _step_line(match, rows)
    if "samples/s/p" in text and (match := _THROUGHPUT.search(text)):
        rows.complete_step({"samples_per_s": float(match[1])})
        return True
    return False


def _step_line(match: re.Match[str], rows: LogRows) -> bool:
    epoch, epochs, step, steps = (float(match[i]) for i in range(1, 5))
    rest = match["rest"]
    if (state := _STATE.fullmatch(rest.rstrip())) and state["tag"] not in PARTS:
        _state_value(state, (max(epoch, 1) - 1) * steps + step, rows)
        return True
    values, extras, ok = _parts(rest, rows)
    if "loss" not in values and "step_us" not in values:
        rows.notes.add(
            "a loss line breaks off or is garbled",
            rows.now.number,
            "the step of that line",
            "nothing, if the run ended",
        )
        return True
    rank = rows.now.rank_id
    where = {"epoch": epoch, "step_in_epoch": step, "steps_per_epoch": steps, "epochs": epochs}
    rows.settings[PLANNED_STEPS] = f"{epochs * steps:.0f}"
    if rank in rows.epochs_done:
        where["epochs_done"] = rows.epochs_done[rank]
    rows.epoch_rows[rank] = rows.epoch_rows.get(rank, 0) + 1
    rows.add_step(("epoch", "step_in_epoch"), {**where, **values})
    for name, value in extras.items():
        rows.add_extra(name, value)
    if not ok:
        rows.notes.add(
            "a number in a loss line cannot be read", rows.now.number, "that number; it is missing in its row",
            "look at the line",
        )  # fmt: skip
    return True


def _parts(rest: str, rows: LogRows) -> tuple[dict[str, float], dict[str, float], bool]:
    """Known columns, other numbers, and whether every part could be read."""
    values: dict[str, float] = {}
    extras: dict[str, float] = {}
    ok = True
    parts = rest.split(",")
    if not rows.now.complete and not _WHOLE_END.search(rest):
        parts.pop()  # its number may be cut
    for part in parts:
        label, mark, text = part.partition(":")
        if not mark:
            label, mark, text = part.partition("[")  # one version leaves the colon out
        name, text = label.strip(" {"), text.strip(" []}\r")
        if not mark or not name or not text:
            continue
        value = number(text.removesuffix("ms").removesuffix("T").partition("/")[0])
        if name == "overflow cond":
            values |= {"overflow": float(text == "True")} if text in ("True", "False") else {}
        elif value is None:
            ok = ok and (text.lower() in NOT_GIVEN or name not in PARTS)
        elif name in PARTS:
            column, factor = PARTS[name]
            values[column] = value * factor
        else:
            extras[name] = value
    return values, extras, ok


def _state_value(match: re.Match[str], step: float, rows: LogRows) -> None:
    tag, value = match["tag"], float(match["value"])
    for start, column in NORM_COLUMNS:
        if tag.startswith(start):
            rows.add_group(tag[len(start) :], column, value, step)
            return
    rows.add_extra(tag, value, step)


def _lone_state(text: str, rows: LogRows) -> bool:
    match = _LONE_STATE.search(text)
    if match and rows.step_row >= 0:
        rows.add_extra(match["tag"], float(match["value"]))
    return match is not None


def _batch_size(text: str, rows: LogRows) -> bool:
    if match := _BATCH.search(text):
        names = [n.strip() for n in match["names"].split("*")]
        sizes = [v.strip() for v in match["values"].split("*")]
        if len(names) == len(sizes):
            rows.settings.update(dict(zip(names, sizes, strict=True)))
    match = _BATCH_RESULT.search(text)
    if not match or not rows.now.complete:
        return False
    rows.settings["global_batch_size"] = match[1]
    rows.add_message("setting", text, {"global_batch_size": whole(match[1])})
    return True


def _flops(text: str, rows: LogRows) -> bool:
    match = _FLOPS.search(text)
    if not match:
        return False
    facts = {"full_model_flops": match[1], "shard_model_flops": match[2]}
    given = {k: v for k, v in facts.items() if v}
    rows.settings.update(given)
    rows.add_message("setting", text, {k: float(v) for k, v in given.items()})
    return True


def _sizes(text: str, rows: LogRows) -> bool:
    found = {m[1].lower().replace("training ", "").replace(" ", "_"): m[2] for m in _SIZES.finditer(text)}
    rows.settings.update(found)
    if found:
        rows.add_message("setting", text, {k: whole(v) for k, v in found.items()})
    return bool(found)


def _saving(text: str, rows: LogRows) -> bool:
    if match := _SAVED.search(text):
        _saved(match, text, rows)
        return True
    if not re.search(r"\bsaving (ckpt|network|trainable_params)", text, re.IGNORECASE):
        return False
    rows.add_message("checkpoint_start", text)
    rows.add_event("checkpoint", rows.now.time_ns, MISSING, "saving")
    return True


def _saved(match: re.Match[str], text: str, rows: LogRows) -> None:
    epoch, step, seconds = whole(match[2]), whole(match[3]), float(match[4])
    rows.add_message("checkpoint_save", text, {"epoch": epoch, "step_in_line": step, "seconds": seconds})
    name, now = f"{match[1]} of epoch {epoch} step {step}", rows.now
    open_ = next(
        (
            e
            for e in reversed(rows.events)
            if e.kind == "checkpoint" and e.rank_id == now.rank_id and e.name == "saving"
        ),
        None,
    )
    if open_ is None:
        rows.add_ended_event("checkpoint", seconds, name, {"seconds_from": "the line"})
        return
    open_.name, open_.duration_us = name, seconds * 1e6
    open_.detail = {"seconds_from": "the line"}
    if now.time_ns != NO_INT and open_.start_ns != NO_INT:
        open_.detail["between_lines_s"] = (now.time_ns - open_.start_ns) / 1e9


def _save_cost(text: str, rows: LogRows) -> bool:
    match = _SAVE_COST.search(text)
    if match:
        seconds = float(match[2])
        rows.add_message("checkpoint_save", text, {"what": match[1], "seconds": seconds})
        _add_save_cost(seconds * 1e6, rows)
    return match is not None


def _add_save_cost(cost_us: float, rows: LogRows) -> None:
    """The parts of a save that began and has no line of its end: their sum is its time."""
    last = next((e for e in reversed(rows.events) if e.kind == "checkpoint" and e.rank_id == rows.now.rank_id), None)
    if last is not None and last.name == "saving":
        last.duration_us = cost_us + (0.0 if last.duration_us != last.duration_us else last.duration_us)
        last.detail = {"seconds_from": "the line"}


def _eval(text: str, rows: LogRows) -> bool:
    match = _EVAL.search(text)
    scores = literal(match["scores"]) if match else None
    if not match or not isinstance(scores, dict):
        return False
    seconds = float(match["seconds"]) if match["seconds"] else MISSING
    add_scores(scores, seconds, text, rows)
    return True


def add_scores(scores: dict[object, object], seconds: float, text: str, rows: LogRows) -> None:
    """Evaluation scores of the last step: message, event where the time is known, and one row per metric."""
    found = [(metric_name(key), value) for key, value in numeric_leaves(scores)]
    rows.add_message("eval_result", text, {**dict(found), **({"seconds": seconds} if seconds == seconds else {})})
    if seconds == seconds:
        rows.add_ended_event("eval", seconds, "evaluation", dict(found))
    for name, value in found:
        rows.scores.append(Score(rows.step_row, None, "eval", name, value, seconds, rows.now.time_ns))


def _drop_rate(text: str, rows: LogRows) -> bool:
    found = _DROP.findall(text)
    for layer, value in found:
        rows.add_extra(f"layer_{layer}_drop_rate", float(value))
    return bool(found)


def _stage(text: str, rows: LogRows) -> bool:
    match = _STAGE.search(text)
    if match:
        rows.add_message("stage", text, {"stage": match[1]})
    return match is not None


_READERS = (
    ("Eval result", _eval),
    ("global_batch_size", _batch_size),
    ("model flops is", _flops),
    ("dataset size:", _sizes),
    ("Training epochs:", _sizes),
    ("aving ", _saving),
    ("cost time:", _save_cost),
    ("drop_rate", _drop_rate),
    ("_norm", _lone_state),
    (".....", _stage),
)
