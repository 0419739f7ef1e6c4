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
    assert "\nProven: recompile in recompile, gone in healthy" in said
    folder = next((tmp_path / "playbooks").glob("recompile-*")) / "T8"
    assert "Proven: recompile in recompile, gone in healthy" in (folder / "report.html").read_text()
    assert json.loads((folder / "findings.json").read_text())["findings"][0]["cause"] == "recompile"


def test_what_cannot_be_judged_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{step},0.001,{100 + step % 3}\n" for step in range(1, 101))
    (tmp_path / "times.csv").write_text("step,lr,step_time_ms\n" + rows)
    assert main(["playbook", "T1", str(tmp_path / "times.csv")]) == 0
    assert "Not judged, for want of evidence: loss_not_finite, " in capsys.readouterr().out


def test_a_folder_of_nothing_is_told_before_a_notebook_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a.bin").write_bytes(b"\x00" * 100)
    assert main(["playbook", "T1", str(tmp_path / "odd")]) == 2
    assert "holds nothing that a reader knows" in capsys.readouterr().err
    assert not (tmp_path / "reports").exists()
