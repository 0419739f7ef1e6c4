"""Summary and TensorBoard files. The losses are those that MindSpore returned while it wrote the files (see README)."""

import struct

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.profiles import notes_text, read
from workbench.errors import UnreadableFileError
from workbench.readers.crc32c import masked_crc32c, masked_crc32c_each
from workbench.readers.event_files import read_events
from workbench.readers.event_frames import read_frames
from workbench.readers.kinds import FileContext
from workbench.readers.protobuf import BadMessage, fields

RECORD = "summary_events/events.out.events.summary.1795968108.0.vm_MS"
COLLECTOR = "summary_events/events.out.events.summary.1795968110.0.vm_MS"
LOSSES = [
    2.4374372959136963, 2.259584903717041, 2.1651039123535156, 2.2787528038024902,
    2.649231433868408, 2.5131986141204834, 2.5104870796203613, 3.514033317565918,
]  # fmt: skip


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def frame(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    check = struct.pack("<I", masked_crc32c(length))
    return length + check + payload + struct.pack("<I", masked_crc32c(payload))


def tensorboard_event(step: int, wall_time: float, scalars: dict[str, float]) -> bytes:
    """An event as TensorFlow's event.proto has it: wall_time 1, step 2, summary 5; value: tag 1, simple_value 2."""
    values = b"".join(
        message(1, message(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))
        for tag, value in scalars.items()
    )
    return varint(1 << 3 | 1) + struct.pack("<d", wall_time) + varint(2 << 3) + varint(step) + message(5, values)


def test_summary_record(data_samples):
    readings = read(data_samples / RECORD, "event_file", rank_id=3)
    steps, notes = readings["training_steps"]
    assert steps.loss.tolist() == LOSSES
    assert steps.step.tolist() == list(range(1, 9))
    assert steps.learning_rate.tolist() == [pytest.approx(0.1)] * 8
    assert steps.rank_id.eq(3).all()
    assert steps.loss_finite.all()
    assert steps.time_ns[0] == 1795968108484707000  # 1795968108.484707 s; the callback printed ...484169 before it
    assert "1 histogram" in notes_text(readings["training_steps"])
    assert len(notes) == 1
    assert "series" not in readings


def test_summary_collector_writes_the_last_step_twice(data_samples):
    steps = read(data_samples / COLLECTOR, "event_file")["training_steps"].table
    assert steps.step.tolist() == list(range(1, 9))
    assert steps.loss.tolist() == LOSSES


def test_tensorboard_scalars_of_mindformers(tmp_path):
    path = tmp_path / "events.out.tfevents.1700000000.host"
    events = [frame(b"\x09" + struct.pack("<d", 1.7e9) + message(3, b"brain.Event:2"))]
    for step in (1, 2, 3):
        tags = {
            "loss": 8.0 / step, "learning-rate": 1e-4 * step, "grad-norm": 2.5, "loss-scale": 1024.0,
            "iteration-time": 2000.0, "throughput": 4.0, "model-flops-throughput-per-npu": 150.0, "mtp-loss": 0.5,
        }  # fmt: skip
        events.append(frame(tensorboard_event(step, 1.7e9 + 2 * step, tags)))
        events.append(frame(tensorboard_event(step * 64, 1.7e9 + 2 * step, {"loss vs samples": 8.0 / step})))
    path.write_bytes(b"".join(events))
    readings = read(path, "event_file")
    steps = readings["training_steps"].table
    assert steps.loss.tolist() == [8.0, 4.0, pytest.approx(8 / 3)]
    assert steps.learning_rate[2] == pytest.approx(3e-4)
    assert steps.gradient_norm.tolist() == [2.5] * 3
    assert steps.loss_scale[0] == 1024
    assert steps.step_us.tolist() == [2e6] * 3  # 2000 ms: records are 2 s apart
    assert steps.samples_per_s[0] == 4
    assert steps.flops_per_s[0] == 150e12
    assert steps.step.tolist() == [1, 2, 3]
    series = readings["series"].table
    assert series[series.column == "mtp-loss"].value.tolist() == [0.5] * 3
    assert series[series.column == "step"].value.tolist() == [1, 2, 3]
    assert readings["training_steps"].notes == []


def test_iteration_time_in_seconds_as_megatron_writes_it(tmp_path):
    path = tmp_path / "events.out.tfevents.1"
    records = [tensorboard_event(s, 1.7e9 + 20 * s, {"iteration-time": 1.9, "lm loss": 3.0}) for s in (10, 20, 30)]
    path.write_bytes(b"".join(map(frame, records)))
    steps = read(path, "event_file")["training_steps"].table
    assert steps.step_us.tolist() == [pytest.approx(1.9e6)] * 3  # 20 s between records 10 steps apart: 2 s a step
    assert steps.loss.tolist() == [3.0] * 3


def test_loss_that_is_nan_is_marked_and_missing_loss_is_not(tmp_path):
    path = tmp_path / "events.out.tfevents.1"
    records = [
        tensorboard_event(1, 1.7e9, {"loss": float("nan")}),
        tensorboard_event(2, 1.7e9, {"loss": 1.0}),
        tensorboard_event(3, 1.7e9, {"lr": 0.1}),
    ]
    path.write_bytes(b"".join(map(frame, records)))
    steps = read(path, "event_file")["training_steps"].table
    assert steps.loss_finite[:2].tolist() == [False, True]
    assert steps.loss_finite.isna().tolist() == [False, False, True]


def test_torn_tail_is_a_note_and_costs_one_record(data_samples, tmp_path):
    data = (data_samples / RECORD).read_bytes()
    path = tmp_path / "events.out.events.summary.1.vm_MS"
    path.write_bytes(data[:-5])
    reading = read(path, "event_file")["training_steps"]
    assert reading.table.loss.tolist() == LOSSES[:-1]
    assert "incomplete" in notes_text(reading)


def test_flipped_bit_costs_one_record(data_samples, tmp_path):
    data = bytearray((data_samples / RECORD).read_bytes())
    data[80] ^= 1  # inside the payload of step 1
    path = tmp_path / "events.out.events.summary.1.vm_MS"
    path.write_bytes(bytes(data))
    reading = read(path, "event_file")["training_steps"]
    assert reading.table.step.tolist() == list(range(2, 9))
    assert "byte 44" in notes_text(reading)  # 28 + 16 bytes of the version record


@pytest.mark.parametrize("content", [b"", b"no event file at all, by its content", bytes(64)])
def test_no_event_record_at_all(tmp_path, content):
    path = tmp_path / "events.out.events.summary.1.vm_MS"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError):
        read_events(path, FileContext())


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_records_that_damage_does_not_touch_are_kept(payloads, data):
    whole = b"".join(map(frame, payloads))
    at = data.draw(st.integers(0, len(whole) - 1))
    removed = data.draw(st.integers(1, 20))
    frames = read_frames(whole[:at] + whole[at + removed :])
    start, untouched = 0, []
    for payload in payloads:
        end = start + len(payload) + 16
        if end <= at or start >= at + removed:
            untouched.append(payload)
        start = end
    assert [p for p in frames.payloads if p in untouched] == untouched


