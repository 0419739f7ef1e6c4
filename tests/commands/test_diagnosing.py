import json

import jsonschema

from tests.made_run import made_steps, write_run
from workbench.cli import main


def test_a_healthy_run_exits_with_0(tmp_path, capsys):
    assert main(["diagnose", str(write_run(tmp_path / "run", made_steps(200)))]) == 0
    assert "healthy" in capsys.readouterr().out


def test_the_text_ends_with_the_playbook_to_go_on_with(tmp_path, capsys):
    steps = made_steps(200)
    path = str(write_run(tmp_path / "run", steps.assign(data_wait_us=30_000.0, step_us=steps["step_us"] + 30_000)))
    main(["diagnose", path])
    assert capsys.readouterr().out.endswith(f"Next: workbench playbook T6 {path}\n")


def test_causes_exit_with_1_and_json_is_one_object(tmp_path, capsys):
    steps = made_steps(200)
    starved = steps.assign(data_wait_us=30_000.0, step_us=steps["step_us"] + 30_000)
    assert main(["diagnose", str(write_run(tmp_path / "run", starved)), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == 1
    assert printed["causes"][0]["cause"] == "data_starved"
    assert {"ranks", "steps", "tables", "missing"} <= printed["coverage"].keys()


def test_an_unreadable_path_exits_with_2(tmp_path, capsys):
    assert main(["diagnose", str(tmp_path / "nothing")]) == 2
    said = capsys.readouterr()
    assert "Fix:" in said.err
    assert said.out == ""


def test_the_printed_object_fits_the_printed_schema(tmp_path, capsys):
    steps = made_steps(200)
    path = str(write_run(tmp_path / "run", steps.assign(data_wait_us=30_000.0, step_us=steps["step_us"] + 30_000)))
    assert main(["diagnose", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    main(["diagnose", path, "--json"])
    jsonschema.Draft202012Validator(schema).validate(json.loads(capsys.readouterr().out))


def test_unknown_steps_and_checkpoints_and_no_path_exit_with_2(tmp_path, capsys):
    path = str(write_run(tmp_path / "run", made_steps(200)))
    for words in (["diagnose", path, "--step", "-5"], ["diagnose", path, "--checkpoint", "unknown"], ["diagnose"]):
        assert main(words) == 2
        said = capsys.readouterr()
        assert "Fix:" in said.err
        assert said.out == ""


def test_damaged_files_are_told_with_the_verdict(tmp_path, capsys):
    run = write_run(tmp_path / "run", made_steps(200))
    (run / "events").mkdir(exist_ok=True)
    (run / "events/rank_0.jsonl").write_bytes(b"\x00\xff no json\n" * 5)
    assert main(["diagnose", str(run)]) == 0
    said = capsys.readouterr().out
    assert "healthy as far as these tables show" in said
    assert "events/rank_0.jsonl" in said
    assert "Fix:" in said
    assert main(["diagnose", str(run), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["causes"] == []
    assert "events/rank_0.jsonl" in printed.err


def test_files_without_any_row_are_not_readable(tmp_path, capsys):
    (tmp_path / "train.csv").write_text("step,loss,lr\n")
    assert main(["diagnose", str(tmp_path)]) == 2
    said = capsys.readouterr().out
    assert "Nothing could be checked" in said
    assert "healthy" not in said
    assert "train.csv" in said
