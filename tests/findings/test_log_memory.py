"""Failures and peaks as logs print them, in several forms and sizes -> the cause that the rules name."""

import pandas as pd
import pytest

import workbench as wb
from tests.log_text import read_text
from workbench.findings.log_memory import find_memory_failures
from workbench.findings.stage_memory import find_stage_imbalance_in_logs
from workbench.tables import LOG_MESSAGES, SETTINGS, TELEMETRY

GIB, MIB = 2**30, 2**20
PREFIX = "2025-06-03 10:11:{:02d},118 - mindformers./output/log[mindformers/trainer/base_trainer.py:954] - INFO - "
STEP = "{{ Epoch:[  1/  2], step:[{:5d}/ 6500], loss: 10.631, per_step_time: 577ms, lr: 1e-05, overflow cond: False, "
BUILD = PREFIX.format(1) + ".........Build Net For Train.........."
COMPILE = PREFIX.format(3) + ".........Model Compiling, Please Wait a Moment..........."
LOAD = PREFIX.format(2) + "............Start load checkpoint from file............"


def step(number):
    return PREFIX.format(10 + number) + STEP.format(number) + "loss_scale: 1.0"


def pool_line(free_gib, request_gib):
    return (
        "[ERROR] DEVICE(77,ffff0b5ff1e0,python):2025-06-03-10:11:50.771.206 [mindspore/ccsrc/pool.cc:331] operator()] "
        f"Memory not enough: current free memory size[{int(free_gib * GIB)}] is smaller than required "
        f"size[{int(request_gib * GIB)}]."
    )


def alloc_line(kernel, request_gib, device=0):
    request = int(request_gib * GIB)
    return (
        f"Device(id:{device}) memory isn't enough and alloc failed, kernel name: {kernel}, alloc size: {request}B.\n"
        "RuntimeError: Memory not enough:"
    )


def in_use(device, total_gib, free_gib, word="MOC"):
    return (
        "RuntimeError: Malloc device memory failed, free memory size is less than half of total memory size."
        f"Device {device} Device {word} total size:{int(total_gib * GIB)} Device {word} free size:"
        f"{int(free_gib * GIB)} may be other processes occupying this card, check as: ps -ef|grep python"
    )


def torch_oom(tried, total, allocated, free, reserved, device="NPU"):
    return (
        f"RuntimeError: {device} out of memory. Tried to allocate {tried} GiB ({device} 3; {total} GiB total capacity; "
        f"{allocated} GiB already allocated; {allocated} GiB current active; {free} GiB free; "
        f"{reserved} GiB reserved in total by PyTorch)"
    )


def new_torch_oom(tried_mib, total, own, allocated, reserved, *processes):
    """The text of torch from 2.1 on; nothing but half a GiB is free."""
    others = "".join(f"Process {pid} has {size} GiB memory in use. " for pid, size in processes)
    own = f"Including non-PyTorch memory, this process has {own} GiB memory in use. " if own else ""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried_mib} MiB. GPU 2 has a total capacity of "
        f"{total} GiB of which 512.00 MiB is free. {others}{own}Of the allocated memory {allocated} GiB is allocated "
        f"by PyTorch, and {reserved - allocated:.2f} GiB is reserved by PyTorch but unallocated."
    )


def messages(folder, *logs):
    parts = [
        read_text(folder, "\n".join(lines) + "\n", f"worker_{rank}.log")["log_messages"].table
        for rank, lines in enumerate(logs)
    ]
    return pd.concat(parts, ignore_index=True)


def setting_rows(**values):
    names = [f"parallel_config.{name}" for name in values]
    return SETTINGS.check(pd.DataFrame({"name": names, "value": [str(v) for v in values.values()]}))


def facts(finding):
    return {e.fact: e.value for e in finding.evidence}


