"""Numbers that no rehearsal can be made with are told before anything is written."""

import pytest

from workbench.cli import main


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
