from pathlib import Path

import pytest

from workbench.cli import main

SAMPLE = Path(__file__).parents[2] / "data_samples" / "data_pipeline_starved"


def test_profile_shows_the_operators_of_a_recorded_pipeline(capsys):
    assert main(["data", "profile", str(SAMPLE)]) == 1
    printed = capsys.readouterr().out
    assert "Generator" in printed
    assert "Map holds the pipeline back: it waits" in printed


def test_profile_of_a_missing_path_is_a_problem_with_a_fix(tmp_path, capsys):
    assert main(["data", "profile", str(tmp_path / "nowhere")]) == 2
    assert "Fix:" in capsys.readouterr().err


@pytest.mark.mindspore
def test_pipelines_of_a_function_are_profiled_and_tuned(tmp_path, monkeypatch, capfd):
    pytest.importorskip("mindspore")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "built_here.py").write_text(
        "from workbench.probes.pipeline_lab import lab_pipeline\n"
        "def build(name='too_few_workers'):\n    return lab_pipeline(name, size=2).dataset\n"
        "def nothing():\n    return 3\n"
    )
    assert main(["data", "profile", "built_here:build", "--seconds", "1", "--step-ms", "5"]) == 1
    assert "Map holds the pipeline back" in capfd.readouterr().out
    assert (tmp_path / "data_profile" / "train" / "pipeline_profiling_0.json").exists()
    assert main(["data", "tune", "built_here:build", "--seconds", "0.2", "--out", "settings.csv"]) == 0
    assert "Recommended: Map: num_parallel_workers=2" in capfd.readouterr().out
    assert (tmp_path / "settings.csv").read_text().startswith("setting,")
    for target in ("built_here:nothing", "built_here:missing", "no_such_module:build"):
        assert main(["data", "tune", target]) == 2
        assert "Fix: name a function" in capfd.readouterr().err
    assert main(["data", "tune", "built_here:build", "--arguments", "{"]) == 2