@given(st.lists(st.binary(min_size=0, max_size=20), max_size=40))
@settings(deadline=None)
def test_check_sums_of_many_equal_those_of_each(records):
    assert masked_crc32c_each(records).tolist() == [masked_crc32c(r) for r in records]


def test_check_sum_of_the_standard():
    crc = 0xE3069283  # CRC-32C of "123456789", RFC 3720
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == masked


def test_protobuf_message_that_breaks_off():
    with pytest.raises(BadMessage):
        list(fields(message(1, b"abc")[:-1]))
    assert list(fields(message(1, b"abc"))) == [(1, 2, b"abc")]


@pytest.mark.mindspore
def test_same_values_as_mindspores_own_classes(data_samples):
    summary_pb2 = pytest.importorskip("mindspore.train.summary_pb2")
    expected = []
    frames = read_frames((data_samples / COLLECTOR).read_bytes())
    for payload in frames.payloads:
        event = summary_pb2.Event()
        event.ParseFromString(payload)
        expected += [
            (event.step, v.scalar_value) for v in event.summary.value if v.WhichOneof("value") == "scalar_value"
        ]
    steps = read(data_samples / COLLECTOR, "event_file")["training_steps"].table
    ours = dict(zip(steps.step, steps.loss, strict=True))
    assert ours == dict(expected)
    assert isinstance(steps, pd.DataFrame)
    assert np.isfinite(steps.loss).all()
