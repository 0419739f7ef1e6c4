"""Timelines: exact times, names of layers, every generation of writers, damage at any byte."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UnreadableFileError
from workbench.readers.kinds import FileContext
from workbench.readers.trace import read_trace, sniff_trace
from workbench.readers.trace_events import Event, Tail, read_chunks, salvage
from workbench.readers.trace_times import to_ns

MINDSPORE = [
    {"ph": "X", "name": "ProfilerStep#5", "pid": 1, "tid": 7, "ts": "1795955116000000.001", "dur": "10.5", "args": {}},
    {"ph": "X", "name": "MatMul", "cat": "k", "pid": 31, "tid": 2, "ts": "1795955116000001.25", "dur": 2.125},
    {"ph": "s", "name": "HostToDevice", "pid": 1, "tid": 7, "ts": "1795955116000001.000", "id": "9"},
    {"ph": "C", "name": "HBM", "pid": 50, "ts": "1795955116000001.000", "args": {"value": 3}},
    {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "MindSpore"}},
    {"name": "process_name", "ph": "M", "pid": 31, "tid": 0, "args": {"name": "Ascend Hardware"}},
    {"name": "thread_name", "ph": "M", "pid": 31, "tid": 2, "args": {"name": "Stream 2"}},
]


def read(path: Path, content) -> tuple[pd.DataFrame, list]:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    reading = read_trace(path, FileContext(rank_id=4, window=1, root=path.parent))["trace_events"]
    return reading.table, reading.notes


def test_nineteen_digits_survive_and_layers_are_named(tmp_path):
    table, notes = read(tmp_path / "trace_view.json", MINDSPORE)
    assert notes == []
    assert table.start_ns.tolist() == [1795955116000000001, 1795955116000001250]
    assert table.duration_ns.tolist() == [10500, 2125]
    assert table.layer.tolist() == ["MindSpore", "Ascend Hardware"]  # although the names stand at the end
    assert table.track.tolist() == ["7", "Stream 2"]
    assert table.category.tolist() == [pd.NA, "k"]
    assert table.rank_id.tolist() == [4, 4]
    assert table.window.tolist() == [1, 1]
    assert str(table.start_ns.dtype) == "Int64"


def test_kineto_in_gzip_with_a_base_time(tmp_path):
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "x"}],
        "baseTimeNanoseconds": 1700000000000000000,
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5443842132906.548, "dur": 10},
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        ],
        "traceName": "/tmp/trace[1].json",
    }
    table, notes = read(tmp_path / "a.pt.trace.json.gz", gzip.compress(json.dumps(trace, indent=2).encode()))
    assert notes == []
    assert table.start_ns.tolist() == [1700000000000000000 + 5443842132906548]
    assert table.layer.tolist() == ["python"]


def test_absolute_times_that_are_numbers_keep_their_digits(tmp_path):
    text = b'[{"ph":"X","name":"a","ts":1736408883704643.213,"dur":1.5},{"ph":"X","name":"b","ts":1,"dur":1}]'
    table, _ = read(tmp_path / "trace_view.json", text)
    assert table.start_ns.tolist() == [1736408883704643213, 1000]  # as float64 it would end in .250


def test_mixed_types_and_labels_of_old_writers(tmp_path):
    old = [
        {"name": "Add-op0", "ph": "X", "tid": "1", "ts": 0.0, "dur": 346.0, "pid": 2},
        {"name": "Mul-op1", "ph": "X", "tid": "1", "ts": 475834.0001106262, "dur": 186.0, "pid": "2"},
        {"name": "process_labels", "ph": "M", "pid": 2, "args": {"labels": "Ascend Op"}},
    ]
    table, notes = read(tmp_path / "ascend_timeline_display_0.json", old)
    assert notes == []
    assert table.start_ns.tolist() == [0, 475834000]
    assert table.layer.tolist() == ["Ascend Op", "Ascend Op"]


def test_an_event_without_times_is_left_out_with_a_note(tmp_path):
    events = [
        {"ph": "X", "name": "a", "ts": "N/A", "dur": 1},
        {"ph": "X", "name": "b", "ts": 5},
        {"ph": "X", "name": "c", "ts": 5, "dur": -1},
        {"ph": "X", "name": "d", "ts": 5, "dur": 0},
        {"ph": "B", "name": "e", "ts": 5},
    ]
    table, notes = read(tmp_path / "trace_view.json", events)
    assert table.name.tolist() == ["d"]
    assert [n.problem.split(" ")[0] for n in notes] == ["3", "1"]
    assert "no usable phase, start or duration" in notes[0].problem
    assert "begin/end" in notes[1].problem


@pytest.mark.parametrize("content", [b"", b"{}", b'{"a": 1}', b"\x00" * 50, "中文".encode("gbk")])
def test_no_list_of_events_is_an_error(tmp_path, content):
    with pytest.raises(UnreadableFileError, match="no list of trace events"):
        read(tmp_path / "trace_view.json", content)


def test_a_trace_without_events_is_noted(tmp_path):
    for content in (b"[]", b'{"traceEvents": []}', b"["):
        table, notes = read(tmp_path / "trace_view.json", content)
        assert table.empty
        assert notes[-1].problem == "The trace holds no complete event."


def test_truncation_keeps_everything_intact_and_names_the_byte(tmp_path):
    whole = json.dumps(MINDSPORE[:2]).encode()
    first_ends, second_ends = whole.index(b", {"), len(whole) - 1
    for cut in range(2, len(whole)):
        table, notes = read(tmp_path / "trace_view.json", whole[:cut])
        assert len(table) == (cut >= first_ends) + (cut >= second_ends), cut
        broken = [n for n in notes if "breaks off" in n.problem]
        assert [n.where for n in broken] == [f"byte {cut}"], cut


def test_truncated_gzip_keeps_what_can_be_unpacked(tmp_path):
    events = [{"ph": "X", "name": f"op{i}", "ts": i, "dur": 1, "pid": 1, "tid": 1} for i in range(20000)]
    packed = gzip.compress(json.dumps(events).encode())
    table, notes = read(tmp_path / "t.json.gz", packed[: len(packed) // 2])
    assert 5000 < len(table) < 15000
    assert table.name.tolist() == [f"op{i}" for i in range(len(table))]
    assert "truncated" in notes[-1].problem


def test_two_gzip_members_are_one_trace(tmp_path):
    whole = json.dumps(MINDSPORE).encode()
    table, notes = read(tmp_path / "t.json.gz", gzip.compress(whole[:100]) + gzip.compress(whole[100:]))
    assert len(table) == 2
    assert notes == []


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_costs_only_the_events_it_touches(tmp_path_factory, data):
    """Law: overwriting a span of bytes loses at most the events that the span touches."""
    events = [
        {"ph": "X", "name": f"op{i}", "ts": 10 * i, "dur": 1, "args": {"deep": [{"x": 1}, {"y": 2}]}} for i in range(9)
    ]
    texts = [json.dumps(e).encode() for e in events]
    whole = b"[" + b", ".join(texts) + b"]"
    start = data.draw(st.integers(1, len(whole) - 2))
    damage = data.draw(st.binary(min_size=1, max_size=40))
    end = min(start + len(damage), len(whole) - 1)
    broken = whole[:start] + damage[: end - start] + whole[end:]
    at, intact = 1, []
    for number, text in enumerate(texts):
        if end <= at - 2 or start >= at + len(text) + 2:
            intact.append(f"op{number}")
        at += len(text) + 2
    table, notes = read(tmp_path_factory.getbasetemp() / "trace_view.json", broken)
    assert set(intact) <= set(table.name), (intact, list(table.name))
    assert len(table) == 9 or notes or is_json(broken)  # a changed letter inside a string is no visible damage


def is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def test_bare_nan_in_arguments_costs_nothing(tmp_path):
    text = (
        b'[{"ph":"X","name":"a","ts":1,"dur":1,"args":{"bandwidth": inf, "x": [NaN, -Infinity]}},'
        b'{"ph":"X","name":"b","ts":2,"dur":1}]'
    )
    table, notes = read(tmp_path / "trace_view.json", text)
    assert table.name.tolist() == ["a", "b"]
    assert notes == []


@given(
    names=st.lists(st.text(alphabet='a},{[]":\\ \n', max_size=12), min_size=1, max_size=30),
    size=st.integers(8, 200),
    wrapped=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
@settings(max_examples=150, deadline=None)
def test_chunks_never_lose_or_invent_an_event(tmp_path_factory, names, size, wrapped, indent):
    """Law: whatever the chunk size, the events are those of json.loads, in order."""
    events = [{"ph": "X", "name": n, "ts": i, "dur": 1, "args": {"l": [{}, {"a": n}]}} for i, n in enumerate(names)]
    path = tmp_path_factory.getbasetemp() / "chunks.json"
    path.write_text(json.dumps({"a": 1, "traceEvents": events, "z": "}]"} if wrapped else events, indent=indent))
    tail = Tail()
    with path.open("rb") as stream:
        found = [e for chunk in read_chunks(stream, tail, size) for e in chunk.events]
    assert [e.name for e in found] == names
    assert tail.closed


@given(
    st.lists(st.integers(-(10**18), 2 * 10**18), min_size=1, max_size=20), st.sampled_from(["text", "number", "mixed"])
)
def test_times_are_exact(ns, form):
    """Law: text of microseconds with three decimals gives back each nanosecond."""
    texts = [f"{'-' if n < 0 else ''}{abs(n) // 1000}.{abs(n) % 1000:03d}" for n in ns]
    if form == "number":  # where a float64 still tells nanoseconds apart
        ns = [n % 8_000_000_000_000_000 for n in ns]
        values = [float(f"{n // 1000}.{n % 1000:03d}") for n in ns]
    else:
        values = (
            texts if form == "text" else [n // 1000 if n % 1000 == 0 else t for n, t in zip(ns, texts, strict=True)]
        )
    times = to_ns(values)
    assert times.ns.tolist() == ns
    assert times.usable.all()
    assert times.exact


def test_unusable_times_are_marked():
    times = to_ns(["1.0005", "", None, "1e400", 10**30, True, "-2.5", float("nan")])
    assert times.usable.tolist() == [True, False, False, False, False, False, True, False]
    assert times.ns[0] == 1000
    assert times.ns[6] == -2500


def test_salvage_reports_offsets():
    text = b'{"ph":"X","name":"a"}, {"ph":"X","name":b}, {"ph":"X","name":"c"}'
    chunk, used = salvage(text, 100, is_last=True)
    assert chunk.events == [Event(ph="X", name="a"), Event(ph="X", name="c")]
    assert used == len(text)
    assert (chunk.damaged, chunk.first_damaged) == (1, 100 + text.index(b'{"ph":"X","name":b'))


@pytest.mark.parametrize(
    ("name", "head", "is_trace"),
    [
        ("trace_view.json", b"", True),
        ("x.json", b'[{"name": "a", "ph": "X"', True),
        ("x.json", b'\xef\xbb\xbf [ {"ph": "M"}]', True),
        ("x.json", b'{"schemaVersion": 1, "deviceProperties": [', True),
        ("x.json", b'[{"name": "a"}]', False),
        ("x.json", b'{"step0": {"collective": {}}}', False),
        ("x.gz", gzip.compress(b'{"traceEvents": []}', mtime=0), True),
        ("x.gz", b"\x1f\x8b broken", False),
    ],
)
def test_sniffing(name, head, is_trace):
    assert sniff_trace(Path(name), head) is is_trace


def test_kineto_sample(data_samples):
    """A real trace whose base time stands after the events."""
    path = next((data_samples / "kineto_cpu_only").glob("*.gz"))
    reading = read_trace(path, FileContext(rank_id=34))["trace_events"]
    table = reading.table.set_index(["name", "start_ns"])
    assert reading.notes == []
    assert len(table) == 16  # counted in the file
    base = 1719853884000000000
    first = table.loc[("gloo:all_reduce", base + 1212075548353304)]
    assert (first.duration_ns, first.layer, first.track) == (
        173209713,
        "pyper:trainer:8:2",
        "thread 3553 (pt_main_thread)",
    )
    span = table.loc[("PyTorch Profiler (0)", base + 1212075525586016)]
    assert (span.duration_ns, span.layer, span.track) == (1289526102, "Spans", "PyTorch Profiler")


def test_cpu_profile_sample(data_samples):
    """MindSpore 2.10 on a CPU: times as text, the only layers are CPU OP and Scope Layer."""
    path = next((data_samples / "cpu_profile").rglob("trace_view.json"))
    reading = read_trace(path, FileContext())["trace_events"]
    whole = [e for e in json.loads(path.read_text()) if e["ph"] == "X"]
    assert reading.notes == []
    assert len(reading.table) == len(whole)
    assert set(reading.table.layer) == {"CPU OP", "Scope Layer"}
    last = whole[-1]
    assert reading.table.start_ns.iloc[-1] == int(last["ts"].replace(".", ""))
    assert reading.table.duration_ns.iloc[-1] == int(last["dur"].replace(".", ""))


SAMPLES = {
    "Ascend-msinsight/data/pytorch/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json": (
        4384,
        ("aten::empty", "Python", 1736408883688177930, 145570),
    ),
    "Ascend-msprof-analyze/test/ut/advisor/timeline_advice/trace_view.json": (
        2212,
        ("aten::empty", "Python", 1704161511420306491, 13080),
    ),
    "2024-MindSpore-1-Code3/Sepformer/dataUnit/profiler/ascend_timeline_display_0.json": (
        3211,
        ("Add-op0", "Ascend Op", 0, 346000),
    ),
    "mindspore-ai-mindinsight/tests/utils/resource/profiler/gpu_timeline_display_0.json": (
        2,
        ("Default/InitDataSetQueue-op0", "0", 1600695893269618200, 303840),
    ),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_real_traces(shared_dir, sample):
    rows, first = SAMPLES[sample]
    reading = read_trace(shared_dir / "samples" / sample, FileContext())["trace_events"]
    assert reading.notes == []
    assert len(reading.table) == rows  # counted with json.load
    assert tuple(reading.table.loc[0, ["name", "layer", "start_ns", "duration_ns"]]) == first


@pytest.mark.parametrize("phase", [b"Q", b"\x80", b"", b"XX"])
def test_an_unknown_phase_is_noted(tmp_path, phase):
    good = b'{"ph": "X", "name": "a", "ts": 1, "dur": 1}'
    table, notes = read(tmp_path / "trace_view.json", b"[" + good + b", " + good.replace(b"X", phase) + b"]")
    assert list(table.name) == ["a"]
    assert "no usable phase" in notes[0].problem
