import math

from log_text import all_notes, cells, messages, read_text, steps


def test_dictionaries_without_step_are_counted_and_said_so(tmp_path):
    text = (
        "{'loss': 1.6693, 'grad_norm': 0.81, 'learning_rate': 1.98e-05, 'epoch': 0.23}\n"
        "{'loss': 1.5, 'grad_norm': nan, 'learning_rate': 1.97e-05, 'epoch': 0.24}\n"
    )
    readings = read_text(tmp_path, text)
    table = steps(readings)
    assert table.step.tolist() == [1, 2]
    assert table.loss.tolist() == [1.6693, 1.5]
    assert table.gradient_norm.tolist()[0] == 0.81
    assert math.isnan(table.gradient_norm.tolist()[1])
    assert readings["settings"].table.value.tolist() == ["line count"]
    assert "logging interval" in all_notes(readings)[0]


def test_closing_record_tells_the_logging_interval(tmp_path):
    lines = "".join(f"{{'loss': {2 - n / 10}, 'learning_rate': 1e-05, 'epoch': {n / 10}}}\n" for n in range(1, 11))
    end = "{'train_runtime': 100.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 2.5, 'epoch': 1.0}\n"
    readings = read_text(tmp_path, lines + end)
    # 100 s * 2.5 steps/s = 250 steps in 1 epoch, printed by 10 lines: every 25
    assert steps(readings).step.tolist() == [25 * n for n in range(1, 11)]
    assert messages(readings, "train_end")[0]["train_steps_per_second"] == 2.5


def test_banner_tells_the_logging_interval(tmp_path):
    text = (
        "***** Running training *****\n  Num examples = 16,000\n  Num Epochs = 2\n  Total optimization steps = 400\n"
        "{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': 0.05}\n{'loss': 1.9, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    )
    readings = read_text(tmp_path, text)
    # 0.1 of 2 epochs of 400 steps are 20 steps, printed by two lines
    assert steps(readings).step.tolist() == [10, 20]
    assert readings["settings"].table.set_index("name").value["num_examples"] == "16000"


def test_progress_bar_on_the_same_stream_tells_the_step(tmp_path):
    bar = "  3%|▎         | {}/4000 [03:10<1:42:11,  1.58s/it]"
    record = "{{'loss': {}, 'learning_rate': 1e-05, 'epoch': 0.23}}"
    text = (
        "Loading checkpoint shards: 100%|██████████| 2/2 [00:07<00:00]\n\r  0%|          | 0/4000 [00:00<?, ?it/s]\r"
        + bar.format(119) + "\r" + bar.format(120) + record.format(1.5) + "\n"
        + "\r  0%|          | 0/32 [00:00<?, ?it/s]\r" + bar.format(130) + "\r" + record.format(1.4) + "\n"
    )  # fmt: skip
    table = steps(read_text(tmp_path, text))
    assert table.step.tolist() == [120, 130]


def test_evaluation_records(tmp_path):
    text = (
        "{'loss': 1.6, 'learning_rate': 1e-05, 'epoch': 1.0}\n"
        "{'eval_loss': 2.31, 'eval_runtime': 41.3, 'eval_samples_per_second': 24.0, 'epoch': 1.0}\n"
        "{'eval_math_loss': 3.5, 'eval_math_runtime': 10.0, 'epoch': 1.0}\n"
    )
    readings = read_text(tmp_path, text)
    scores = readings["evals"].table
    assert scores[["subset", "metric", "value", "seconds", "step"]].values.tolist() == [
        ["eval", "loss", 2.31, 41.3, 1],
        ["math", "loss", 3.5, 10.0, 1],
    ]
    assert readings["events"].table.duration_us.tolist() == [41.3e6, 10e6]


def test_llama_factory_lines(tmp_path):
    text = (
        '{"current_steps": 400, "total_steps": 13080, "loss": 0.91, "lr": 3.05e-05, "epoch": 0.107, '
        '"percentage": 3.06, "elapsed_time": "1:16:53", "remaining_time": "1 day, 16:37:24"}\n'
        '{"current_steps": 500, "total_steps": 13080, "eval_loss": 1.25, "epoch": 0.133}\n'
    )
    readings = read_text(tmp_path, text, name="trainer_log.jsonl")
    row = steps(readings).iloc[0]
    assert (row.step, row.loss, row.learning_rate) == (400, 0.91, 3.05e-05)
    assert readings["settings"].table.set_index("name").value["total_steps"] == "13080"
    assert readings["evals"].table[["metric", "value", "step"]].values.tolist() == [["loss", 1.25, 500]]


def test_extra_numbers_are_kept(tmp_path):
    readings = read_text(tmp_path, "{'loss': 1.6, 'rewards/chosen': 0.5, 'learning_rate': 1e-05, 'epoch': 1.0}\n")
    assert cells(readings)[(0, "rewards/chosen")] == 0.5


def test_torn_record_is_noted(tmp_path):
    text = "{'loss': 1.6693, 'learning_rate': 1.98e-05, 'epoch': 0.23}\n{'loss': 1.5, 'grad_no"
    readings = read_text(tmp_path, text)
    assert len(steps(readings)) == 1
    assert any("line 2" in n for n in all_notes(readings))
