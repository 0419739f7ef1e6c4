"""One recorded run of a directory: runs inside it, runs side by side, ranks that nobody recorded."""

import json

import pytest

import workbench as wb
from workbench.errors import UnknownContentError


def write(root, *, ranks=(0,), **info):
    (root / "metrics").mkdir(parents=True)
    (root / "run.json").write_text(json.dumps({"schema": 1, "run_id": root.name, **info}))
    for rank in ranks:
        records = [{"step": s, "loss": 4.0 / s, "step_us": 100.0} for s in (1, 2, 3)]
        (root / f"metrics/rank_{rank}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return root


def test_a_run_inside_a_run_is_left_out_and_noted(tmp_path):
    outer = write(tmp_path / "outer")
    write(outer / "again" / "inner", ranks=(0, 1))
    run = wb.open_run(outer, quiet=True)
    assert len(run.table("training_steps")) == 3
    assert set(run.sources.file) == {"run.json", "metrics/rank_0.jsonl"}
    (note,) = run.notes
    assert "again/inner" in str(note)
    assert wb.open_run(outer / "again" / "inner", quiet=True).ranks == [0, 1]


def test_runs_side_by_side_are_named(tmp_path):
    write(tmp_path / "a"), write(tmp_path / "b")
    with pytest.raises(UnknownContentError, match="holds 2 recorded runs: 'a', 'b'"):
        wb.open_run(tmp_path, quiet=True)


def test_the_only_run_in_a_folder_is_opened(tmp_path):
    write(tmp_path / "a")
    assert wb.open_run(tmp_path, quiet=True).tables == ["training_steps", "settings"]


def test_ranks_of_the_job_that_were_not_recorded_are_noted(tmp_path):
    run = wb.open_run(write(tmp_path / "job", ranks=(0, 1, 2, 4), world_size=8), quiet=True)
    (note,) = run.notes
    assert "4 of 8 ranks were recorded; missing: 3, 5, 6, 7" in str(note)


@pytest.mark.parametrize("world_size", [1, True, "many", None, -3])
def test_a_complete_run_or_an_odd_world_size_is_not_noted(tmp_path, world_size):
    assert wb.open_run(write(tmp_path / "job", world_size=world_size), quiet=True).notes == []
