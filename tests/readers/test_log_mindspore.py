import pytest
from log_text import all_notes, cells, messages, read_text, steps

PIPELINE = "[INFO] PIPELINE(26549,7f6640a25b80,python):2025-07-30-16:20:{}.004.118 [mindspore/x.cc:191] CompileInner] "


def test_loss_monitor_counts_inside_the_epoch(tmp_path):
    text = "".join(f"epoch: {e} step: {s}, loss is {e}.{s}\n" for e in (1, 2) for s in (1, 2, 3))
    table = steps(read_text(tmp_path, text))
    assert table.step.tolist() == [1, 2, 3, 4, 5, 6]  # (2 - 1) * 3 + 1 = 4
    assert table.loss.tolist() == [1.1, 1.2, 1.3, 2.1, 2.2, 2.3]


def test_steps_per_epoch_from_the_times_where_not_every_step_is_printed(tmp_path):
    text = "".join(
        f"epoch: {e} step: {s}, loss is 1.0\n" + ("Train epoch time: 2500.0 ms, per step time: 10.0 ms\n" * (s == 200))
        for e in (1, 2)
        for s in (100, 200)
    )
    # 2500 / 10 = 250 steps per epoch, of which 100 and 200 are printed
    assert steps(read_text(tmp_path, text)).step.tolist() == [100, 200, 350, 450]


def test_sink_mode_epoch_takes_step_and_data_time(tmp_path):
    text = (
        "epoch: 2 step: 3, loss is 0.30573010444641113\n"
        "Train epoch time: 784.468 ms, per step time: 261.489 ms (data time: 1.737 ms)\n"
    )
    row = steps(read_text(tmp_path, text)).iloc[0]
    assert (row.step, row.epoch, row.loss) == (6, 2, 0.30573010444641113)
    assert (row.step_us, row.data_wait_us) == (261_489.0, 1737.0)


def test_mean_of_an_epoch_is_not_given_to_its_single_steps(tmp_path):
    text = "epoch: 1 step: 1, loss is 2.0\nepoch: 1 step: 2, loss is 1.0\n"
    readings = read_text(tmp_path, text + "Train epoch time: 20.0 ms, per step time: 10.0 ms\n")
    assert steps(readings).step_us.isna().all()
    assert messages(readings, "epoch_time") == [{"epoch_us": 20000.0, "step_us": 10000.0}]


def test_epoch_lines_alone_are_steps(tmp_path):
    text = (
        "Epoch time: 191331.499 ms, per step time: 7972.146 ms, avg loss: 2.256\n"
        "Epoch time: 117044.351 ms, per step time: 4876.848 ms, avg loss: 2.037\n"
    )
    table = steps(read_text(tmp_path, text))
    assert table.step.tolist() == [24, 48]  # 191331.499 / 7972.146 = 24.0
    assert table.loss.tolist() == [2.256, 2.037]
    assert table.step_us.tolist() == [7_972_146.0, 4_876_848.0]


def test_losses_that_are_no_numbers(tmp_path):
    text = "epoch: 1 step: 1, loss is nan\nepoch: 1 step: 2, loss is [2.5]\nepoch: 1 step: 3, loss is Tensor\n"
    readings = read_text(tmp_path, text)
    assert steps(readings).loss_finite.tolist()[:2] == [False, True]
    assert steps(readings).loss_finite.isna().tolist() == [False, False, True]
    assert "line 3" in all_notes(readings)[0]


@pytest.mark.parametrize(("last", "kept"), [("0.7040", False), ("0.70438617", True)])
def test_last_loss_without_line_end_counts_if_it_looks_whole(tmp_path, last, kept):
    text = f"epoch: 1 step: 1, loss is 0.71339267\nepoch: 1 step: 2, loss is {last}"
    assert steps(read_text(tmp_path, text)).loss.notna().tolist() == [True, kept]


