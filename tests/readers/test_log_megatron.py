from log_text import all_notes, cells, messages, read_text, steps

LINE = (
    " [2025-03-02 10:19:{:02d}] iteration {:8d}/   25000 | consumed samples:        40960 | "
    "elapsed time per iteration (ms): 27012.5 | throughput per GPU (TFLOP/s/GPU): 149.6 | "
    "learning rate: 7.500000E-06 | global batch size:  1024 | lm loss: 9.120380E+00 | "
    "seq_load_balancing_loss: 1.000203E+00 | loss scale: 1.0 | "
    "grad norm: {} | num zeros: 1174 | params norm: 8660.607 | number of skipped iterations:   {} | "
    "number of nan iterations:   0 |\n"
)


def test_step_line(tmp_path):
    readings = read_text(tmp_path, LINE.format(42, 40, 14.218, 0))
    row = steps(readings).iloc[0]
    assert (row.step, row.loss, row.learning_rate) == (40, 9.12038, 7.5e-06)
    assert (row.step_us, row.flops_per_s) == (27_012_500.0, 149.6e12)
    assert (row.gradient_norm, row.parameter_norm, row.loss_scale) == (14.218, 8660.607, 1.0)
    # 2025-03-02 is day 20149: 20149 * 86400 + 10 * 3600 + 19 * 60 + 42 = 1740910782
    assert row.time_ns == 1740910782 * 10**9
    assert cells(readings)[(0, "num zeros")] == 1174
    assert cells(readings)[(0, "seq_load_balancing_loss")] == 1.000203
    assert readings["settings"].table.set_index("name").value["global_batch_size"] == "1024"


def test_a_change_of_the_batch_size_is_told_with_its_step(tmp_path):
    lines = [LINE.format(42, step, 1.0, 0) for step in (1, 2, 3)]
    lines[0] = lines[0].replace("global batch size:  1024", "global batch size:   512")
    table = read_text(tmp_path, "".join(lines))["settings"].table.set_index("name").value
    assert (table["global_batch_size"], table["global_batch_size_since_step"]) == ("1024", "2")


def test_skipped_iteration_is_an_overflow(tmp_path):
    text = LINE.format(42, 40, 0.0, 1) + LINE.format(43, 41, 1.0, 0)
    table = steps(read_text(tmp_path, text))
    assert table.overflow.tolist()[0] is True


def test_old_versions_and_forks(tmp_path):
    text = (
        " iteration        7/     500 | elapsed time per iteration (s): 2.5 | lm loss: 8.5/9.5 | grad norm: nan |\n"
        " iteration        8/     500 | elapsed time per iteration (ms): 2500 | lm loss: bad | my extra: 4.0 |\n"
    )
    readings = read_text(tmp_path, text)
    table = steps(readings)
    assert table.step_us.tolist() == [2.5e6, 2.5e6]
    assert table.loss.tolist()[0] == 8.5
    assert table.loss.isna().tolist() == [False, True]
    assert cells(readings)[(0, "my extra")] == 4.0
    assert "line 2" in all_notes(readings)[0]


def test_cut_last_line_loses_only_its_last_part(tmp_path):
    cut = LINE.format(43, 41, 14.218, 0).partition("18 | num zeros")[0]
    table = steps(read_text(tmp_path, LINE.format(42, 40, 1.0, 0) + cut))
    assert table.gradient_norm.isna().tolist() == [False, True]
    assert table.loss_scale.tolist() == [1.0, 1.0]


def test_timers_are_series_of_the_step(tmp_path):
    text = (
        LINE.format(42, 40, 1.0, 0) + "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (1371.20, 1398.44)\n"
        "    all-grads-sync .................................: (10127.73, 10277.73)\n"
    )
    found = cells(read_text(tmp_path, text))
    assert found[(0, "forward-backward_min_ms")] == 1371.20
    assert found[(0, "all-grads-sync_max_ms")] == 10277.73


def test_memory_report_names_its_rank(tmp_path):
    text = LINE.format(42, 4, 1.0, 0) + (
        "[Rank 1] (after 4 iterations) memory (MB) | allocated: 1323.3 | max allocated: 4025.6 | "
        "reserved: 7058.0 | max reserved: 7058.0\n"
    )
    readings = read_text(tmp_path, text)
    table = readings["log_messages"].table
    assert table.loc[table.kind == "memory_report", "rank_id"].tolist() == [1]
    facts = messages(readings, "memory_report")[0]
    assert facts["allocated_bytes"] == 1323.3 * 1024**2
    assert facts["max_reserved_bytes"] == 7058 * 1024**2


def test_checkpoint_with_its_timer(tmp_path):
    text = LINE.format(42, 2000, 1.0, 0) + (
        "saving checkpoint at iteration    2000 to /data/ckpt in torch format\n"
        "  successfully saved checkpoint from iteration    2000 to /data/ckpt\n"
        "    save-checkpoint ................................: (41000.0, 41250.0)\n"
    )
    readings = read_text(tmp_path, text)
    event = readings["events"].table.iloc[0]
    assert (event.kind, event.step, event.duration_us) == ("checkpoint", 2000, 41_250_000.0)
    assert event.start_ns == 1740910782 * 10**9  # the time of the step line above: its own lines have none
    assert messages(readings, "checkpoint_save")[0]["step_in_line"] == 2000


def test_arguments_are_settings(tmp_path):
    text = "  global_batch_size ............................... 1024\n  lr ......... 3e-05\n"
    table = read_text(tmp_path, text + LINE.format(42, 1, 1.0, 0))["settings"].table.set_index("name").value
    assert table["lr"] == "3e-05"


def test_validation_losses_of_all_versions(tmp_path):
    text = LINE.format(42, 500, 1.0, 0) + (
        " validation loss at iteration 500 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 | \n"
        " validation loss at iteration 500 on test set | lm loss value: 2.5E+00 | mtp loss value: 3.0E+00 | \n"
    )
    table = read_text(tmp_path, text)["evals"].table
    assert table[["step", "subset", "metric", "value"]].values.tolist() == [
        [500, "validation", "loss", 2.0],
        [500, "validation", "perplexity", 7.389056],
        [500, "test", "loss", 2.5],
        [500, "test", "mtp_loss", 3.0],
    ]


def test_the_batch_generator_timer_is_the_data_wait_of_the_steps_since_the_last_one(tmp_path):
    timer = "    batch-generator ................................: ({}, {})\n"
    text = "".join(LINE.format(40 + step, step, 1.0, 0) + timer.format(3.0, 500.0 * step) * (step != 2)
                   for step in (1, 2, 3))  # fmt: skip
    assert steps(read_text(tmp_path, text)).data_wait_us.tolist() == [500e3, 1500e3, 1500e3]


def test_sizes_of_the_parallel_groups(tmp_path):
    head = (
        "using world size: 16, data-parallel size: 1, tensor-model-parallel size: 8, pipeline-model-parallel size: 2\n"
    )
    settings = read_text(tmp_path, head + "\n" + LINE.format(42, 1, 1.0, 0))["settings"].table.set_index("name").value
    assert settings["world_size"] == "16"
    assert settings["data_parallel_size"] == "1"
    assert settings["tensor_model_parallel_size"] == "8"
    assert settings["pipeline_model_parallel_size"] == "2"
