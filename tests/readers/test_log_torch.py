import pytest
from log_text import cells, messages, read_text, steps


def test_deepspeed_lines_of_one_step_are_one_row(tmp_path):
    text = (
        "[2025-01-20 11:00:36,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=40, skipped=1, "
        "lr=[1.5e-05], mom=[(0.9, 0.95)]\n"
        "[2025-01-20 11:00:36,124] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=40, "
        "RunningAvgSamplesPerSec=3.97, CurrSamplesPerSec=3.99, MemAllocated=17.42GB, MaxMemAllocated=41.8GB\n"
        "[2025-01-20 11:00:36,125] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd_microstep: 211.5 | "
        "bwd_microstep: 400.25 | bwd_inner_microstep: 390.0 | bwd_allreduce_microstep: 10.1 | step_microstep: 55.5\n"
    )
    readings = read_text(tmp_path, text, name="ds.log")
    table = steps(readings)
    rank_0 = table[table.learning_rate.notna()].iloc[0]
    assert (rank_0.step, rank_0.learning_rate) == (40, 1.5e-05)
    assert table.device_allocated_bytes.dropna().tolist() == [17.42 * 1024**3]
    found = {column: value for (_, column), value in cells(readings).items()}
    assert found["bwd_microstep_ms"] == 400.25
    assert found["skipped"] == 1
    assert found["max_allocated_bytes"] == pytest.approx(41.8 * 1024**3)


def test_overflow_names_both_scales(tmp_path):
    text = (
        "[2025-01-20 11:00:36,123] [INFO] [stage3.py:1:step] OVERFLOW! Rank 0 Skipping step. "
        "Attempted loss scale: 65536, reducing to 32768\nepoch=0/micro_step=1/global_step=1, CurrSamplesPerSec=1.0\n"
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n"
    )
    facts = messages(read_text(tmp_path, text), "overflow")
    assert facts[0] == {"old_scale": 65536, "new_scale": 32768}
    assert len(facts) == 2


def test_torchtitan_step(tmp_path):
    text = (
        "\x1b[36m[rank0]:2025-05-01 12:00:00,123 - root - INFO - step: 440  loss:  5.2553  grad_norm:  1.47  "
        "memory: 49.66GiB(52.28%)  tps: 5,868  tflops: 339.85  mfu: 34.36%\x1b[0m\n"
    )
    readings = read_text(tmp_path, text)
    row = steps(readings).iloc[0]
    assert (row.step, row.loss, row.gradient_norm, row.tokens_per_s) == (440, 5.2553, 1.47, 5868)
    assert row.device_reserved_bytes == 49.66 * 1024**3
    assert row.flops_per_s == 339.85e12
    assert cells(readings)[(0, "mfu_share")] == pytest.approx(0.3436)


def test_torchtitan_checkpoint_and_collection_pauses(tmp_path):
    start = "[titan] 2025-05-01 12:00:00,000 - root - INFO - "
    text = (
        start + "step: 10  loss:  5.0  memory: 1.0GiB(1.0%)  tps: 5,868  mfu: 34.36%\n"
        + start + "Saving the checkpoint (or staging if async is enabled).\n"
        + start + "Finished saving the checkpoint (or staging if async is enabled)in 393.86 seconds.\n"
        + start + "[GC] Peforming periodical GC collection. 0.12 seconds.\n"
    )  # fmt: skip
    readings = read_text(tmp_path, text)
    events = readings["events"].table.set_index("kind")
    assert events.loc["checkpoint"].duration_us == 393.86e6
    assert events.loc["gc"].duration_us == pytest.approx(0.12e6)
    assert messages(readings, "gc_pause") == [{"seconds": 0.12}]
