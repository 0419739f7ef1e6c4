"""Numbers that no rehearsal can be made with are told before anything is written."""

import os
import sys
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.commands import rehearsing


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--steps", "0"], "--steps 0 is no number to train with.\nFix: give 1 or more\n"),
        (["--checkpoints", "-2"], "--checkpoints -2 is no number"),
        (["--context-length", "0"], "--context-length 0 is no number"),
        (["--steps", "1"], "1 step(s) cannot give 5 checkpoints.\nFix: give --checkpoints 1, or more --steps\n"),
    ],
)
def test_impossible_numbers_are_a_problem_with_a_fix(tmp_path, capsys, words, problem):
    assert main(["rehearse", str(tmp_path / "run"), "--reports", str(tmp_path / "reports"), *words]) == 2
    assert problem in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("found", "program"), [("/usr/bin/workbench", "workbench"), (None, "bin/workbench")])
def test_the_last_line_can_be_typed_where_no_environment_is_active(monkeypatch, tmp_path, found, program):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(Path(os.getcwd()) / "bin/python"))
    monkeypatch.setattr(rehearsing.shutil, "which", lambda _name: found)
    assert rehearsing._program() == program
