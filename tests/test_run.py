"""Opening runs: what is found, what is missing, queries, re-opening."""

import json
import os

import pandas as pd
import pytest

import workbench as wb
from workbench.errors import MissingTableError, UnknownContentError, UnknownParameterError


@pytest.fixture
def recorded(tmp_path):
    """A run of two ranks with three steps each."""
    root = tmp_path / "demo"
    (root / "metrics").mkdir(parents=True)
    (root / "run.json").write_text(json.dumps({"schema": 1, "run_id": "demo-1", "config": {"lr": 0.1}}))
    for rank in (0, 1):
        records = [{"step": s, "loss": 4.0 / s, "step_us": 100.0 * (rank + 1)} for s in (1, 2, 3)]
        (root / f"metrics/rank_{rank}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return root


def test_a_recorded_run_opens(recorded):
    run = wb.open_run(recorded, quiet=True)
    assert run.is_ours
    assert run.run_id == "demo-1"
    assert run.info["config"] == {"lr": 0.1}
    assert run.ranks == [0, 1]
    assert run.tables == ["training_steps", "settings"]
    steps = run.table("training_steps")
    assert steps.rank_id.tolist() == [0, 0, 0, 1, 1, 1]
    assert steps.loss.tolist() == [4.0, 2.0, 4.0 / 3] * 2
    assert steps.step.dtype == "int64"
    assert steps.time_ns.dtype == "Int64"
    assert run.table("training_steps", ranks=[1]).step_us.tolist() == [200.0] * 3
    assert run.sources.kind.tolist().count("run_metrics") == 2


def test_a_file_name_that_is_not_utf8_is_shown_escaped(tmp_path):
    name = os.fsdecode(b"\xff\xfe.csv")
    try:
        (tmp_path / name).write_text("step,loss\n1,2.0\n2,1.0\n")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    assert wb.open_run(tmp_path, quiet=True).sources.file.tolist() == [r"\udcff\udcfe.csv"]
    assert wb.diagnose(tmp_path).exit_status == 0


def test_sql_sees_the_tables(recorded):
    run = wb.open_run(recorded, quiet=True)
    result = run.sql("SELECT rank_id, sum(step_us) AS total_us FROM training_steps GROUP BY rank_id ORDER BY rank_id")
    assert result.total_us.tolist() == [300.0, 600.0]
    with pytest.raises(UnknownParameterError, match="Fix: use the tables"):
        run.sql("SELECT nothing FROM training_steps")
    with pytest.raises(MissingTableError):
        run.sql("SELECT * FROM kernels")


@pytest.mark.parametrize("statement", ["", " -- nothing", "SELEC 1", "SELECT * FROM nothing"])
def test_a_wrong_query_lists_the_tables(recorded, statement):
    with pytest.raises(UnknownParameterError, match=r"use the tables \['settings', 'training_steps'\]"):
        wb.open_run(recorded, quiet=True).sql(statement)


def test_ranks_that_the_run_lacks_are_not_an_empty_table(recorded):
    run = wb.open_run(recorded, quiet=True)
    with pytest.raises(UnknownParameterError, match=r"no rank 8, 9\.\nFix: use ranks of \[0, 1\]"):
        run.table("training_steps", ranks=[8, 9])
    assert run.table("training_steps", ranks=[1, 9]).rank_id.tolist() == [1, 1, 1]


def test_empty_and_packed_files_are_called_so(tmp_path):
    (tmp_path / "worker_0.log").write_text("")
    (tmp_path / "worker_1.log.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(UnknownContentError, match=r"'worker_0.log' \(empty\), 'worker_1.log.gz' \(packed: unpack it\)"):
        wb.open_run(tmp_path, quiet=True)


def test_sql_and_table_agree_where_two_kinds_of_files_tell_of_one_thing(data_samples):
    run = wb.open_run(data_samples / "data_pipeline_starved", quiet=True)
    assert run.count("data_ops") > len(run.table("data_ops"))
    assert run.sql("SELECT count(*) AS n FROM data_ops").n[0] == len(run.table("data_ops"))


def test_a_missing_table_says_how_to_collect_it(recorded):
    run = wb.open_run(recorded, quiet=True)
    with pytest.raises(MissingTableError, match="Fix: profile at Level1"):
        run.table("collectives")
    with pytest.raises(UnknownParameterError, match="no table 'colectives'"):
        run.table("colectives")
    missing = {m["table"]: m for m in run.coverage()["missing"]}
    assert "late ranks" in missing["collectives"]["costs"]
    assert "Level1" in missing["collectives"]["collect_with"]
    assert run.coverage()["ranks"] == [0, 1]
    assert run.coverage()["steps"] == [1, 3]


def test_opening_prints_what_was_found(recorded, capsys):
    wb.open_run(recorded)
    printed = capsys.readouterr().out
    assert "Run demo-1" in printed
    assert "ranks 0-1" not in printed  # rank 0 has run.json, too
    assert "rank 1: run_metrics" in printed
    assert "steps 1 to 3" in printed
    wb.open_run(recorded, quiet=True)
    assert capsys.readouterr().out == ""


def test_a_run_without_metrics_opens_and_says_so(recorded):
    for path in (recorded / "metrics").iterdir():
        path.unlink()
    run = wb.open_run(recorded, quiet=True)
    assert run.run_id == "demo-1"
    with pytest.raises(MissingTableError, match="Recorder"):
        run.table("training_steps")


def test_a_growing_file_is_read_again(recorded):
    assert len(wb.open_run(recorded, quiet=True).table("training_steps")) == 6
    with (recorded / "metrics/rank_1.jsonl").open("a") as f:
        f.write('{"step": 4, "loss": 1.0}\n')
    assert len(wb.open_run(recorded, quiet=True).table("training_steps")) == 7


def test_an_empty_metrics_file_is_noted(recorded):
    (recorded / "metrics/rank_0.jsonl").write_text("")
    run = wb.open_run(recorded, quiet=True)
    assert [(n.file, n.problem) for n in run.notes] == [("metrics/rank_0.jsonl", "No intact record.")]


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\x00\x01")])
def test_nothing_known_is_an_error_with_a_fix(tmp_path, make):
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(UnknownContentError, match="Fix: "):
        wb.open_run(path, quiet=True)


@pytest.mark.parametrize("name", ["loop", "x" * 5000, "a\0b", "file/inside"])
def test_a_path_that_cannot_be_opened_is_an_error_with_a_fix(tmp_path, name):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    with pytest.raises(UnknownContentError, match="cannot be opened: "):
        wb.open_run(tmp_path / name, quiet=True)


def test_a_forbidden_directory_is_an_error_with_a_fix(recorded, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    is_file = type(recorded).is_file
    monkeypatch.setattr("workbench.readers.discovery.os.scandir", refuse)
    monkeypatch.setattr("pathlib.Path.is_file", lambda p: refuse(p) if p.parent == recorded else is_file(p))
    monkeypatch.setattr("os.path.isfile", lambda _path: False)  # what it says of a file in such a directory
    with pytest.raises(UnknownContentError, match="Permission denied"):
        wb.open_run(recorded, quiet=True)


def test_names_cannot_break_the_page(recorded):
    (recorded / "metrics/rank_0.jsonl").write_text("")
    odd = recorded.with_name("a<script>\n'\"b")
    recorded.rename(odd)
    (odd / "run.json").unlink()
    run = wb.open_run(odd, quiet=True)
    assert "<script>" not in run._repr_html_()
    assert "\\n" in repr(run).splitlines()[0]
    assert isinstance(run.table("training_steps"), pd.DataFrame)


def test_public_names_load_on_first_use():
    assert wb.open_run.__module__ == "workbench.run"


def test_an_open_run_survives_a_change_of_folder(recorded, monkeypatch, tmp_path):
    monkeypatch.chdir(recorded.parent)
    run = wb.open_run(recorded.name, quiet=True)
    monkeypatch.chdir("/")
    assert len(run.table("training_steps")) == 6
    assert len(run.sql("SELECT * FROM training_steps")) == 6


def test_a_csv_that_nothing_knows_points_to_the_list_of_columns(tmp_path):
    (tmp_path / "a.csv").write_text("foo,bar\n1,2\n")
    with pytest.raises(UnknownContentError) as raised:
        wb.open_run(tmp_path, quiet=True)
    assert "docs/csv_columns.md" in raised.value.fix


def test_a_run_that_is_not_read_at_once_has_the_same_tables(data_samples, tmp_path, monkeypatch):
    found = {}
    for eager in (True, False):
        monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / str(eager)))
        run = wb.open_run(data_samples / "simulated_cluster", quiet=True, eager=eager)
        assert bool(list((tmp_path / str(eager)).rglob("*.parquet"))) == eager
        found[eager] = {name: run.table(name) for name in run.tables if run.has(name)}
        assert run.ranks == [0, 1, 2, 3]
    assert set(found[True]) == set(found[False])
    for name, table in found[True].items():
        pd.testing.assert_frame_equal(table, found[False][name])
