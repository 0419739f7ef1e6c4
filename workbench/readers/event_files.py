"""Summary files of MindSpore and TensorBoard (event files) -> training_steps, and every other scalar -> series.

Sources: mindspore/train/summary.proto and TensorFlow's event.proto. The two messages differ in the field number of the
version (3 in both, text) and of a scalar: 2 in TensorFlow's, 3 in MindSpore's. Neither package is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from workbench.errors import UnreadableFileError
from workbench.readers.event_frames import Frames, is_event_file, read_frames
from workbench.readers.filled import filled
from workbench.readers.kinds import FileContext, FileKind
from workbench.readers.named import or_named
from workbench.readers.protobuf import BYTES, FIXED32, FIXED64, BadMessage, as_float, as_int64, fields
from workbench.readers.text import read_bytes
from workbench.tables import SERIES, TRAINING_STEPS, Note, Reading

# tag, lower case, '-' and ' ' as '_', MindSpore's "/auto" cut off -> column of training_steps; the first tag found wins
TAGS: Mapping[str, tuple[str, ...]] = {
    "loss": ("loss", "train/loss", "train_loss", "training_loss", "lm_loss"),
    "learning_rate": ("learning_rate", "lr", "train/learning_rate", "train/lr"),
    "gradient_norm": ("grad_norm", "gradient_norm", "global_norm", "train/grad_norm"),
    "parameter_norm": ("params_norm", "param_norm", "weight_norm"),
    "loss_scale": ("loss_scale",),
    "step_us": ("iteration_time",),
    "samples_per_s": ("throughput",),
    "flops_per_s": ("model_flops_throughput_per_npu",),
    "epoch": ("epoch", "train/epoch"),
}
FLOPS_PER_TERAFLOPS = 1e12
LATEST_S = 9e9  # a later time does not fit into integer nanoseconds
BY_SAMPLES = " vs samples"  # the same scalar again, with the number of samples as its step


@dataclass
class _Scalars:
    """Scalars of a file: (step, wall time in s, tag, value), and how many other values there were."""

    rows: list[tuple[int, float, str, float]] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)  # histogram, image, ... -> how many
    no_message: int = 0  # intact records that are no event


def sniff_events(path: Path, head: bytes) -> bool:
    """Whether the file is made of event records, whatever its name."""
    return is_event_file(head)


def read_events(path: Path, context: FileContext) -> dict[str, Reading]:
    """Read one event file.

    The step of a record is its `step`; a step that was written twice (MindSpore writes the last one twice) counts once.
    MindFormers states `iteration-time` in ms, Megatron in s: the unit is the one that fits the times of the records.

    Raises:
        UnreadableFileError: no intact event record.
    """
    file = context.name(path)
    frames = read_frames(bytes(read_bytes(path, context)))
    scalars = _scalars(frames)
    if not frames.payloads or scalars.no_message == len(frames.payloads):
        raise UnreadableFileError(
            f"{file} holds no intact event record.", fix="copy the file again from the training host"
        )
    notes = _frame_notes(frames, scalars, file)
    long = _long(scalars)
    used = _chosen_tags(long["tag"].unique())
    steps = _training_steps(long, used, context, file)
    rest = _series(long[~long["tag"].isin(used.values())], file)
    if steps.empty and rest.empty:
        notes.append(_nothing_note(file, len(frames.payloads)))
    return {
        "training_steps": Reading(TRAINING_STEPS.check(steps), notes),
        "series": Reading(SERIES.check(rest), []),
    }


def _scalars(frames: Frames) -> _Scalars:
    scalars = _Scalars()
    for payload in frames.payloads:
        try:
            _read_event(payload, scalars)
        except BadMessage:
            scalars.no_message += 1
    return scalars


def _read_event(payload: bytes, scalars: _Scalars) -> None:
    wall_time, step, summaries = math.nan, 0, []
    for number, wire, value in fields(payload):
        if number == 1 and wire == FIXED64:
            wall_time = as_float(value) or math.nan
        elif number == 2:
            step = as_int64(value) or 0
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, _, value in fields(summary):
            if number == 1 and isinstance(value, bytes):
                _read_value(value, step, wall_time, scalars)


def _read_value(data: bytes, step: int, wall_time: float, scalars: _Scalars) -> None:
    tag, number_read, other = "", None, ""
    for number, wire, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number in (2, 3) and wire == FIXED32:
            number_read = as_float(value)
        elif number == 8 and isinstance(value, bytes):
            number_read, other = _tensor_scalar(value), "tensor"
        elif number in _OTHER_VALUES and wire == BYTES:
            other = _OTHER_VALUES[number]
    if number_read is not None:
        scalars.rows.append((step, wall_time, tag, number_read))
    elif other:
        scalars.unread[other] = scalars.unread.get(other, 0) + 1


_OTHER_VALUES = {4: "image", 5: "histogram", 6: "audio", 9: "histogram", 10: "loss landscape"}


def _tensor_scalar(data: bytes) -> float | None:
    """The one number of a TensorFlow tensor message (how newer writers store scalars); None for anything else."""
    for number, wire, value in fields(data):
        if number in (4, 5, 6) and wire in (BYTES, FIXED32, FIXED64):
            scalar = as_float(value)
            if scalar is not None:
                return scalar
    return None


def _long(scalars: _Scalars) -> pd.DataFrame:
    """One row per step and tag: step, wall_time, tag, value; the last record of a step wins."""
    kept = [row for row in scalars.rows if not row[2].endswith(BY_SAMPLES)]
    long = pd.DataFrame(kept, columns=["step", "wall_time", "tag", "value"])
    return long.drop_duplicates(["step", "tag"], keep="last")


def _chosen_tags(tags: Iterable[str]) -> dict[str, str]:
    """Column of training_steps -> tag that fills it."""
    plain: dict[str, str] = {}
    for tag in tags:
        plain.setdefault(tag.removesuffix("/auto").lower().replace("-", "_").replace(" ", "_"), tag)
    found = {column: next((plain[n] for n in names if n in plain), None) for column, names in TAGS.items()}
    return {column: tag for column, tag in found.items() if tag is not None}


def _training_steps(long: pd.DataFrame, used: Mapping[str, str], context: FileContext, file: str) -> pd.DataFrame:
    by_tag = {tag: of_tag.set_index("step")["value"] for tag, of_tag in long.groupby("tag", sort=False)}
    of_used = long[long["tag"].isin(used.values())]
    times = of_used.groupby("step")["wall_time"].max()
    times = times.where(times.between(0, LATEST_S))
    steps = pd.DataFrame({column: by_tag[tag].reindex(times.index) for column, tag in used.items()}, index=times.index)
    if "loss" in steps:
        finite = np.isfinite(by_tag[used["loss"]]).astype("boolean")
        steps["loss_finite"] = finite.reindex(steps.index)
    if "step_us" in steps:
        steps["step_us"] *= _us_per_iteration_unit(steps["step_us"], times)
    if "flops_per_s" in steps:
        steps["flops_per_s"] *= FLOPS_PER_TERAFLOPS
    if "epoch" in steps:
        steps["epoch"] = steps["epoch"].round()
    steps["time_ns"] = (times * 1e6).round().astype("Int64") * 1000
    return steps.rename_axis("step").reset_index().assign(rank_id=context.rank_id, source=file)


def _us_per_iteration_unit(values: pd.Series, times_s: pd.Series) -> float:
    """1e3 where the values are ms, 1e6 where they are s: whichever fits the time between the records better."""
    seconds = np.diff(times_s.to_numpy()) / np.diff(times_s.index.to_numpy(dtype="float64"))
    seconds, stated = seconds[np.isfinite(seconds) & (seconds > 0)], values[values > 0]
    if not len(seconds) or stated.empty:
        return 1e3
    ratio = median(seconds.tolist()) / float(stated.median())
    return 1e3 if abs(math.log10(ratio * 1e3)) < abs(math.log10(ratio)) else 1e6


def _series(long: pd.DataFrame, file: str) -> pd.DataFrame:
    """Every scalar that training_steps has no column for; `row` numbers the steps, column `step` tells which."""
    steps = sorted(long["step"].unique())
    rows = {step: i for i, step in enumerate(steps)}
    cells = long.assign(row=long["step"].map(rows), column=long["tag"])[["row", "column", "value"]]
    index = pd.DataFrame({"row": range(len(steps)), "column": "step", "value": [float(step) for step in steps]})
    frame = pd.concat([index, cells] if len(cells) else [index])
    return frame.assign(file=file, text=pd.NA).sort_values("row", kind="stable")


def _frame_notes(frames: Frames, scalars: _Scalars, file: str) -> list[Note]:
    again = "copy the file again from the training host; a file that is still written grows later"
    notes = [
        Note(
            file=file, where=f"bytes {a} to {b}", problem="No record begins here.", lost="the records there", fix=again
        )
        for a, b in frames.lost
    ]
    notes += [
        Note(file=file, where=f"byte {at}", problem="The record's check sum is wrong.", lost="that record", fix=again)
        for at in frames.bad_payloads
    ]
    if frames.torn_at is not None:
        problem = "The last record is incomplete."
        notes.append(Note(file=file, where=f"byte {frames.torn_at}", problem=problem, lost="that record", fix=again))
    if scalars.no_message:
        problem = f"{scalars.no_message} records are no events."
        notes.append(Note(file=file, where="whole file", problem=problem, lost="those records", fix=again))
    if scalars.unread:
        what = ", ".join(f"{n} {name} values" for name, n in sorted(scalars.unread.items()))
        fix = "record their mean and norm as scalars, or view them in MindInsight or TensorBoard"
        notes.append(Note(file=file, where="whole file", problem=f"{what} are not read.", lost="those values", fix=fix))
    return notes


def _nothing_note(file: str, records: int) -> Note:
    return Note(
        file=file,
        where="whole file",
        problem=f"None of its {records} records holds a scalar.",
        lost="nothing: the writer recorded no scalar",
        fix="record the loss: SummaryCollector, or SummaryRecord.add_value('scalar', 'loss', ...)",
    )


KINDS: tuple[FileKind, ...] = (
    FileKind(
        name="event_file",
        meaning="MindSpore summary or TensorBoard event file: scalars per step",
        tables=("training_steps", "series"),
        sniff=or_named(sniff_events, r"events\.out\..*"),
        read=filled(read_events),
    ),
)