def test_time_of_a_plain_stamp(tmp_path):
    # 2024-11-14 is day 20041: 20041 * 86400 + 8 * 3600 + 38 * 60 + 40 = 1731573520
    text = "2024-11-14 08:38:40 epoch: 1 step: 1, loss is 0.7133926749229431\n"
    assert steps(read_text(tmp_path, text)).time_ns.tolist() == [1731573520 * 10**9]


def test_scores_of_callbacks_and_scripts(tmp_path):
    text = (
        "epoch: 3 step: 10, loss is 1.9\nEval result: epoch 3, metrics: {'loss': 1.93}\n"
        "600 : {'accuracy': 0.7671440972222222}\n"
        "result : purchase_auc=0.9703064320618026, marital_auc=0.6586830081289081, use time 4s\n"
    )
    scores = read_text(tmp_path, text)["evals"].table
    assert scores[["metric", "value", "step"]].values.tolist() == [
        ["loss", 1.93, 30],
        ["accuracy", 0.7671440972222222, 30],
        ["purchase_auc", 0.9703064320618026, 30],
        ["marital_auc", 0.6586830081289081, 30],
    ]


def test_evaluation_epoch_is_an_event(tmp_path):
    text = "epoch: 1 step: 1, loss is 1.0\nEval epoch time: 784.0 ms, per step time: 261.0 ms\n"
    event = read_text(tmp_path, text)["events"].table.iloc[0]
    assert (event.kind, event.duration_us) == ("eval", 784_000.0)


def test_mindyolo_lines(tmp_path):
    text = (
        "2024-05-01 10:00:00,123 [INFO] Epoch 2/200, Step 100/3995, imgsize (640, 640), loss: 11.67, lbox: 1.5, "
        "cur_lr: [0.0992]\n2024-05-01 10:00:00,124 [INFO] Epoch 2/200, Step 100/3995, step time: 654.40 ms\n"
        "2024-05-01 10:00:00,125 [WARNING] overflow, still update, loss scale adjust to 1024.0\n"
    )
    readings = read_text(tmp_path, text)
    row = steps(readings).iloc[0]
    assert len(steps(readings)) == 1
    assert (row.step, row.loss, row.learning_rate, row.step_us) == (3995 + 100, 11.67, 0.0992, 654_400.0)
    assert cells(readings)[(0, "lbox")] == 1.5
    assert messages(readings, "overflow") == [{"new_scale": 1024.0}]


def test_compile_pairs_are_events_at_the_step_they_hold_up(tmp_path):
    phase = "__main__.construct.train.py.44.1753863604551283712train.281471090423824"
    text = "".join(
        PIPELINE.format("05") + f"Start compiling, phase: {phase}.{n}\n"
        + PIPELINE.format("05") + "Start compiling 'TrainStep.construct' and it will take a while. Please wait...\n"
        + PIPELINE.format("24") + "End compiling 'TrainStep.construct'.\n" + f"epoch: 1 step: {n + 1}, loss is 7.8\n"
        for n in (0, 1)
    )  # fmt: skip
    readings = read_text(tmp_path, text + "epoch: 1 step: 3, loss is 7.7\n")
    events = readings["events"].table
    assert events.kind.tolist() == ["compile", "compile"]
    assert events.duration_us.tolist() == [19e6, 19e6]
    assert events.step.tolist() == [1, 2]
    assert steps(readings).compiled.tolist() == [True, True, False]
    assert [m["counter"] for m in messages(readings, "compile_phase")] == [0, 1]
    assert messages(readings, "compile_end") == [{"function": "TrainStep.construct", "seconds": 19.0}] * 2


def test_compilation_without_end_stays_open(tmp_path):
    text = PIPELINE.format("05") + "Start compiling 'Net.construct' and it will take a while. Please wait...\n"
    event = read_text(tmp_path, text)["events"].table.iloc[0]
    assert event.isna().duration_us
    assert event.step == 1
