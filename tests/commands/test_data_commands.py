"""`workbench data convert` and `workbench data health` print what they did and return the documented status."""

import json

import pytest

from workbench.cli import main
from workbench.run import open_run

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the hunter in the wood number {}"


def write_lines(path, records):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return str(path)


def test_health_prints_findings_and_keeps_them(tmp_path, capsys):
    records = [{"text": TEXT.format(n * 7919), "source": "web"} for n in range(60)] + ["oops"]
    path = write_lines(tmp_path / "a.jsonl", records * 2)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text('{"schema": 1, "run_id": "r"}')
    words = ["data", "health", path, "--tokenizer", "bytes", "--length", "50", "--no-near"]
    assert main([*words, "--run", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().out
    assert "repeats an earlier sample" in shown
    assert "A training length of 50 tokens cuts 100.0% of the samples" in shown
    assert len(open_run(tmp_path / "run", quiet=True).table("data_samples")) == 122
    assert main(["diagnose", str(tmp_path / "run"), "--json"]) == 1
    causes = {c["cause"] for c in json.loads(capsys.readouterr().out)["causes"]}
    assert {"duplicate_data", "truncated_samples", "dropped_samples"} <= causes


def test_health_says_none_where_nothing_was_dropped(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("One line of text.\nAnother one, longer.\n")
    main(["data", "health", str(tmp_path / "a.txt")])
    assert "Dropped:\nnone\n" in capsys.readouterr().out


def test_health_of_sound_data_is_silent(tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", [{"text": f"{n * 7919} is a number", "lang": "en"} for n in range(50)])
    assert main(["data", "health", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["findings"] == []
    assert found["health"][0]["samples"] == 50
    assert main(["data", "health", path]) == 0
    assert "Nothing found" in capsys.readouterr().out


def test_what_is_not_there_is_told(tmp_path, capsys):
    assert main(["data", "health", str(tmp_path / "none.jsonl")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.mindspore
def test_convert_says_what_became_of_the_samples(tmp_path, capsys):
    pytest.importorskip("mindspore")
    path = write_lines(tmp_path / "a.jsonl", [{"text": "a", "n": 1}, "oops", {"text": "b", "n": 2, "more": 3}])
    words = ["data", "convert", path, str(tmp_path / "out"), "--field", "text", "--field", "n:int64"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "2 rows from 3 samples, in 1 shard(s)" in shown
    assert "set aside: 1 samples" in shown
    assert "'more', which is no field, in 1 sample(s)" in shown
    assert main(words) == 0
    assert main([*words[:4], "--field", "text:words"]) == 2
    assert "no kind of field" in capsys.readouterr().err


def test_converting_names_what_it_cannot_use(tmp_path, capsys):
    source = tmp_path / "corpus"
    source.mkdir()
    (source / "good.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (source / "model.bin").write_bytes(bytes(range(256)))
    assert main(["data", "convert", str(source), str(tmp_path / "out")]) == 0
    assert "left out: 1 file(s) of other kinds, such as model.bin" in capsys.readouterr().out
    (tmp_path / "bad.jsonl").write_text("no object\n")
    assert main(["data", "convert", str(tmp_path / "bad.jsonl"), str(tmp_path / "other")]) == 2
    assert "bad.jsonl can be used: bad.jsonl, 1: " in capsys.readouterr().err
