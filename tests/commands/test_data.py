from pathlib import Path

from workbench.cli import main

SAMPLE = Path(__file__).parents[2] / "data_samples" / "data_pipeline_starved"


def test_profile_shows_the_operators_of_a_recorded_pipeline(capsys):
    assert main(["data", "profile", str(SAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert "Generator" in printed
    assert "Map" in printed


def test_profile_of_a_missing_path_is_a_problem_with_a_fix(tmp_path, capsys):
    assert main(["data", "profile", str(tmp_path / "nowhere")]) == 2
    assert "Fix:" in capsys.readouterr().err
