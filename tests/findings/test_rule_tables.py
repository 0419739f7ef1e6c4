import pandas as pd

import workbench as wb
from tests.log_text import write_logs
from workbench.findings.rule_tables import of_all_runs, of_last_run, run_tables

NAMES = ["training_steps", "events", "evals", "log_messages", "settings"]


def tables(path):
    run = wb.open_run(path, quiet=True)
    return of_all_runs(run_tables(run, NAMES), run.sources)


def line(step, *, loss, ms, second):
    return (
        f"2025-05-11 09:{second // 60:02d}:{second % 60:02d},118 - mindformers[callback.py:529] - INFO - "
        f"{{ Epoch:[  1/  1], step:[{step:5d}/  500], loss: {loss:.3f}, per_step_time: {ms}ms, lr: 1e-05\n"
    )


def log(ms, start):
    return "".join(line(s, loss=3 - s / 100 + ms / 1e5, ms=ms, second=start + s) for s in range(1, 21))


def test_other_rules_see_only_the_latest_job(tmp_path):
    write_logs(tmp_path, {"x.log": log(900, 1800), "y.log": log(500, 60)})
    found = tables(tmp_path)
    assert found["training_steps"].groupby("source").run.first().to_dict() == {"x.log": 1, "y.log": 0}
    last = of_last_run(found)
    assert set(last["training_steps"].source) == {"x.log"}
    assert "run" not in last["training_steps"]
    assert set(last["settings"].source) == {"x.log"}
    assert set(last["log_messages"].file) == {"x.log"}


def test_a_csv_beside_the_log_completes_its_steps(tmp_path):
    csv = "step,seq_len,tokens_per_s\n" + "".join(f"{s},{512 + s},100\n" for s in range(1, 21))
    write_logs(tmp_path, {"worker_0.log": log(900, 60), "steps.csv": csv})
    steps = of_last_run(tables(tmp_path))["training_steps"]
    assert (len(steps), steps.step.is_unique) == (20, True)
    assert steps[["loss", "step_us", "sequence_length", "tokens_per_s"]].notna().all().all()


def test_lines_without_step_numbers_get_the_steps_of_the_evaluations(tmp_path):
    records = [f"{{'loss': {3 - i / 50}, 'learning_rate': 1e-05, 'epoch': {i / 100}}}" for i in range(1, 41)]
    records.insert(20, "{'eval_loss': 2.5, 'eval_runtime': 4.0, 'epoch': 0.2}")
    records.append("{'eval_loss': 2.1, 'eval_runtime': 4.0, 'epoch': 0.4}")
    scores = "step,subset,n,score\n0,held_out,100,0.1\n500,held_out,100,0.2\n1000,held_out,100,0.3\n"
    write_logs(tmp_path, {"trainer.log": "\n".join(records) + "\n", "scores.csv": scores})
    found = of_last_run(tables(tmp_path))
    assert found["training_steps"].step.tolist()[:2] == [25, 50]  # 20 lines to step 500
    own = found["evals"][found["evals"].subset == "eval"]
    assert sorted(set(own.step)) == [500, 1000]
    (tmp_path / "scores.csv").unlink()
    assert of_last_run(tables(tmp_path))["training_steps"].step.tolist()[:2] == [1, 2]


def test_nothing_to_tell_apart(tmp_path):
    (tmp_path / "my.yaml").write_text("learning_rate: 0.001\n")
    found = tables(tmp_path)
    assert set(found) == {"settings", "sources"}
    assert isinstance(of_last_run(found)["settings"], pd.DataFrame)


def test_a_large_file_is_asked_only_for_tables_that_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.run.EAGER_FILE_BYTES", 10)  # all files are read only when a table is asked for
    (tmp_path / "train.csv").write_text("step,loss\n1,2.5\n2,2.4\n3,2.3\n")
    run = wb.open_run(tmp_path, quiet=True)
    assert "evals" in run.tables  # a CSV may hold it
    assert list(run_tables(run, ["evals", "data_mix", "training_steps"])) == ["training_steps"]
    assert not run.has("evals")
    assert not run.has("kernels")
    assert run.has("training_steps")