@pytest.mark.parametrize(
    ("lines", "settings", "cause", "confidence"),
    [
        ([BUILD, in_use(2, 61, 5)], {}, "device_shared_with_other_process", "high"),
        ([in_use(7, 32, 15, word="HBM")], {}, "device_shared_with_other_process", "high"),
        ([torch_oom(0.5, 60.96, 8.2, 0.3, 9.1)], {}, "device_shared_with_other_process", "high"),
        ([COMPILE, step(1), torch_oom(5.03, 60.96, 49.47, 1.32, 57.55)], {}, "fragmentation", "high"),
        ([COMPILE, torch_oom(2.5, 79.1, 60.4, 1.0, 76.9, "CUDA")], {}, "fragmentation", "high"),
        ([COMPILE, torch_oom(2.5, 79.1, 76.4, 1.0, 76.9, "CUDA")], {}, "out_of_memory", "medium"),
        ([COMPILE, torch_oom(24.0, 79.1, 41.0, 35.0, 41.9, "CUDA")], {}, "single_request_too_large", "high"),
        ([new_torch_oom(900, 79.1, 2.1, 1.5, 1.6, (4123, 76.4))], {}, "device_shared_with_other_process", "high"),
        ([new_torch_oom(900, 79.1, 0, 76.2, 76.5, (4123, 78.5))], {}, "out_of_memory", "medium"),  # itself
        ([step(1), new_torch_oom(900, 79.1, 78.5, 58.3, 58.9)], {}, "out_of_memory", "medium"),  # its links and graphs
        ([step(1), new_torch_oom(900, 79.1, 78.5, 61.3, 76.5)], {}, "fragmentation", "high"),
        ([COMPILE, pool_line(9, 37), alloc_line("Default/loss/Softmax-op7", 37)], {"max_device_memory": "58GB"},
         "single_request_too_large", "high"),
        ([COMPILE, pool_line(3, 10.5), alloc_line("Default/Cast-op7", 10.5)], {"max_device_memory": "58GB"},
         "single_request_too_large", "medium"),
        ([COMPILE, pool_line(3, 30), alloc_line("kernel_graph_1", 30)], {"max_device_memory": "58GB"},
         "out_of_memory", "medium"),  # the tensors of a graph together
        ([COMPILE, pool_line(1, 2.3)], {"max_device_memory": "58GB"}, "out_of_memory", "medium"),
        ([LOAD, pool_line(0.2, 0.4)], {}, "out_of_memory", "medium"),
        ([COMPILE, "Device HBM memory size: 62432M", "MindSpore Used memory size: 30720M", pool_line(1, 2.3)], {},
         "memory_limit_too_low", "high"),
        ([COMPILE, "Device HBM memory size: 62432M", "MindSpore Used memory size: 57344M", pool_line(1, 2.3)], {},
         "out_of_memory", "medium"),  # 5 GiB below the card: driver and links need them
        ([COMPILE, "Device HBM memory size: 62432M", "MindSpore Used memory size: 46080M", pool_line(1, 28)], {},
         "single_request_too_large", "high"),  # more limit would not do
        ([COMPILE, step(1), "device memory pool info: Total allocated mem:49152M, peak used mem:46021M, in used "
          "mem:44870M, total idle mem:4282M.", pool_line(0, 3.1)], {}, "fragmentation", "high"),
    ],
)  # fmt: skip
def test_the_cause_of_a_failure(tmp_path, lines, settings, cause, confidence):
    found = find_memory_failures(messages(tmp_path, lines), setting_rows(**settings))
    assert [(f.cause, f.confidence, f.severity) for f in found] == [(cause, confidence, "critical")]


@pytest.mark.parametrize(
    ("lines", "phase", "done"),
    [
        ([BUILD, pool_line(1, 2)], "init", 0),
        ([BUILD, LOAD, pool_line(1, 2)], "load", 0),
        ([BUILD, COMPILE, pool_line(1, 2)], "first step", 0),
        ([COMPILE, step(1), step(2), pool_line(1, 2)], "late", 2),
        ([pool_line(1, 2)], "unknown", None),
    ],
)
def test_the_phase_comes_first(tmp_path, lines, phase, done):
    found = find_memory_failures(messages(tmp_path, lines))[0]
    told = facts(found)
    assert told["phase of the failure"] == phase
    assert told.get("steps finished before the failure", told.get("last step before the failure")) == done
    assert found.steps.first == (3 if phase == "late" else None)


def test_one_failure_that_is_told_in_several_lines_has_all_sizes(tmp_path):
    lines = [COMPILE, pool_line(9, 37), alloc_line("Default/loss/Softmax-op7", 37, device=3)]
    found = find_memory_failures(messages(tmp_path, lines), setting_rows(max_device_memory="58GB"))[0]
    assert found.culprit.op == "Default/loss/Softmax-op7"
    told = facts(found)
    assert (told["requested"], told["free at that time"], told["limit of the pool"]) == (37, 9, 58)
    assert "37.0 GiB, 64% of the 58.0 GiB" in found.title  # 37 / 58


def test_one_card_of_eight_is_held_and_the_usage_table_says_so(tmp_path):
    log = messages(tmp_path, [BUILD], [BUILD, in_use(1, 61, 6.1)])
    used = [3.3, 55.0, 3.4, 3.3, 3.3, 3.3, 3.3, 3.3]
    rows = [
        {"host": "", "device_id": d, "metric": f"device_memory_{m}_bytes", "value": v * GIB}
        for d, u in enumerate(used)
        for m, v in (("used", u), ("total", 61))
    ]
    found = find_memory_failures(log, None, TELEMETRY.check(pd.DataFrame(rows)))[0]
    told = facts(found)
    assert (found.cause, found.culprit.rank) == ("device_shared_with_other_process", 1)
    assert told["free share of the card"] == pytest.approx(0.1)
    assert (told["ranks that fail so"], told["cards more than half in use"]) == (1, 1)
    assert told["in use on card 1"] == pytest.approx(55)
    assert told["in use on the other cards, median"] == pytest.approx(3.3)
    assert {r.cause for r in found.rules_out} >= {"stage_imbalance", "fragmentation"}


