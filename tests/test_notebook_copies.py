import json

import pytest

from tests.made_run import made_steps, write_run
from workbench.errors import UnknownContentError, UnknownParameterError
from workbench.notebook_copies import fill_playbook, run_key


def test_a_playbook_is_filled_in_for_the_run_and_kept(tmp_path):
    run = write_run(tmp_path / "my run", made_steps(5))
    copy = fill_playbook("low_throughput", run, tmp_path / "work")
    assert copy.parent.parent == tmp_path / "work" / "playbooks"
    cells = json.loads(copy.read_text())["cells"]
    source = next("".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", ()))
    values = {}
    exec(source, values)
    assert values["run_path"] == str(run)
    copy.write_text("changed by the user")
    assert fill_playbook("low_throughput", run, tmp_path / "work").read_text() == "changed by the user"


def test_runs_of_one_name_have_copies_of_their_own(tmp_path):
    runs = [write_run(tmp_path / part / "run", made_steps(5)) for part in "ab"]
    assert len({fill_playbook("low_throughput", run, tmp_path) for run in runs}) == 2
    assert run_key(runs[0]).startswith("run-")


def test_a_playbook_or_a_run_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UnknownParameterError, match="no_such_book"):
        fill_playbook("no_such_book", tmp_path, tmp_path)
    with pytest.raises(UnknownContentError, match="nowhere"):
        fill_playbook("low_throughput", tmp_path / "nowhere", tmp_path)
