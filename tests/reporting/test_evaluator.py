"""How many threads an evaluation takes reaches its process."""

import os
import sys

import pytest
from reporting_parts import EVALUATOR as STAND_IN
from reporting_parts import FINDINGS_CELL, make_notebook, make_run

from tests.reporting.test_watch import TESTS
from workbench.cli import main
from workbench.probes import evaluate
from workbench.reporting.evaluator import EVALUATOR, evaluator_call


def test_without_a_number_the_evaluator_decides(tmp_path):
    words, variables = evaluator_call(EVALUATOR, tmp_path, tmp_path / "m-1_4.ckpt", step=4, threads=None)
    assert words == [sys.executable, "-m", EVALUATOR, str(tmp_path), "--checkpoint", str(tmp_path / "m-1_4.ckpt"),
                     "--step", "4"]  # fmt: skip
    assert variables == {}


def test_a_number_reaches_our_evaluator_and_one_of_others(tmp_path):
    words, variables = evaluator_call(EVALUATOR, tmp_path, tmp_path / "m.ckpt", step=None, threads=3)
    assert words[-4:] == ["--checkpoint", str(tmp_path / "m.ckpt"), "--threads", "3"]
    other, same = evaluator_call("my_module", tmp_path, tmp_path / "m.ckpt", step=None, threads=3)
    assert "--threads" not in other  # it would not know the option
    assert variables == same == {"OMP_NUM_THREADS": "3"}


def test_the_command_passes_the_number_to_the_process(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    run = make_run(tmp_path / "run", ["m-1_2"])
    notebook = make_notebook(tmp_path / "n.ipynb", FINDINGS_CELL, "checkpoint")
    words = ["report", str(run), "--reports", str(tmp_path / "reports"), "--evaluator", STAND_IN]
    assert main([*words, "--notebook", str(notebook), "--settle", "0.1", "--threads", "3"]) == 0
    assert (run / "threads.txt").read_text() == "3"
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--threads", "0"])
    assert "--threads: invalid" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "threads"), [(["--threads", "3"], 3), ([], max((os.cpu_count() or 2) // 2, 1))])
def test_the_evaluator_takes_the_number_else_half_of_the_cores(tmp_path, monkeypatch, given, threads):
    taken = []
    monkeypatch.setattr(evaluate, "evaluate_checkpoint", lambda *_words, **named: taken.append(named["threads"]))
    monkeypatch.setattr(os, "nice", lambda _step: 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    here = os.getcwd()
    try:
        assert evaluate.main([str(tmp_path), "--checkpoint", str(tmp_path / "m.ckpt"), *given]) == 0
    finally:
        os.chdir(here)
    assert taken == [threads]
    assert os.environ["OMP_NUM_THREADS"] == ("3" if given else "64")
