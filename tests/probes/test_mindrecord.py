"""Conversion to MindRecord: what was there is written, also after kills; what cannot be written is set aside."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import OutputWriteError, UnknownParameterError, UnreadableFileError
from workbench.probes.conversion_state import only_one, read_conversion
from workbench.probes.mindrecord_schema import fields_from_words

ds = pytest.importorskip("mindspore.dataset")
mindrecord = pytest.importorskip("workbench.probes.mindrecord")
convert_to_mindrecord, mindrecord_files = mindrecord.convert_to_mindrecord, mindrecord.mindrecord_files
read_mindrecord = mindrecord.read_mindrecord
pytestmark = pytest.mark.mindspore
SCRIPT = Path(__file__).with_name("killed_conversion.py")


def rows_of(output: Path) -> list[dict]:
    dataset = ds.MindDataset(mindrecord_files(output), shuffle=False)
    return list(dataset.create_dict_iterator(num_epochs=1, output_numpy=True))


def convert(source: Path, output: Path, **options):
    return convert_to_mindrecord(source, output, show_progress=False, **options)


def write_lines(path: Path, records: list) -> Path:
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records))
    return path


def test_what_is_read_back_is_what_was_there(tmp_path):
    records = [
        {"text": f"sample {n} é", "n": n, "x": n / 4, "ids": list(range(n % 5 + 1)), "my key": "k"} for n in range(300)
    ]
    state = convert(write_lines(tmp_path / "a.jsonl", records), tmp_path / "out", shard_bytes=4000)
    assert [(f.name, f.kind) for f in state.fields] == [
        ("text", "string"), ("n", "int64"), ("x", "float64"), ("ids", "int64 array"), ("my_key", "string"),
    ]  # fmt: skip
    rows = rows_of(tmp_path / "out")
    assert [int(r["n"]) for r in rows] == list(range(300))
    for row, record in zip(rows, records, strict=True):
        assert str(row["text"]) == record["text"]
        assert float(row["x"]) == record["x"]
        assert row["ids"].tolist() == record["ids"]
    assert sum(s.rows for s in state.shards) == state.rows_written == 300
    direct = [r for name in mindrecord_files(tmp_path / "out") for r in read_mindrecord(name)]
    assert [r["n"] for r in direct] == list(range(300))


def test_kill_9_loses_and_repeats_nothing(tmp_path):
    records = [{"n": n, "text": "x" * 100} if n % 50 else f'{{"n": {n}, "te\n' for n in range(20_000)]
    source = write_lines(tmp_path / "a.jsonl", records)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(source), str(tmp_path / "out"), "3", "7", "12"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "finished", done.stdout + done.stderr[-2000:]
    assert "killed 3" in done.stdout
    shards_at_kills = [int(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("killed")]
    state = read_conversion(tmp_path / "out")
    assert 0 < max(shards_at_kills) < len(state.shards), "the kills must hit a conversion at work"
    numbers = [int(r["n"]) for r in rows_of(tmp_path / "out")]
    assert numbers == [n for n in range(20_000) if n % 50]
    aside = [json.loads(line)["place"] for line in (tmp_path / "out/set_aside.jsonl").read_text().splitlines()]
    assert aside == [n + 1 for n in range(0, 20_000, 50)]
    assert (state.samples_read, state.samples_set_aside) == (20_000, 400)
    assert not list((tmp_path / "out").glob("**/.partial"))


def test_samples_that_do_not_fit_are_set_aside_with_their_reason(tmp_path):
    good = [{"text": "a", "n": 1, "ids": [1]}] * 30
    bad = [
        {"text": "a", "ids": [1]},
        {"text": "a", "n": "many", "ids": [1]},
        {"text": "a", "n": 2**70, "ids": [1]},
        {"text": "a", "n": 1.5, "ids": [1]},
        {"text": "a", "n": 1, "ids": []},
        {"text": "a", "n": 1, "ids": ["x"]},
        {"text": "\ud800", "n": 1, "ids": [1]},
        {"text": "a\u0000" * 2_000_000, "n": 1, "ids": [1]},
        {"text": "a", "n": 1, "ids": [1], "new": 1},
    ]
    source = write_lines(tmp_path / "a.jsonl", [*good, *bad, "not json\n"])
    fields = fields_from_words(["text", "n:int64", "ids:int64-array"])
    state = convert(source, tmp_path / "out", fields=fields)
    reasons = [json.loads(line) for line in (tmp_path / "out/set_aside.jsonl").read_text().splitlines()]
    assert [r["place"] for r in reasons] == [*range(31, 39), 40]
    assert [r["reason"].split(",")[0] for r in reasons] == [
        "field 'n' is missing",
        "field 'n' is 'many'",
        f"field 'n' is {2**70}",
        "field 'n' is 1.5",
        "field 'ids' is an empty list",
        "field 'ids' is ['x']",
        "field 'text' holds half of a character (a lone surrogate)",
        "the line is longer than 8",
        "not JSON: Expecting value: line 1 column 1 (char 0)",
    ]
    assert (state.samples_read, state.rows_written, state.unknown_keys) == (40, 31, {"new": 1})
    assert len(rows_of(tmp_path / "out")) == 31


def test_csv_text_and_folders(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("name,count,zip,share\nä,1,01234,0.5\nb,2,99999,2\n")
    state = convert(folder, tmp_path / "csv")
    assert {f.name: f.kind for f in state.fields} == {
        "name": "string", "count": "int64", "zip": "string", "share": "float64",
    }  # fmt: skip
    assert [str(r["zip"]) for r in rows_of(tmp_path / "csv")] == ["01234", "99999"]
    (folder / "a.csv").unlink()
    (folder / "b.txt").write_text("one\n\ntwo\n")
    (folder / "c.txt").write_text("three\n")
    convert(folder, tmp_path / "text")
    assert [str(r["text"]) for r in rows_of(tmp_path / "text")] == ["one", "two", "three"]


def test_a_transform_makes_several_rows_or_none(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"text": "abcdef"}, {"text": ""}, {"text": "xy"}])

    def windows(sample):
        codes = np.frombuffer(sample["text"].encode(), np.uint8).astype(np.int32)
        return [{"tokens": codes[i : i + 4]} for i in range(0, len(codes), 4)] or None

    state = convert(source, tmp_path / "out", transform=windows)
    assert [r["tokens"].tolist() for r in rows_of(tmp_path / "out")] == [[97, 98, 99, 100], [101, 102], [120, 121]]
    assert state.fields[0].kind == "int32 array"
    assert (state.samples_read, state.samples_left_out) == (3, 1)


def test_rows_beyond_a_page_of_mindrecord_are_set_aside(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"n": 1}, {"n": 3_000_000}, {"n": 20_000_000}])
    state = convert(source, tmp_path / "out", transform=lambda s: {"text": "\x01" * s["n"]})
    assert (state.rows_written, state.samples_set_aside) == (1, 2)  # as JSON, \u0001 takes six bytes
    assert "MindRecord's pages hold up to" in (tmp_path / "out/set_aside.jsonl").read_text()
    assert len(rows_of(tmp_path / "out")) == 1


def test_numbers_that_some_samples_lack_become_text(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"n": 1, "t": "x"}, {"n": None}, {"n": 3, "t": "y"}])
    convert(source, tmp_path / "out")
    assert Counter(str(r["n"]) for r in rows_of(tmp_path / "out")) == {"1": 1, "": 1, "3": 1}


def test_another_job_never_goes_on_with_these_shards(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"n": 1}])
    first = convert(source, tmp_path / "out")
    assert convert(source, tmp_path / "out") == first  # finished: nothing to do
    source.write_text('{"n": 2}\n{"n": 3}\n')
    with pytest.raises(UnknownParameterError, match="other files or options"):
        convert(source, tmp_path / "out")
    (tmp_path / "out/conversion.json").write_text("{")
    with pytest.raises(UnreadableFileError, match="is damaged"):
        convert(source, tmp_path / "out")
    (tmp_path / "out/conversion.json").unlink()
    with pytest.raises(UnknownParameterError, match="of another origin"):
        convert(source, tmp_path / "out")
    with pytest.raises(UnknownParameterError, match="no finished conversion"):
        mindrecord_files(tmp_path / "out")
    with pytest.raises(UnreadableFileError, match="cannot be read as MindRecord"):
        list(read_mindrecord(source))


def test_a_full_disk_is_told_and_the_next_call_goes_on(tmp_path, monkeypatch):
    source = write_lines(tmp_path / "a.jsonl", [{"n": n} for n in range(50)])

    def full(*_):
        raise RuntimeError("Syntax error.\n[ERROR] No free disk to be used while writing\n- C++ Call Stack")

    with monkeypatch.context() as patch:
        patch.setattr(mindrecord.FileWriter, "write_raw_data", full)
        with pytest.raises(OutputWriteError, match="No free disk to be used while writing\nFix: free space"):
            convert(source, tmp_path / "out")
    assert convert(source, tmp_path / "out").rows_written == 50
    assert len(rows_of(tmp_path / "out")) == 50


def test_files_of_different_schemas_share_one(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "a.jsonl", [{"text": "a", "score": 1}] * 3)
    write_lines(folder / "b.jsonl", [{"text": "b", "score": 0.5, "url": "u"}] * 3)
    write_lines(folder / "c.jsonl", [{"text": ["c"], "score": 2}])
    state = convert(folder, tmp_path / "out")
    assert {f.name: (f.kind, f.required) for f in state.fields} == {
        "text": ("string", True), "score": ("float64", True), "url": ("string", False),
    }  # fmt: skip
    rows = rows_of(tmp_path / "out")
    assert [(str(r["text"]), float(r["score"]), str(r["url"])) for r in rows] == [
        *[("a", 1.0, "")] * 3, *[("b", 0.5, "u")] * 3, ('["c"]', 2.0, ""),
    ]  # fmt: skip


def test_two_conversions_into_one_folder_are_refused(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"n": 1}])
    with only_one(tmp_path), pytest.raises(UnknownParameterError, match="Another process is converting"):
        convert(source, tmp_path)


def test_data_without_any_usable_sample(tmp_path):
    with pytest.raises(UnreadableFileError, match=r"a\.jsonl can be used: a\.jsonl, 1: not JSON"):
        convert(write_lines(tmp_path / "a.jsonl", ["oops\n", "oops\n"]), tmp_path / "out")


def any_value(pick):
    letters = 'Aé中😀\n"\\'
    makers = (
        lambda: pick.randint(-9, 9), lambda: pick.random() * 1e3, lambda: True, lambda: None, lambda: {"a": 1},
        lambda: "".join(pick.choices(letters, k=pick.randrange(9))), lambda: [1, 2.5],
        lambda: [pick.randint(0, 5) for _ in range(pick.randrange(4))],
    )  # fmt: skip
    return pick.choice(makers)()


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_of_all_kinds_come_back_or_are_set_aside(tmp_path, seed):
    pick = random.Random(seed)
    usual = {key: any_value(pick) for key in ("a", "b c", "d")}
    records = [
        {"n": n} | {k: v if pick.random() < 0.7 else any_value(pick) for k, v in usual.items() if pick.random() < 0.95}
        for n in range(40)
    ]
    state = convert(write_lines(tmp_path / "a.jsonl", records), tmp_path / "out")
    aside = [json.loads(line)["place"] for line in (tmp_path / "out/set_aside.jsonl").read_text().splitlines()]
    kept = [r for n, r in enumerate(records, 1) if n not in aside]
    rows = rows_of(tmp_path / "out")
    assert [int(r["n"]) for r in rows] == [r["n"] for r in kept]
    for row, record in zip(rows, kept, strict=True):
        for field in state.fields:
            value, read = record.get(field.source), row[field.name].tolist()
            if field.kind == "string":
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                assert read == ("" if value is None else text)
            else:
                assert read == value
