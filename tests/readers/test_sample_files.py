"""Data files -> samples: every form, what is set aside and why, and bad files."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UnknownContentError, UnknownParameterError, UnreadableFileError
from workbench.readers.sample_files import form_of, read_samples, sample_files


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def fields(path: Path, **options) -> list:
    return [s.fields for s in read_samples(path, **options)]


def problems(path: Path, **options) -> dict[int, str]:
    return {s.place: s.problem for s in read_samples(path, **options) if s.fields is None}


def test_the_same_samples_in_every_form(tmp_path):
    rows = [{"text": "aé", "n": "1"}, {"text": 'b "q", c', "n": "2"}]
    lines = "\n".join(json.dumps(r) for r in rows)
    forms = [
        write(tmp_path, "a.jsonl", lines + "\n\n"),
        write(tmp_path, "b.json", lines),
        write(tmp_path, "c.json", json.dumps(rows, indent=1)),
        write(tmp_path, "d.json", json.dumps({"version": [1, 2], "data": rows})),
        write(tmp_path, "e.csv", 'text,n\naé,1\n"b ""q"", c",2\n'),
        write(tmp_path, "f.tsv", 'text\tn\naé\t1\n"b ""q"", c"\t2\n'),
        write(tmp_path, "g.jsonl.gz", gzip.compress(lines.encode())),
        write(tmp_path, "h.jsonl", lines.encode("utf-16")),
        write(tmp_path, "i.jsonl", b"\xef\xbb\xbf" + lines.encode()),
    ]
    for path in forms:
        assert fields(path) == rows, path.name
        assert fields(path, skip=1) == rows[1:], path.name
    assert sample_files(tmp_path) == forms


def test_lines_that_cannot_be_used_are_handed_over_with_their_reason(tmp_path):
    path = write(
        tmp_path,
        "bad.jsonl",
        b'{"a": 1}\n{"a": \n[1]\n"word"\n3\nnull\n\n{"a": "\xb2\xbb"}\n{"a": NaN}\n'
        + b'{"a": "'
        + b"x" * 100
        + b'"}\n{"a": 2}',
    )
    found = problems(path, longest_bytes=50)
    assert found[2].startswith("not JSON: Expecting value")
    assert found[3] == "a JSON array, not an object"
    assert found[4] == "a JSON string, not an object"
    assert found[5] == "a JSON number, not an object"
    assert found[6] == "a JSON null, not an object"
    assert found[8].startswith("not in the file's encoding at character 8")
    assert found[10] == "the line is longer than 50 characters"
    assert sorted(found) == [2, 3, 4, 5, 6, 8, 10]
    assert [f["a"] for f in fields(path, longest_bytes=50) if f and f["a"] == f["a"]] == [1, 2]


def test_an_encoding_can_be_named(tmp_path):
    path = write(tmp_path, "zh.txt", "中文样本\n第二行\n".encode("gb18030"))
    assert sorted(problems(path)) == [1, 2]
    assert fields(path, encoding="gb18030") == [{"text": "中文样本"}, {"text": "第二行"}]
    with pytest.raises(UnknownParameterError, match="no encoding 'klingon'"):
        fields(path, encoding="klingon")


def test_deep_nesting_and_broken_arrays(tmp_path):
    deep = write(tmp_path, "deep.jsonl", '{"a": ' + "[" * 100_000 + "]" * 100_000 + '}\n{"a": 1}\n')
    assert problems(deep) == {1: "nested too deeply"}
    broken = write(tmp_path, "broken.json", '[{"a": 1}, 5, {"a": 2}, {"a": oops}, {"a": 3}]' + " " * 100_000)
    assert [s.fields for s in read_samples(broken) if s.fields] == [{"a": 1}, {"a": 2}]
    found = problems(broken, longest_bytes=1000)
    assert found[2] == "a JSON number, not an object"
    assert found[4].startswith("not JSON")
    assert found[4].endswith("what follows it in the array is lost")
    cut = write(tmp_path, "cut.json", '[{"a": 1}, {"a": "half')
    assert "the file ends inside the element" in problems(cut)[2]
    long = write(tmp_path, "long.json", json.dumps([{"a": "x" * 200}, {"a": "y"}]))
    assert problems(long, longest_bytes=100) == {1: "the element is longer than 100 characters"}


def test_csv_rows_of_another_width_and_bad_headers(tmp_path):
    path = write(tmp_path, "a.csv", "x;y\n1;2\n\n3\n4;5;6\n7;8\n")
    assert [f for f in fields(path) if f] == [{"x": "1", "y": "2"}, {"x": "7", "y": "8"}]
    assert problems(path) == {2: "1 cells, the header has 2 columns", 3: "3 cells, the header has 2 columns"}
    for header in ("x,,y\n1,2,3\n", "x,x\n1,2\n"):
        with pytest.raises(UnreadableFileError, match="no header of distinct names"):
            fields(write(tmp_path, "b.csv", header))
    huge = write(tmp_path, "huge.csv", 'x\n"' + "z" * 500 + '"\nok\n')
    assert [f for f in fields(huge, longest_bytes=100) if f] == [{"x": "ok"}]


def test_files_without_samples_say_so(tmp_path):
    with pytest.raises(UnreadableFileError, match="is empty: it holds no sample"):
        fields(write(tmp_path, "a.jsonl", b""))
    with pytest.raises(UnreadableFileError, match="without an array of objects"):
        fields(write(tmp_path, "a.json", '{"a":\n 1}'))
    with pytest.raises(UnreadableFileError, match="Neither the ending nor the first bytes"):
        fields(write(tmp_path, "a.bin", b"\x01\x02"))
    with pytest.raises(UnknownContentError, match="does not exist"):
        sample_files(tmp_path / "nowhere")
    (tmp_path / "none").mkdir()
    with pytest.raises(UnknownContentError, match="holds no data file"):
        sample_files(tmp_path / "none")
    with pytest.raises(UnknownParameterError, match="no form"):
        fields(write(tmp_path, "a.jsonl", "{}"), form="xml")


def test_a_cut_archive_gives_what_is_intact(tmp_path):
    rows = "\n".join(json.dumps({"n": n, "text": f"{n * 7919 % 10007}"}) for n in range(50_000))
    path = write(tmp_path, "a.jsonl.gz", gzip.compress(rows.encode())[:-100_000])
    found = list(read_samples(path))
    good = [s.fields["n"] for s in found if s.fields]
    assert good == list(range(len(good)))
    assert 1000 < len(good) < 50_000
    assert "cut off or damaged" in found[-1].problem


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=4), st.text(max_size=300) | st.integers()), min_size=1))
def test_json_arrays_read_like_json(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("json") / "a.json"
    rows = [json.loads(json.dumps(r)) for r in rows]
    path.write_text(json.dumps(rows))
    assert [s.fields for s in read_samples(path)] == rows


def test_the_form_is_seen(tmp_path):
    assert form_of(write(tmp_path, "a.json", '{"a": 1}\n{"a": 2}')) == "jsonl"
    assert form_of(write(tmp_path, "b.json", '{"a": [{"b": 1}]}')) == "json"
    assert form_of(write(tmp_path, "c.txt", "[1]")) == "text"


@given(st.binary(min_size=1, max_size=400), st.sampled_from(["jsonl", "json", "csv", "text"]), st.booleans())
@settings(max_examples=150)
def test_any_bytes_give_samples_or_a_clear_error(tmp_path_factory, data, form, packed):
    path = tmp_path_factory.mktemp("any") / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(data)[: len(data) + 15] if packed else data)
    try:
        found = list(read_samples(path, form=form, longest_bytes=64))
    except UnreadableFileError:  # carries its fix; any other error fails the test
        found = []
    assert all((s.fields is None) == bool(s.problem) for s in found)