def dry_run(levels_gib, budget_mib=59392, fragments=1.01, world=64):
    lines = []
    for stage, level in enumerate(levels_gib):
        lines += [f"# dry run, pipeline stage {stage}, rank {stage * world // len(levels_gib)}",
                  "Device MOC memory size: 62430M", f"MindSpore Used memory size: {budget_mib}M",
                  "MindSpore memory base address: 0",
                  f"Used peak memory usage (without fragments): {int(level * 1024 / fragments)}M",
                  f"Actual peak memory usage (with fragments): {int(level * 1024)}M", ""]  # fmt: skip
    return lines


def test_a_stage_over_the_limit_while_the_others_have_room(tmp_path):
    log = messages(tmp_path, [COMPILE, pool_line(1, 2.3), alloc_line("kernel_graph_0", 2.3)], dry_run([70, 66]),
                   dry_run([63, 55, 40, 47]))  # fmt: skip
    settings = setting_rows(pipeline_stage=4, vocab_size=151936, offset="[0, 0, 0, 0]")
    found = find_memory_failures(log, settings)
    assert [(f.cause, f.severity, f.confidence) for f in found] == [("stage_imbalance", "critical", "high")]
    told = facts(found[0])
    assert (found[0].culprit.stage, found[0].culprit.rank) == (0, 0)
    assert told["spread of the peaks over the stages"] == 63 - 40
    assert told["mean of the stages"] == (63 + 55 + 40 + 47) / 4
    assert (told["limit of the pool (budget)"], told["stages over the budget"]) == (58, 1)
    assert told["highest peak with 2 stages; with 4 it is -10%"] == 70  # 63 / 70 = 0.9
    assert told["vocabulary of the embedding, which lies on the first stage"] == "151936"
    assert told["allocation that failed on rank 0 (first step)"] == pytest.approx(2.3, rel=1e-6)
    assert "stage 0 to stage 2 or 3" in found[0].fix
    assert [r.cause for r in found[0].rules_out] == ["fragmentation", "out_of_memory"]


def test_the_last_stage_can_be_the_full_one(tmp_path):
    found = find_memory_failures(messages(tmp_path, dry_run([40, 42, 44, 63])))[0]
    assert (found.cause, found.culprit.stage, found.culprit.rank) == ("stage_imbalance", 3, 48)
    assert [r.because for r in found.rules_out if r.cause == "out_of_memory"] == [
        "all stages together fit; only stage 3 is beyond the limit, and fails there"
    ]
    assert not any(e.table == "settings" for e in found.evidence)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([66, 64, 62, 61], [("out_of_memory", "critical")]),  # all over the limit: the model is too large
        ([50, 48, 47, 49], []),
        ([55, 50, 45, 40], [("stage_imbalance", "info")]),  # 1F1B's own, and it fits
        ([40, 55, 41, 42], [("stage_imbalance", "warning")]),  # fits into 58 GiB, but closely, and 15 GiB lie idle
        ([38, 50, 39, 40], [("stage_imbalance", "info")]),  # as uneven, with 8 of 58 GiB to spare: no harm done
    ],
)
def test_even_and_falling_stages(tmp_path, levels, expected):
    found = find_memory_failures(messages(tmp_path, dry_run(levels)))
    assert [(f.cause, f.severity) for f in found] == expected


def test_stages_of_logs_that_name_ranks_only(tmp_path):
    log = messages(tmp_path, *([line for line in dry_run([level])[1:]] for level in (62, 44, 45, 46)))
    assert find_memory_failures(log) == []  # nothing tells that the ranks are stages
    found = find_memory_failures(log, setting_rows(pipeline_stage=2))[0]
    assert (found.cause, found.culprit.stage, found.culprit.rank) == ("stage_imbalance", 0, 0)


def test_stages_that_only_the_names_of_the_logs_tell(tmp_path):
    for stage, level in enumerate((62, 44, 45, 46)):
        (tmp_path / f"stage{stage}.log").write_text("\n".join(dry_run([level])[1:]) + "\n")
    run = wb.open_run(tmp_path, quiet=True)
    found = find_memory_failures(run.table("log_messages"))
    assert [(f.cause, f.culprit.stage) for f in found] == [("stage_imbalance", 0)]


def test_megatron_reports_of_ranks(tmp_path):
    line = "[Rank {}] (after 4 iterations) memory (MB) | max allocated: {} | reserved: 2.0 | max reserved: {}"
    report = [" [2025-03-02 10:19:42] iteration       40/   25000 | consumed samples:  40 | lm loss: 9.1E+00 |"]
    report += [line.format(r, level * 1000, level * 1010) for r, level in enumerate((60, 40, 41, 40))]
    settings = setting_rows(pipeline_model_parallel_size=4)
    found = find_memory_failures(messages(tmp_path, report), settings)
    assert [(f.cause, f.severity, f.culprit.stage) for f in found] == [("stage_imbalance", "warning", 0)]


def test_healthy_logs_and_empty_tables_find_nothing(tmp_path):
    assert find_memory_failures(messages(tmp_path, [BUILD, COMPILE, step(1), step(2)])) == []
    assert find_memory_failures(LOG_MESSAGES.empty(), SETTINGS.empty(), TELEMETRY.empty()) == []
    assert find_stage_imbalance_in_logs(pd.DataFrame()) == []
