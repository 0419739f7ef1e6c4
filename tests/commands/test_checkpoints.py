import io
import json

import msgspec
import pandas as pd
import pytest

from tests.made_run import made_samples, made_steps, write_run
from workbench.cli import main
from workbench.reporting.archive import ReportRecord, reports_of


@pytest.fixture
def run(tmp_path):
    better = [0.0, 0.2, 0.1, 0.12, 0.1]
    samples = pd.concat([made_samples(f"c-1_{50 * (i + 1)}", 50 * (i + 1), better=b) for i, b in enumerate(better)])
    root = write_run(tmp_path / "run", made_steps(300), samples=samples)
    (root / "checkpoints").mkdir()
    for i in range(len(better)):
        (root / "checkpoints" / f"c-1_{50 * (i + 1)}.ckpt").write_bytes(b"x" * 1000)
    return root


def names(run):
    return sorted(p.stem for p in (run / "checkpoints").iterdir())


def call(run, tmp_path, *more):
    return main(["checkpoints", str(run), "--reports", str(tmp_path / "reports"), *more])


def test_it_is_a_dry_run_unless_asked(run, tmp_path, capsys):
    assert call(run, tmp_path) == 0
    text = capsys.readouterr().out
    assert "RECOMMENDED" in text
    assert "Nothing was removed. --delete would remove 1 file(s)" in text
    assert len(names(run)) == 5


def test_reasons_begin_at_one_place(run, tmp_path, capsys):
    call(run, tmp_path)
    ranking = capsys.readouterr().out.split("\n\n")[0].splitlines()
    head, *rows = [line for line in ranking if line.startswith(("checkpoint", "c-1_"))]
    place = head.index("why")
    assert len(rows) == 5
    assert all(row[place - 1] == " " and row[place] != " " for row in rows)
    assert all(row == row.rstrip() for row in rows)


@pytest.mark.parametrize(("answer", "left"), [("yes\n", 4), ("no\n", 5), ("", 5)])
def test_delete_asks_first(run, tmp_path, monkeypatch, capsys, answer, left):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert call(run, tmp_path, "--delete") == 0
    assert len(names(run)) == left
    assert ("c-1_150" in names(run)) == (left == 5)
    assert ("Removed 1 of 1" in capsys.readouterr().out) == (left == 4)


def test_what_a_report_or_a_baseline_refers_to_stays(run, tmp_path, monkeypatch, capsys):
    folder = reports_of(run, tmp_path / "reports").report("c-1_150")
    folder.mkdir(parents=True)
    record = ReportRecord(name="c-1_150", file="c-1_150.ckpt", step=150, status="complete", size_bytes=1, mtime_ns=1)
    (folder / "report.json").write_bytes(msgspec.json.encode(record))
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n" * 3))
    call(run, tmp_path, "--delete")
    assert "has a report" in capsys.readouterr().out
    assert len(names(run)) == 5
    baseline = tmp_path / "base.jsonl"
    baseline.write_text(json.dumps({"metric": "loss", "checkpoint": "c-1_150.ckpt"}) + "\n")
    call(run, tmp_path, "--delete", "--release-reported", "--baselines", str(baseline))
    assert "named in base.jsonl" in capsys.readouterr().out
    assert len(names(run)) == 5
    call(run, tmp_path, "--delete", "--release-reported")
    assert len(names(run)) == 4


def test_a_baseline_that_is_not_there_is_an_error(run, tmp_path, capsys):
    assert call(run, tmp_path, "--baselines", str(tmp_path / "none.jsonl")) == 2
    assert "no baseline" in capsys.readouterr().err


def test_without_evaluation_all_is_kept(tmp_path, capsys):
    root = write_run(tmp_path / "bare", made_steps(50))
    assert call(root, tmp_path) == 0
    (root / "checkpoints").mkdir()
    (root / "checkpoints" / "c-1_10.ckpt").write_bytes(b"x")
    assert call(root, tmp_path) == 0
    assert "All are kept" in capsys.readouterr().out


def test_evaluated_checkpoints_whose_files_are_gone_are_named(run, tmp_path, capsys):
    (run / "checkpoints" / "c-1_100.ckpt").unlink()  # the best one
    assert call(run, tmp_path) == 0
    text = capsys.readouterr().out
    assert "file is gone or damaged: c-1_100." in text
    assert "Of those that are there, c-1_200 has the best score." in text
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    assert call(run, tmp_path) == 0
    text = capsys.readouterr().out
    assert "no complete checkpoint file" in text
    assert "gone or damaged: c-1_50, c-1_100, c-1_150, c-1_200, c-1_250." in text
