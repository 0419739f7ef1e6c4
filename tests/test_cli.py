"""The command line: exit status, messages without traceback, help with examples."""

import json
import sys

import pytest

from workbench import cli
from workbench.cli import COMMANDS, build_parser, main
from workbench.commands.command import Command
from workbench.errors import WorkbenchError


@pytest.fixture
def recorded(tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/rank_0.jsonl").write_text(json.dumps({"step": 1, "loss": 2.0}) + "\n")
    (tmp_path / "run.json").write_text('{"run_id": "demo"}')
    return tmp_path


def test_import_says_what_is_there_and_where(recorded, capsys):
    assert main(["import", str(recorded)]) == 0
    printed = capsys.readouterr().out
    assert "Run demo" in printed
    assert str(recorded / ".workbench") in printed
    assert printed.endswith(f"Next: workbench diagnose {recorded}  or  workbench open {recorded}\n")


def test_tables_lists_rows_and_shows_one(recorded, capsys):
    assert main(["tables", str(recorded)]) == 0
    assert "training_steps                  1 rows" in capsys.readouterr().out
    assert main(["tables", str(recorded), "training_steps"]) == 0
    assert "loss" in capsys.readouterr().out


def test_no_command_lists_the_commands(capsys):
    assert main([]) == 2
    assert "diagnose" in capsys.readouterr().err


def test_watching_what_does_not_exist_promises_nothing(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "nowhere")]) == 2
    printed = capsys.readouterr()
    assert "is not a directory" in printed.err
    assert "Watching" not in printed.out


def test_a_problem_is_printed_with_its_fix_and_without_traceback(tmp_path, capsys):
    assert main(["import", str(tmp_path / "nowhere")]) == 2
    printed = capsys.readouterr().err
    assert printed.endswith("does not exist.\nFix: check the path\n")
    assert "Traceback" not in printed


@pytest.mark.parametrize(("raised", "status"), [(KeyboardInterrupt(), 130), (WorkbenchError("a", fix="b"), 2)])
def test_exit_status(monkeypatch, raised, status):
    def run(_arguments):
        raise raised

    command = Command(name="stop", summary="stop", examples=(), add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(cli, "build_parser", lambda: build_parser([command]))
    assert main(["stop"]) == status


def test_an_interruption_before_the_command_has_begun(monkeypatch, capsys):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", stop)
    assert main(["stop"]) == 130
    assert "Interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["data", "tune", "module:build"], ["data", "convert", "a.jsonl", "b"]], ids=lambda w: w[1]
)
def test_what_needs_mindspore_says_so(monkeypatch, capsys, words):
    for name in [n for n in sys.modules if n.startswith("workbench.probes.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ["mindspore", *(n for n in sys.modules if n.startswith("mindspore."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("workbench data needs MindSpore, which is not installed.\nFix: pip install")
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["watch", "report", "alert"])
def test_reports_that_cannot_be_written_are_a_problem_with_a_fix(recorded, capsys, command):
    (recorded / "checkpoints").mkdir()
    (recorded / "checkpoints/a-1_1.ckpt").write_bytes(b"x")
    (recorded / "file").write_text("")
    more = ["--test"] if command == "alert" else ["--settle", "0"]
    assert main([command, str(recorded), "--reports", str(recorded / "file/reports"), *more]) == 2
    printed = capsys.readouterr().err
    assert "Not a directory.\nFix: check the path" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_has_help_with_an_example_that_parses(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command.name, "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert command.examples
    for example in command.examples:
        assert example in printed
        words = example.split()
        assert words[0] == "workbench"
        assert build_parser().parse_args(words[1:]).command == command.name
