import pytest
from log_text import all_notes, cells, messages, read_text, steps

SCREEN = "2025-05-11 09:12:03,118 - mindformers./output/log[mindformers/core/callback/callback.py:529] - INFO - "
FILE = "[INFO] 2025-05-11 09:12:03,118 [mindformers/core/callback/callback.py:529] print_output_info: "
# 2025-05-11 is day 20219 of the epoch: 20219 * 86400 + 9 * 3600 + 12 * 60 + 3 = 1746954723 s
TIME_NS = 1746954723_118_000_000

VERSIONS = {  # version -> (line behind the prefix, expected cells)
    "0.3": (
        "Epoch:[  1/  3], step:[   20/  500], loss:[2.184/2.231], time:1840.114 ms, lr:[2.4e-06], "
        "overflow cond: False, loss_scale: 16384.0",
        {"step": 20, "loss": 2.184, "step_us": 1_840_114.0, "learning_rate": 2.4e-06, "loss_scale": 16384.0},
    ),
    "1.0": (
        "{ Epoch:[  2/  3], step:[   20/  500], loss: 2.184, per_step_time: 1840ms, lr: 2.4e-06, overflow cond: False, "
        "loss_scale: 16384.0",
        {"step": 500 + 20, "epoch": 2, "loss": 2.184, "step_us": 1_840_000.0, "overflow": False},
    ),
    "1.3": (
        "{ Epoch:[  1/  3], step:[   21/  500], loss: 2.184, per_step_time: 1840ms, lr: 2.4e-06, overflow cond: True, "
        "loss_scale: 512.0, global_norm: [1.0723]",
        {"step": 21, "gradient_norm": 1.0723, "overflow": True, "loss_scale": 512.0},
    ),
    "1.4": (
        "{ Epoch:[  1/  2], step:[    2/ 6500], loss: 10.633, per_step_time: 577ms, lr: 1e-05, overflow cond: False, "
        "loss_scale: 1.0, global_norm: [16.5227], train_throughput_per_npu: 170.738T",
        {"step": 2, "gradient_norm": 16.5227, "flops_per_s": 170.738e12, "step_us": 577_000.0},
    ),
    "1.7": (
        "{ Epoch:[  1/  2], step:[    3/ 6500], loss: 2.111767, lm loss: 2.101347, load_balancing_loss: 0.010420, "
        "mtp_loss: 1.904411, per_step_time: 577ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0, "
        "global_norm: [1.2], train_throughput_per_npu: 170.738T",
        {"step": 3, "loss": 2.111767, "gradient_norm": 1.2},
    ),
    "no schedule, no sink": (
        "{ Epoch:[  1/  1], step:[  120/ 4000], loss:[7.412/8.905], per_step_time: 2310ms, overflow cond: True, "
        "loss_scale: unavailable, global_norm: None",
        {"step": 120, "loss": 7.412, "step_us": 2_310_000.0, "overflow": True},
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("prefix", [SCREEN, FILE, "- INFO - "], ids=["screen", "file", "bare"])
def test_every_version_of_the_loss_line(tmp_path, version, prefix):
    line, expected = VERSIONS[version]
    readings = read_text(tmp_path, prefix + line + "\n")
    row = steps(readings).iloc[0]
    for column, value in expected.items():
        assert row[column] == pytest.approx(value), column
    assert (row.time_ns == TIME_NS) if prefix != "- INFO - " else row.isna().time_ns
    assert not all_notes(readings)


def test_parts_of_the_loss_are_kept(tmp_path):
    readings = read_text(tmp_path, SCREEN + VERSIONS["1.7"][0] + "\n")
    assert cells(readings)[(0, "lm loss")] == 2.101347
    assert cells(readings)[(0, "load_balancing_loss")] == 0.010420
    assert cells(readings)[(0, "mtp_loss")] == 1.904411
    assert cells(readings)[(0, "step")] == 3


def test_missing_scale_and_norm_are_missing_without_a_note(tmp_path):
    row = steps(read_text(tmp_path, SCREEN + VERSIONS["no schedule, no sink"][0] + "\n")).iloc[0]
    assert row[["loss_scale", "gradient_norm", "learning_rate"]].isna().all()


def test_throughput_goes_to_the_step_above(tmp_path):
    bar = " " * 25
    text = SCREEN + VERSIONS["1.0"][0] + "\n" + SCREEN + f"   0.2% |{bar}{bar}| 1.73913 samples/s/p  2:29:40 }}\n"
    assert steps(read_text(tmp_path, text)).samples_per_s.tolist() == [1.73913]


def test_broken_norm_is_missing_and_noted_with_its_line(tmp_path):
    line = VERSIONS["1.3"][0].replace("[1.0723]", "[1 31049]")
    readings = read_text(tmp_path, "x\n" + SCREEN + line + "\n")
    assert steps(readings).gradient_norm.isna().all()
    assert steps(readings).loss.tolist() == [2.184]
    assert "line 2" in all_notes(readings)[0]


def test_loss_that_is_not_finite_is_kept_as_such(tmp_path):
    text = "".join(
        SCREEN + VERSIONS["1.0"][0].replace("loss: 2.184", f"loss: {v}") + "\n" for v in ("nan", "inf", "3.0")
    )
    table = steps(read_text(tmp_path, text.replace("step:[   20", "step:[   21", 1)))
    assert table.loss_finite.tolist() == [False, False, True]
    assert table.loss.isna().tolist() == [True, False, False]


def test_last_line_cut_inside_a_number_gives_no_wrong_number(tmp_path):
    whole = SCREEN + VERSIONS["1.4"][0] + "\n"
    cut = SCREEN + "{ Epoch:[  1/  2], step:[    3/ 6500], loss: 10.6, per_step_time: 577ms, lr: 1.0e-"
    table = steps(read_text(tmp_path, whole + cut))
    assert table.step.tolist() == [2, 3]
    assert table.loss.tolist() == [10.633, 10.6]
    assert table.learning_rate.isna().tolist() == [False, True]
    cut_norm = SCREEN + VERSIONS["1.4"][0].replace("2/ 6500", "3/ 6500").partition("16.5227")[0] + "16.5"
    assert steps(read_text(tmp_path, whole + cut_norm)).gradient_norm.isna().tolist() == [False, True]


def test_global_batch_size_with_its_factors(tmp_path):
    text = (
        SCREEN + "global_batch_size = batch_size_per_card * device_num * gradient_accumulation_steps = 4 * 8 * 2 = 64\n"
        + SCREEN + "Full model flops is 19791209365504, Shard model flops is 2473901170688.\n"
        + SCREEN + "Create training dataset finish, dataset size:234\n"
        + SCREEN + "Will be Training epochs:5, sink_size:2\n"
    )  # fmt: skip
    table = read_text(tmp_path, text)["settings"].table.set_index("name").value
    assert table["global_batch_size"] == "64"
    assert (table["batch_size_per_card"], table["device_num"], table["gradient_accumulation_steps"]) == ("4", "8", "2")
    assert (table["full_model_flops"], table["shard_model_flops"]) == ("19791209365504", "2473901170688")
    assert (table["dataset_size"], table["epochs"], table["sink_size"]) == ("234", "5", "2")


def at(second: float) -> str:
    return f"2025-05-11 09:12:{int(second):02d},{round(second % 1 * 1000):03d} - mindformers[x.py:1] - INFO - "


def loss_line(step: int) -> str:
    return (
        f"{{ Epoch:[  1/  2], step:[{step:5d}/ 6500], loss: 10.0, per_step_time: 1000ms, lr: 1e-05, "
        "overflow cond: False, loss_scale: 1.0\n"
    )


def test_checkpoint_is_an_event_with_the_seconds_of_the_line(tmp_path):
    text = (
        at(1) + loss_line(100) + at(1.5) + "......Saving ckpt......\n"
        + at(42.8) + "Finish saving ckpt of epoch 1 step 100 using 41.3 seconds\n" + at(43.9) + loss_line(101)
    )  # fmt: skip
    readings = read_text(tmp_path, text)
    events = readings["events"].table.set_index("kind")
    saved = events.loc["checkpoint"]
    assert (saved.duration_us, saved.step) == (41.3e6, 100)
    assert saved.start_ns == TIME_NS - 3_118_000_000 + 1_500_000_000
    # 42.9 s between the two step lines, of which the step takes 1 s
    assert events.loc["gap"].duration_us == pytest.approx(41.9e6)
    assert messages(readings, "checkpoint_save") == [{"epoch": 1, "step_in_line": 100, "seconds": 41.3}]


def test_save_costs_of_version_1_7(tmp_path):
    text = at(1) + "Save checkpoint cost time: 41.3s.\n" + at(2) + "Save common info cost time: 0.2s.\n"
    assert [m["seconds"] for m in messages(read_text(tmp_path, text), "checkpoint_save")] == [41.3, 0.2]


def test_save_costs_end_a_save_that_has_no_other_end(tmp_path):
    text = at(1) + loss_line(100) + at(1.5) + "......Saving ckpt......\n"
    text += at(42) + "Save checkpoint cost time: 41.3s.\n" + at(43) + "Save common info cost time: 0.2s.\n"
    saved = read_text(tmp_path, text)["events"].table.iloc[0]
    assert (saved.kind, saved.step, saved.duration_us) == ("checkpoint", 100, pytest.approx(41.5e6))


def test_evaluation_is_an_event_and_scores(tmp_path):
    text = at(1) + loss_line(20) + at(4) + "Eval result: {'P': {'loss': 10.1, 'PPL': 24343.01}}, eval time is 2.9 s.\n"
    readings = read_text(tmp_path, text)
    scores = readings["evals"].table
    assert dict(zip(scores.metric, scores.value, strict=True)) == {"loss": 10.1, "perplexity": 24343.01}
    assert scores.kind.unique().tolist() == ["imported"]
    assert scores.step.tolist() == [20, 20]
    event = readings["events"].table.iloc[0]
    assert (event.kind, event.duration_us) == ("eval", 2.9e6)


def test_state_monitor_lines(tmp_path):
    head = at(1) + "Epoch:[  1/  2], step:[   30/ 6500] "
    text = (
        head + "local_norm/layers.0.attention.wq.weight: 0.1140\n"
        + head + "weight_norm/layers.0.attention.wq.weight: 8.5\n"
        + head + "device_local_norm: 1.25\n" + head + "throughput_linearity: 0.97\n"
        + at(1) + "layer: 3, drop_rate: 0.01840\n"
    )  # fmt: skip
    readings = read_text(tmp_path, at(0) + loss_line(30) + text)
    group = readings["parameter_groups"].table
    assert group[["step", "group", "gradient_norm", "parameter_norm"]].values.tolist() == [
        [30, "layers.0.attention.wq.weight", 0.114, 8.5]
    ]
    assert cells(readings)[(0, "device_local_norm")] == 1.25
    assert cells(readings)[(0, "throughput_linearity")] == 0.97
    assert cells(readings)[(0, "layer_3_drop_rate")] == 0.0184


def test_epochs_counted_from_zero(tmp_path):
    text = "".join(
        f"Epoch:[{e:3d}/  2], step:[{s:5d}/    2], loss:[1.0/1.0], time:100.0 ms, lr:0.01000\n"
        for e in (0, 1)
        for s in (1, 2)
    )
    table = steps(read_text(tmp_path, text))
    assert table.step.tolist() == [1, 2, 3, 4]
    assert table.epoch.tolist() == [1, 1, 2, 2]


def test_first_sink_holds_the_compilation(tmp_path):
    text = at(0) + "Will be Training epochs:5, sink_size:2\n" + at(1) + loss_line(2) + at(2) + loss_line(4)
    assert steps(read_text(tmp_path, text)).compiled.tolist()[0] is True


def test_the_planned_steps_are_a_setting(tmp_path):
    line = (
        "{ Epoch:[  2/  3], step:[   20/  500], loss: 2.184, per_step_time: 1840ms, lr: 2.4e-06, overflow cond: False"
    )
    settings = read_text(tmp_path, line + "\n")["settings"].table
    assert dict(zip(settings.name, settings.value, strict=True)) == {"log.planned_steps": "1500"}  # 3 epochs of 500
