"""Real logs and the diagnosis cases, with values read by eye; and laws that hold for damaged logs."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_text import all_notes, messages, read_text, steps

from workbench.errors import UnreadableFileError
from workbench.readers import logs
from workbench.readers.kinds import FileContext
from workbench.readers.logs import read_log, sniff_log

XIDIAN = "samples/mindspore-lab-models/research/xidian"


@pytest.fixture
def shared_log(shared_dir):
    """Reads a log of the sample collection after making sure that it is recognised."""

    def read(name: str):
        path = shared_dir / name
        with path.open("rb") as f:
            assert sniff_log(path, f.read(65536))
        return read_log(path, FileContext(root=path.parent))

    return read


def test_mindformers_contest_log(shared_log):
    name = "samples/Kahsolt-MindSpore-2024-AI-model-develop-challenge/finetune_trials/run-1/worker_0.log"
    readings = shared_log(name)
    table = steps(readings).set_index("step")
    assert len(table) == 585  # 5 epochs of 234 steps, every second printed
    # a spinner of carriage returns stands before the first line
    assert (table.loss[2], table.step_us[2], table.compiled[2]) == (1.292, 383_209_000.0, True)
    assert (table.loss[470], table.learning_rate[470]) == (0.798, 6.805828e-05)  # epoch 3, step 2: 2 * 234 + 2
    assert table.loss[1170] == 1.086  # 5 * 234
    assert table.samples_per_s[1170] == 5.04426
    events = readings["events"].table
    assert events[events.kind == "checkpoint"].step.tolist() == [536, 1072, 1170]
    found = readings["settings"].table.set_index("name").value
    assert (found["dataset_size"], found["epochs"], found["seed"]) == ("234", "5", "0")
    assert found["parallel_config"].startswith("mindformers.modules.transformer")
    assert not all_notes(readings)


def test_excerpts_of_documentation(shared_log):
    readings = shared_log("samples/mindspore-ai-docs/mindformers_log_excerpts/high_availability_llama2_13b.log")
    table = steps(readings)
    assert table.loss.tolist() == [10.649, 10.633, 9.673, 9.287, 8.867]
    assert table.gradient_norm.isna().tolist() == [True, True, False, False, False]  # "[1 31049]", "[1 508834]"
    assert table.gradient_norm.tolist()[2] == 10.579812  # written without a colon
    assert "line 1: " in all_notes(readings)[0]
    assert "(2 times)" in all_notes(readings)[0]
    health = shared_log("samples/mindspore-ai-docs/mindformers_log_excerpts/health_monitor.log")
    assert steps(health).gradient_norm.tolist() == [44.31202, 47.328575]
    series = health["series"].table
    assert series[series.column == "embedding_local_norm"].value.tolist() == [251.79117, 291.3603]


@pytest.mark.parametrize(
    ("name", "rows", "last"),
    [
        (f"{XIDIAN}/LPCNet_LJSpeech/scripts/train_timers.log", 3, (3 * 40587, 2.5889015197753906, 421_681.0)),
        (f"{XIDIAN}/LPCNet_si_lk/scripts/train_mini_4.log", 4, (4 * 5208, 3.0139689445495605, 470_786.0)),
        (f"{XIDIAN}/MMOE/scripts/ascend.txt", 100, (100 * 1029, 0.756, 636.0)),
        (
            "samples/mindspore-courses-applications/mindspore_Ghostnet/log2022-11-03T17_22_28.660294.txt",
            600,
            (600 * 24, 0.299, 4_878_763.0),
        ),
    ],
)
def test_loss_and_time_monitor(shared_log, name, rows, last):
    table = steps(shared_log(name))
    assert len(table) == rows
    assert tuple(table.iloc[-1][["step", "loss", "step_us"]]) == last


def test_messages_of_the_lpcnet_log(shared_log):
    readings = shared_log(f"{XIDIAN}/LPCNet_LJSpeech/scripts/train_timers.log")
    assert [m["what"] for m in messages(readings, "slow_data")] == ["generator", "batch"]
    assert messages(readings, "shared_memory")[0] == {"limit_bytes": 6291456.0, "row_bytes": 120519680.0}
    table = readings["log_messages"].table
    # 2024-10-31-03:51:56.479.31, day 20027: 20027 * 86400 + 3 * 3600 + 51 * 60 + 56 = 1730346716
    assert table.time_ns[0] == 1730346716_479_031_000


def test_scores_that_scripts_print(shared_log):
    scores = shared_log(f"{XIDIAN}/MMOE/scripts/ascend.txt")["evals"].table
    assert len(scores) == 200
    assert scores.iloc[0][["metric", "value", "step"]].tolist() == ["purchase_auc", 0.9703064320618026, 1029]
    assert scores.iloc[-1][["metric", "value", "step"]].tolist() == ["marital_auc", 0.7412868310837409, 102900]
    ghostnet = "samples/mindspore-courses-applications/mindspore_Ghostnet/log2022-11-03T17_22_28.660294.txt"
    assert shared_log(ghostnet)["evals"].table.value.tolist() == [0.7671440972222222]


def test_ghostnet_counts_epochs_from_zero(shared_log):
    ghostnet = "samples/mindspore-courses-applications/mindspore_Ghostnet/log2022-11-03T17_22_28.660294.txt"
    table = steps(shared_log(ghostnet)).set_index("step")
    # "Epoch:[ 78/600]" stands between the 78th and the 79th epoch line: it is the 79th epoch
    assert (table.epoch[79 * 24], table.loss[79 * 24], table.learning_rate[79 * 24]) == (79, 1.014, 0.01)
    assert table.index.is_unique


def test_loss_files_without_a_last_line_end(shared_log):
    edcn = steps(shared_log(f"{XIDIAN}/Movie_EDCN/loss.log"))
    assert (len(edcn), edcn.loss.tolist()[-1]) == (80, 0.6901670694351196)
    deepfm = steps(shared_log(f"{XIDIAN}/DeepFM_Avazu/result/movie/loss.log"))
    assert (len(deepfm), deepfm.step.tolist()[-1], deepfm.loss.tolist()[-1]) == (26, 26 * 79, 0.35079121589660645)


@pytest.mark.parametrize(
    ("name", "rows", "last_step", "last_loss"),
    [
        ("lpcnet_slow_data.log", 3, 3 * 40587, 2.5889015197753906),
        ("edcn_loss.log", 80, 80, 0.6901670694351196),
        ("llama2_13b_broken_norms.log", 5, 5, 8.867),
        ("health_monitor.log", 2, 2, 0.0),
    ],
)
def test_shipped_logs(data_samples, name, rows, last_step, last_loss):
    path = data_samples / "training_logs" / name
    table = steps(read_log(path, FileContext()))
    assert (len(table), table.step.tolist()[-1], table.loss.tolist()[-1]) == (rows, last_step, last_loss)


def test_case_01_learning_rate_crosses_zero(shared_log):
    readings = shared_log("cases/01-lr-schedule-runs-out/worker_0.log")
    table = steps(readings).set_index("step")
    assert len(table) == 70
    assert table.learning_rate[[2940, 3000, 3060]].tolist() == [4.0816326e-07, 0.0, -4.0816326e-07]
    assert table.loss[4200] == 2.676
    assert readings["settings"].table.set_index("name").value["device_num"] == "2"


def test_case_02_records_and_evaluations(shared_log):
    readings = shared_log("cases/02-loss-near-zero-leak/trainer.log")
    assert steps(readings).step.tolist() == list(range(1, 41))
    assert readings["evals"].table[["step", "value"]].values.tolist() == [[20, 0.0116], [40, 0.0019]]


def test_case_03_queues(shared_log):
    readings = shared_log("cases/03-data-queue-starved/train.log")
    table = steps(readings)
    assert table[["step", "step_us", "data_wait_us"]].values.tolist()[1] == [50, 7_719_953.0, 7_025_351.0]
    (queue,) = messages(readings, "data_queue")
    assert (queue["have_sent"], queue["host_queue"]) == (125, [0] * 10)
    assert queue["device_queue"] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert queue["push_us"][0] == 6200.0  # 10:18:47.722314 to .728514
    assert queue["between_pushes_us"][0] == 7_922_996.0  # to 10:18:55.651510
    assert len(messages(readings, "slow_data")) == 11


def test_case_04_rank_of_the_file_and_creeping_steps(shared_log):
    table = steps(shared_log("cases/04-step-time-creeps-up/worker_3.log"))
    assert table.rank_id.unique().tolist() == [3]
    assert (len(table), table.step_us.tolist()[0], table.step_us.tolist()[-1]) == (80, 1_236_000.0, 3_371_000.0)


def test_case_05_peaks_per_stage(shared_log):
    readings = shared_log("cases/05-oom-first-pipeline-stage/dryrun_pp4.log")
    found = messages(readings, "memory_summary")
    assert [m["used_peak_bytes"] // 1024**2 for m in found] == [62118, 57902, 43874, 50771]
    assert [m["stage"] for m in found] == [0, 1, 2, 3]
    assert readings["log_messages"].table.rank_id.tolist() == [0, 16, 32, 48]
    two = messages(shared_log("cases/05-oom-first-pipeline-stage/dryrun_pp2.log"), "memory_summary")
    assert [m["actual_peak_bytes"] // 1024**2 for m in two] == [72704, 67072]
    failed = messages(shared_log("cases/05-oom-first-pipeline-stage/worker_0.log"), "oom")
    assert [m["request_bytes"] for m in failed] == [2491416576, 2491416576]


def test_case_06_card_in_use(shared_log):
    readings = shared_log("cases/06-oom-card-already-in-use/worker_5.log")
    (fact,) = messages(readings, "device_in_use")
    assert (fact["device_id"], fact["free_bytes"], fact["total_bytes"]) == (5, 7130316800, 65464696832)
    assert [m["stage"] for m in messages(readings, "stage")] == ["Build Net For Train"]


def test_case_08_transport_and_timers(shared_log):
    readings = shared_log("cases/08-two-nodes-over-sockets/two_nodes.log")
    assert [m["transport"] for m in messages(readings, "network_transport")] == [
        "bootstrap", "setting", "no_ib_device", "socket", "socket", "no_ib_device", "socket",
    ]  # fmt: skip
    series = readings["series"].table
    assert series[series.column == "all-grads-sync_max_ms"].value.tolist() == [10277.73, 10253.32, 10288.55]
    assert steps(readings).step_us.tolist()[-1] == 11_639_900.0
    one = shared_log("cases/08-two-nodes-over-sockets/one_node.log")
    assert one["settings"].table.value.tolist() == ["128", "500"]


def test_case_10_compile_pairs(shared_log):
    readings = shared_log("cases/10-recompile-on-new-shapes/worker_0.log")
    events = readings["events"].table
    assert events.kind.tolist() == ["compile"] * 10
    assert events.step.tolist() == [1, 2, 3, 4, 6, 7, 8, 10, 16, 22]  # first use of each length in steps.csv
    assert events.duration_us[0] == 21_555_214.0  # 16:20:05.004118 to 16:20:26.559332
    assert [json.loads(d)["counter"] for d in events.detail] == list(range(10))
    assert steps(readings).compiled.sum() == 10


def test_case_11_before_and_after(shared_log):
    before = steps(shared_log("cases/11-slower-after-upgrade/train_before.log"))
    after = steps(shared_log("cases/11-slower-after-upgrade/train_after.log"))
    assert (len(before), before.samples_per_s.tolist()[-1]) == (20, 0.79088)
    assert (len(after), after.samples_per_s.tolist()[-1]) == (20, 0.60845)
    assert after.flops_per_s[0] == pytest.approx(130.765e12)


def test_case_12_save_seconds_and_gaps(shared_log):
    readings = shared_log("cases/12-checkpoint-save-stall/worker_0.log")
    events = readings["events"].table
    saves = events[events.kind == "checkpoint"]
    assert saves.step.tolist() == [100, 200, 300, 400]
    assert saves.duration_us.tolist() == [397.751e6, 393.273e6, 404.050e6, 396.809e6]
    gaps = events[events.kind == "gap"]
    assert gaps.step.tolist() == [100, 200, 300]
    assert gaps.duration_us.tolist()[0] == pytest.approx(398.454e6)  # 419.524 s for ten steps of 2.107 s


def test_case_13_ranks_that_report(shared_log):
    reported, remote = [], {}
    for rank in range(16):
        readings = shared_log(f"cases/13-collective-timeout-one-rank-silent/msrun_log/worker_{rank}.log")
        assert steps(readings)[["rank_id", "step"]].values.tolist() == [[rank, s] for s in (4308, 4309, 4310)]
        for fact in messages(readings, "timeout_collective"):
            reported.append(rank)
            remote[rank] = fact["remote_rank"]
        if rank == 11:
            assert [m["waited_s"] for m in messages(readings, "data_hang")] == [300.0]
    assert reported == [r for r in range(16) if r != 11]
    assert [r for r, other in remote.items() if other == 11] == [3, 9, 10, 12]


def test_case_14_pipeline_stage_and_evaluations(shared_log):
    first = shared_log("cases/14-healthy-pipeline-first-stage/msrun_log/worker_0.log")
    assert steps(first).loss.unique().tolist() == [0.0]
    assert messages(first, "pipeline_loss") == [{"pipeline_stages": 4}]
    last = shared_log("cases/14-healthy-pipeline-first-stage/msrun_log/worker_7.log")
    assert (steps(last).loss[0], steps(last).loss[59]) == (10.595, 8.814)
    events = last["events"].table
    assert events[events.kind == "eval"].duration_us.tolist() == [2_911_877.0, 2_908_359.0, 2_946_081.0]
    assert steps(last).compiled.tolist()[0] is True


LINE = (
    "2025-05-11 09:12:{:02d},000 - mindformers[x.py:1] - INFO - {{ Epoch:[  1/  1], step:[{:5d}/  500], loss: {:.3f}, "
    "per_step_time: 1000ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.5]\n"
)
LOG = "".join(LINE.format(n, n, 10 - n / 10) for n in range(1, 31)).encode()


@settings(deadline=None, max_examples=80)
@given(st.integers(min_value=0, max_value=len(LOG)))
def test_cut_anywhere_keeps_the_lines_before(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "worker_0.log"
    path.write_bytes(LOG[:cut])
    whole = LOG[:cut].count(b"\n")
    try:
        readings = read_log(path, FileContext(root=path.parent))
    except UnreadableFileError:
        assert whole == 0
        return
    if whole or "training_steps" in readings:
        table = steps(readings)
        assert len(table) in (whole, whole + 1)
        assert table.loss[:whole].tolist() == [round(10 - n / 10, 3) for n in range(1, whole + 1)]
        # a number cut short is missing, never a shorter number
        assert set(table.gradient_norm.dropna()) <= {1.5}
        assert set(table.step_us.dropna()) <= {1e6}
        assert set(table.learning_rate.dropna()) <= {1e-05}


@settings(deadline=None, max_examples=80)
@given(st.binary(min_size=1, max_size=60), st.integers(min_value=0, max_value=len(LOG) - 1), st.booleans())
def test_garbage_spoils_only_the_line_it_is_in(tmp_path_factory, garbage, position, own_line):
    line = LOG[:position].count(b"\n")
    data = LOG[:position] + garbage + LOG[position:]
    if own_line:
        start = LOG.rfind(b"\n", 0, position) + 1
        data = LOG[:start] + garbage + b"\n" + LOG[start:]
        line = -1
    path = tmp_path_factory.mktemp("garbage") / "worker_0.log"
    path.write_bytes(data)
    table = steps(read_log(path, FileContext(root=path.parent)))
    found = dict(zip(table.step, table.loss, strict=True))
    for n in range(1, 31):
        if n - 1 != line:
            assert found[n] == round(10 - n / 10, 3)


REST = (
    "epoch: 1 step: 3, loss is 0.3\n"
    "Train epoch time: 784.468 ms, per step time: 261.489 ms (data time: 1.737 ms)\n"
    "Eval result: {'P': {'loss': 10.1}}, eval time is 2.9 s.\n{'loss': 1.6, 'learning_rate': 1e-05, 'epoch': 1.0}\n"
    "{'eval_loss': 2.31, 'eval_runtime': 41.3, 'epoch': 1.0}\n"
    "  3%|x| 120/4000 [03:10<1:42:11]\r 4%|y| 121/4000 [03:11]\n"
    " [2025-03-02 10:19:42] iteration       40/   25000 | elapsed time per iteration (ms): 27012.5 | lm loss: 9.1 |\n"
    ""
    "    forward-backward ....: (1371.20, 1398.44)\n  lr ......... 3e-05\n"
    "step: 440  loss:  5.2553  memory: 49.66GiB(52.28%)  tps: 5,868  mfu: 34.36%\n"
    "epoch=0/micro_step=40/global_step=40, CurrSamplesPerSec=3.99, MemAllocated=17.42GB\n"
    "Device MOC memory size: 62432M\nUsed peak memory usage (without fragments): 48874M\n"
    "channel_name: 29475464;\nhave_sent: 390;\nhost_queue: 0, 0, 1;\n"
    "2025-05-09-13:23:00.179.611 -> 2025-05-09-13:23:00.181.784\nTotalTime = 12.526, [16]\n[parse]: 0.0277\n"
    "{'batch_size': 32,\n 'lr': 0.0005}\nEI0002: notify from remote rank [3].\n......Saving ckpt......\n"
    "Finish saving ckpt of epoch 1 step 100 using 397.751 seconds\nValueError: bad shape\n"
    "Start compiling 'Net.construct' and\nEnd compiling 'Net.construct'.\n"
)
EVERYTHING = LOG + REST.encode()


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_damage_raises_or_leaves_an_empty_table(tmp_path_factory, data):
    text = bytearray(EVERYTHING)
    for _ in range(data.draw(st.integers(min_value=1, max_value=6))):
        position = data.draw(st.integers(min_value=0, max_value=len(text)))
        length = data.draw(st.integers(min_value=0, max_value=300))
        text[position : position + length] = data.draw(st.binary(max_size=20))
    path = tmp_path_factory.mktemp("damage") / "worker_0.log"
    path.write_bytes(bytes(text))
    readings = read_log(path, FileContext(root=path.parent))
    assert readings
    assert all(len(r.table) for r in readings.values())


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "1e400", "-1e400", "nan"])
def test_numbers_beyond_every_range_are_read_or_missing(tmp_path, number):
    for line in REST.splitlines():
        path = tmp_path / "worker_0.log"
        every = [line[: m.start()] + number + line[m.end() :] for m in re.finditer(r"\d+(\.\d+)?", line)]
        path.write_bytes(LOG + "\n".join(every).encode() + b"\n")
        assert len(steps(read_log(path, FileContext()))) >= 30


def test_several_ranks_on_one_stream(tmp_path):
    text = "".join(f"[rank{r}]: " + LINE.format(n, n, r + n) for n in (1, 2) for r in (0, 1, 2))
    table = steps(read_text(tmp_path, text, name="all.log"))
    assert table[["rank_id", "step", "loss"]].values.tolist() == [[r, n, r + n] for n in (1, 2) for r in (0, 1, 2)]


def test_ranks_that_cannot_be_told_apart_are_noted(tmp_path):
    readings = read_text(tmp_path, LINE.format(1, 1, 2.0) + LINE.format(1, 1, 3.0), name="all.log")
    assert steps(readings).loss.tolist() == [2.0, 3.0]
    assert "several ranks" in all_notes(readings)[0]


def test_long_preamble_does_not_hide_the_log(tmp_path):
    text = "a line of some library\n" * 5000 + LINE.format(1, 1, 2.0)
    assert len(text) > 65536
    assert steps(read_text(tmp_path, text)).loss.tolist() == [2.0]


@pytest.mark.parametrize(
    "text", ["", "hello\nworld\n", "step,loss\n1,2.0\n", '{"a": 1}', "Start compiling, says the text"]
)
def test_other_texts_are_no_logs(tmp_path, text):
    assert not sniff_log(tmp_path / "a.txt", text.encode())


def test_documents_about_logs_are_no_logs(tmp_path):
    assert not sniff_log(tmp_path / "case.md", LOG)


def test_log_without_any_known_line_is_an_error(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("nothing\n")
    with pytest.raises(UnreadableFileError, match="no line"):
        read_log(path, FileContext())


def test_number_of_messages_of_a_kind_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.readers.log_rows.MAX_MESSAGES_PER_KIND", 3)
    readings = read_text(tmp_path, LINE.format(1, 1, 2.0) + "Distribute Task Failed\n" * 5)
    assert len(messages(readings, "task_failed")) == 3
    assert any("only counted" in n for n in all_notes(readings))


def test_kind_is_declared():
    (kind,) = logs.KINDS
    assert kind.name == "training_log"
