import json

import pytest

from tests.made_run import made_steps, write_run
from workbench.cli import main
from workbench.commands.opening import default_run, fill_notebooks, lab_command, work_folder
from workbench.errors import UnknownContentError
from workbench.files import share_dir


def parameters(path):
    cells = json.loads(path.read_text())["cells"]
    return next("".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", ()))


def test_notebooks_are_filled_in_for_the_run(tmp_path):
    run = write_run(tmp_path / 'it\'s a "run" \\n', made_steps(5))
    fill_notebooks(share_dir() / "notebooks", tmp_path / "copies", run)
    for name in ("start.ipynb", "reports/checkpoint.ipynb"):
        values = {}
        exec(parameters(tmp_path / "copies" / name), values)
        assert values["run_path"] == str(run)


def test_what_the_user_changed_is_kept_unless_asked(tmp_path):
    source, copies = share_dir() / "notebooks", tmp_path / "copies"
    fill_notebooks(source, copies, tmp_path)
    (copies / "start.ipynb").write_text("mine")
    fill_notebooks(source, copies, tmp_path)
    assert (copies / "start.ipynb").read_text() == "mine"
    fill_notebooks(source, copies, tmp_path, fresh=True)
    assert (copies / "start.ipynb").read_text() != "mine"


def test_two_runs_of_one_name_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = [tmp_path / part / "run" for part in "ab"]
    for run in runs:
        run.mkdir(parents=True)
    folders = {work_folder(run) for run in runs}
    assert len(folders) == 2
    assert not any(folder.is_relative_to(run) for folder in folders for run in runs)
    with pytest.raises(UnknownContentError, match="nowhere"):
        work_folder(tmp_path / "nowhere")


def test_default_is_the_newest_run_else_the_sample(tmp_path):
    assert default_run(tmp_path).name == "rehearsal_run"
    run = write_run(tmp_path / "runs" / "mine", made_steps(5))
    assert default_run(tmp_path) == run


def test_lab_is_told_not_to_look_at_the_net(tmp_path):
    command, environment = lab_command(tmp_path / "start.ipynb", tmp_path, browser=False, port=9000)
    assert {"--no-browser", "--port=9000"} <= set(command)
    assert "--LabApp.default_url=/lab/tree/start.ipynb" in command  # so the address that is printed leads there
    assert f"--LabApp.workspaces_dir={tmp_path / '.jupyter' / 'workspaces'}" in command
    first = environment["JUPYTER_CONFIG_PATH"].split(":")[0]
    config = json.loads((tmp_path / ".jupyter" / "jupyter_lab_config.json").read_text())
    assert first == str(tmp_path / ".jupyter")
    assert config["LabApp"]["news_url"] is None


def test_the_scripts_of_charts_are_there_before_lab_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    there = []
    monkeypatch.setattr("os.execve", lambda *_: there.extend((tmp_path / "cache").glob("charts-*.js")))
    main(["open", str(write_run(tmp_path / "run", made_steps(5))), "--no-browser"])
    assert len(there) == 1
    assert there[0].stat().st_size > 100_000
