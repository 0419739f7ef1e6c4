import json

import pytest

from workbench.cli import main


def test_the_list_names_every_symptom(capsys):
    assert main(["playbook", "list"]) == 0
    assert "T8   Some steps take as long as a compilation." in capsys.readouterr().out


@pytest.mark.parametrize(("words", "problem"), [(["T99", "x"], "no playbook 'T99'"), (["T1"], "No run is given")])
def test_problems_have_a_fix(words, problem, capsys):
    assert main(["playbook", *words]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "Fix: " in said


def test_a_playbook_leaves_a_page_and_findings(tmp_path, data_samples, capsys):
    run = str(data_samples / "lab_runs" / "recompile")
    fixed = str(data_samples / "lab_runs" / "healthy")
    assert main(["playbook", "T8", run, "--compare-with", fixed, "--reports", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("[warning] recompile: ")
    folder = next((tmp_path / "playbooks").glob("recompile-*")) / "T8"
    assert "Proven: recompile in recompile, gone in healthy" in (folder / "report.html").read_text()
    assert json.loads((folder / "findings.json").read_text())["findings"][0]["cause"] == "recompile"
