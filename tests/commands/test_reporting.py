"""`workbench report` and `workbench alert`: what they print and how they end. For `watch` see tests/reporting."""

from pathlib import Path

import pytest
from reporting_parts import EVALUATOR, FINDINGS_CELL, make_notebook, make_run

from workbench.cli import main


@pytest.fixture(autouse=True)
def _stand_in_on_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.delenv("WORKBENCH_ALERT_WEBHOOK", raising=False)


def test_report_of_a_run_with_a_good_and_a_bad_checkpoint(tmp_path, capsys, caplog):
    run, root = make_run(tmp_path / "run", ["m-1_2", "m_crash-1_4"]), tmp_path / "reports"
    notebook = make_notebook(tmp_path / "n.ipynb", FINDINGS_CELL, "checkpoint")
    words = ["report", str(run), "--reports", str(root), "--evaluator", EVALUATOR, "--notebook", str(notebook)]
    assert main([*words, "--settle", "0.1"]) == 1
    printed = capsys.readouterr().out
    assert f"m-1_2: reported in {root / 'demo' / 'm-1_2' / 'report.html'}" in printed
    assert "m_crash-1_4: the evaluation failed. RuntimeError: the device went away\n  Fix: correct the cause" in printed
    assert f"1 of 2 reports are complete. The overview is in {root / 'index.html'}" in printed
    assert "ALERT [warning] Subset code of m-1_2 got 4 % worse." in caplog.text
    assert main([*words, "--checkpoint", "2"]) == 0
    assert main([*words, "--checkpoint", "3"]) == 2
    assert "Fix: use one of: m-1_2, m_crash-1_4" in capsys.readouterr().err
    assert main(["alert", str(run), "--reports", str(root)]) == 0
    assert "[warning] Subset code of m-1_2 got 4 % worse. (webhook: none)" in capsys.readouterr().out
    before = (root / "index.html").read_bytes()
    (root / "index.html").unlink()
    assert main(["report", "--index-only", "--reports", str(root)]) == 0
    assert (root / "index.html").read_bytes() == before


def test_a_notebook_without_the_parameters_of_a_report(tmp_path, capsys):
    run = make_run(tmp_path / "run", ["m-1_2"])
    notebook = make_notebook(tmp_path / "n.ipynb", parameters='run_path = "."\ncheckpoint = ""')
    words = ["report", str(run), "--reports", str(tmp_path / "r"), "--evaluator", EVALUATOR, "--settle", "0"]
    assert main([*words, "--notebook", str(notebook)]) == 2
    printed = capsys.readouterr().err
    assert "n.ipynb has no parameter ['findings_path']" in printed
    assert "Fix: use one of ['checkpoint', 'run_path']" in printed


def test_what_is_missing_is_said(tmp_path, capsys):
    assert main(["report", "--reports", str(tmp_path)]) == 2
    assert "No run is named." in capsys.readouterr().err
    for command in (["report"], ["watch"], ["alert", "--test"]):
        assert main([*command, str(tmp_path / "absent"), "--reports", str(tmp_path / "r")]) == 2
        assert "absent is not a directory" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_test_alert_that_does_not_arrive(tmp_path, capsys):
    run = make_run(tmp_path / "run", [])
    words = ["alert", str(run), "--test", "--reports", str(tmp_path / "r")]
    assert main(words) == 0
    assert "webhook none." in capsys.readouterr().out
    assert main([*words, "--webhook", "http://127.0.0.1:9/"]) == 1
    assert "webhook no answer:" in capsys.readouterr().out
    assert main([*words, "--webhook", "nonsense"]) == 2
