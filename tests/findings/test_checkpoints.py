"""Saving stalls from rendered logs of several writers and from a recorded run; healthy look-alikes stay silent."""

import datetime

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.made_run import made_steps, write_run
from workbench.analyses.checkpoint_saving import timed_by_gaps
from workbench.findings.checkpoints import find_checkpoint_stall
from workbench.tables import EVENTS, TRAINING_STEPS

START = datetime.datetime(2025, 3, 4, 9, 0, 0)


def stamp(seconds):
    return (START + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def mindformers_log(*, save_s, step_s=1.5, steps=300, every=50, per_line=5, blocks=True, says_saving=True, seed=0):
    """Lines of a MindFormers training; an asynchronous save (`blocks=False`) ends between later step lines."""
    random = np.random.default_rng(seed)
    clock, lines, pending = 0.0, [], []
    head = "mindformers./output/log[mindformers/core/callback/callback.py:{}] - INFO - "
    for step in range(per_line, steps + 1, per_line):
        ms = step_s * random.normal(1, 0.01)
        clock += ms * per_line
        lines += [finished(head, *p) for p in pending if p[0] <= clock]
        pending = [p for p in pending if p[0] > clock]
        lines.append(
            f"{stamp(clock)} - {head.format(626)}{{ Epoch:[  1/  1], step:[{step:5d}/ 9000], loss: 3.201, "
            f"per_step_time: {ms * 1000:.0f}ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.2], "
            "train_throughput_per_npu: 177.565T"
        )
        if step % every == 0:
            took = save_s * random.normal(1, 0.02)
            if says_saving:
                lines.append(f"{stamp(clock + 0.1)} - {head.format(1509)}......Saving ckpt......")
                pending.append((clock + 0.1 + took, step, took))
            clock += 0.1 + (took if blocks else 0.0)
    return "\n".join([*lines, *(finished(head, *p) for p in pending)]) + "\n"


def finished(head, end, step, took):
    return f"{stamp(end)} - {head.format(1431)}Finish saving ckpt of epoch 1 step {step} using {took:.3f} seconds"


def torchtitan_log(*, save_s, step_s=2.0, steps=240, every=60):
    clock, lines = 0.0, []
    head = "[titan] {} - root - INFO - "
    for step in range(1, steps + 1):
        clock += step_s
        lines.append(head.format(stamp(clock)) + f"step: {step}  loss:  5.2553  grad_norm:  1.47  memory: "
                     "49.66GiB(52.28%)  tps: 5,868  tflops: 339.85  mfu: 34.36%")  # fmt: skip
        if step % every == 0:
            lines.append(head.format(stamp(clock + 0.05)) + "Saving the checkpoint (or staging if async is enabled).")
            clock += save_s
            words = f"Finished saving the checkpoint (or staging if async is enabled)in {save_s:.2f} seconds."
            lines.append(head.format(stamp(clock)) + words)
    return "\n".join(lines) + "\n"


def diagnosed(folder, **files):
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    run = wb.open_run(folder, quiet=True)
    tables = {name: run.table(name) for name in run.tables}
    return find_checkpoint_stall(tables) if {"events", "training_steps"} <= set(tables) else []


@pytest.mark.parametrize("save_s", [20.0, 60.0, 250.0])
def test_blocking_saves_are_a_stall_with_its_share_by_hand(tmp_path, save_s):
    found = diagnosed(tmp_path, worker_0__log=mindformers_log(save_s=save_s))
    assert [f.cause for f in found] == ["checkpoint_stall"]
    share = 6 * save_s / (300 * 1.5 + 6 * save_s)  # six saves, 300 steps of 1.5 s
    facts = {e.fact: e.value for e in found[0].evidence}
    assert facts["share of wall time that saving takes"] == pytest.approx(share, rel=0.05)
    assert facts["seconds of a save"] == pytest.approx(save_s, rel=0.05)
    assert facts["gap between log times after a save, beyond the steps in between"] == pytest.approx(save_s, rel=0.1)
    assert found[0].saves_us_per_step == pytest.approx(6 * save_s * 1e6 / 300, rel=0.05)
    assert found[0].confidence == "high"
    assert found[0].severity == ("critical" if share >= 0.2 else "warning")


def test_asynchronous_saves_that_take_as_long_are_none(tmp_path):
    assert diagnosed(tmp_path, worker_0__log=mindformers_log(save_s=40.0, blocks=False)) == []


def test_short_saves_are_none(tmp_path):
    assert diagnosed(tmp_path, worker_0__log=mindformers_log(save_s=2.0)) == []


def test_torchtitan_lines_tell_the_same(tmp_path):
    found = diagnosed(tmp_path, train__log=torchtitan_log(save_s=200.0))
    assert [f.cause for f in found] == ["checkpoint_stall"]
    assert "200 s per checkpoint every 60 steps, as long as 100 steps" in found[0].title  # steps of 2 s, not stated
    facts = [e.fact for e in found[0].evidence]
    assert not any("stated step time" in fact for fact in facts)


def without_ends(text):
    return "".join(line for line in text.splitlines(keepends=True) if "Finish saving" not in line)


def test_a_save_without_an_end_lasts_as_long_as_the_gap_after_it(tmp_path):
    found = diagnosed(tmp_path, worker_0__log=without_ends(mindformers_log(save_s=60.0)))
    assert [f.cause for f in found] == ["checkpoint_stall"]
    facts = {e.fact: e.value for e in found[0].evidence}
    assert facts["seconds of a save"] == pytest.approx(60.0, rel=0.05)
    assert diagnosed(tmp_path, worker_0__log=without_ends(mindformers_log(save_s=40.0, blocks=False))) == []


def test_an_evaluation_at_the_step_of_an_open_save_is_no_saving():
    events = EVENTS.check(pd.DataFrame([
        {"rank_id": 0, "kind": "gap", "start_ns": 1, "duration_us": 70e6, "step": 100, "name": "between step lines"},
        {"rank_id": 0, "kind": "eval", "start_ns": 1, "duration_us": 60e6, "step": 100},
        {"rank_id": 0, "kind": "checkpoint", "start_ns": 1, "duration_us": np.nan, "step": 100},
        {"rank_id": 0, "kind": "checkpoint", "start_ns": 1, "duration_us": np.nan, "step": 200},
    ]))  # fmt: skip
    timed = timed_by_gaps(events)
    assert timed["duration_us"].tolist()[:3] == [70e6, 60e6, 10e6]  # 70 s between the lines, 60 s of them evaluation
    assert timed["duration_us"].isna().tolist() == [False, False, False, True]


def test_storage_figures_rule_the_disk_out(tmp_path):
    figures = "item,value,unit\ndisk_write_rate,1500,MB/s\nckpt_size,6,GB\nranks_that_write,4,count\n"
    found = diagnosed(tmp_path, worker_0__log=mindformers_log(save_s=100.0), storage__csv=figures)
    facts = {e.fact: e.value for e in found[0].evidence}
    assert facts["write rate of one rank"] == pytest.approx(0.06, rel=0.05)
    assert facts["write rate of all ranks"] == pytest.approx(0.24, rel=0.05)
    assert facts["write rate of the disk alone"] == pytest.approx(1.5)
    assert any(r.cause == "disk bandwidth" for r in found[0].rules_out)


def test_gaps_at_the_saving_interval_are_taken_for_saves_with_less_confidence(tmp_path):
    log = mindformers_log(save_s=60.0, says_saving=False)
    assert diagnosed(tmp_path, worker_0__log=log) == []  # nothing says what the gaps are
    found = diagnosed(tmp_path, settings__csv="name,value\nsave_checkpoint_steps,50\n")
    assert [(f.cause, f.confidence) for f in found] == [("checkpoint_stall", "medium")]


def test_one_rank_that_saves_while_the_others_wait_is_a_single_writer():
    steps = pd.concat([made_steps(200, rank_id=r, callbacks_us=40.0) for r in range(4)], ignore_index=True)
    late = (steps["step"].astype("int64") - 1) // 50 * 6_000_000_000  # 6 s after steps 50, 100 and 150, on every rank
    steps = steps.assign(time_ns=steps["time_ns"] + late)
    at = steps[(steps.rank_id == 0) & steps.step.isin([50, 100, 150])]
    events = pd.DataFrame({"rank_id": 0, "kind": "checkpoint", "start_ns": at.time_ns, "duration_us": 6e6,
                           "step": at.step, "name": "c"})  # fmt: skip
    found = find_checkpoint_stall({"events": EVENTS.check(events), "training_steps": TRAINING_STEPS.check(steps)})
    assert [f.cause for f in found] == ["checkpoint_single_writer"]
    assert "one process writes for 4 ranks" in found[0].title


def test_a_recorded_run_and_the_diagnosis_tell_it(tmp_path):
    steps = made_steps(200)
    late = (steps["step"].astype("int64") - 1) // 50 * 8_000_000_000
    steps = steps.assign(time_ns=steps["time_ns"] + late)
    events = [
        {"kind": "checkpoint", "start_ns": int(steps.time_ns[s - 1]), "duration_us": 8e6, "step": s, "name": f"c-{s}"}
        for s in (50, 100, 150)
    ]
    run = write_run(tmp_path / "run", steps, events=events)
    assert "checkpoint_stall" in [f.cause for f in wb.diagnose(run).causes]


def test_without_times_or_saves_nothing_is_said():
    steps = TRAINING_STEPS.check(made_steps(50))
    assert find_checkpoint_stall({"events": EVENTS.empty(), "training_steps": steps}) == []
    lone = EVENTS.check(pd.DataFrame([{"rank_id": 0, "kind": "checkpoint", "start_ns": 1, "duration_us": 1e9}]))
    without = steps.assign(time_ns=pd.NA)
    assert find_checkpoint_stall({"events": lone, "training_steps": without}) == []
