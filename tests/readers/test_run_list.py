import json

from workbench.readers.run_list import list_runs, previous_run


def make(folder, name, **info):
    (folder / name).mkdir(parents=True)
    (folder / name / "run.json").write_text(json.dumps({"schema": 1, "run_id": name, **info}))
    return folder / name


def test_runs_are_listed_newest_first(tmp_path):
    make(tmp_path, "old", start_ns=1_700_000_000_000_000_001, tags=["a", "b"])
    make(tmp_path, "new", start_ns=1_700_000_000_000_000_002, steps_total=600)
    make(tmp_path, "timeless")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    (tmp_path / "notes.txt").write_text("not a run")
    runs = list_runs(tmp_path)
    assert runs.run_id.tolist() == ["new", "old", "timeless"]
    assert runs.start_ns[0] == 1_700_000_000_000_000_002  # not rounded
    assert runs.steps_total[0] == 600
    assert runs.tags[1] == "a, b"


def test_a_number_beyond_all_times_is_missing(tmp_path):
    make(tmp_path, "odd", start_ns=10**30, world_size="8")
    runs = list_runs(tmp_path)
    assert runs.start_ns.isna().tolist() == runs.world_size.isna().tolist() == [True]


def test_a_run_itself_and_nothing(tmp_path):
    assert list_runs(make(tmp_path, "one", start_ns=1)).run_id.tolist() == ["one"]
    assert list_runs(tmp_path / "nowhere").empty


def test_previous_run_is_the_last_one_that_started_before(tmp_path):
    first, second, third = (make(tmp_path, n, start_ns=i) for i, n in enumerate("abc"))
    assert previous_run(third) == second
    assert previous_run(first) is None
    assert previous_run(make(tmp_path, "d")) is None
