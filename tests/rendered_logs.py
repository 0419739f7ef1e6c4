"""Logs of made trainings in the words of several writers, for tests of the rules on logs."""

from datetime import datetime, timedelta

import pandas as pd

START = datetime(2025, 5, 11, 9, 0, 0)


def series(steps, **columns):
    """One row per printed step: step, loss, lr, ms (step time), norm, seconds (time of the line)."""
    frame = pd.DataFrame({"step": list(steps)}).assign(loss=2.0, lr=1e-5, ms=1000.0, norm=1.0).assign(**columns)
    if "seconds" not in frame:
        frame["seconds"] = (frame["ms"] * frame["step"].diff().fillna(frame["step"])).cumsum() / 1e3
    return frame


def stamp(seconds, form="%Y-%m-%d %H:%M:%S"):
    """Time of a line, with milliseconds where the form is MindFormers'."""
    time = START + timedelta(seconds=float(seconds))
    return time.strftime(form) + (f",{time.microsecond // 1000:03d}" if form.endswith("%S") else "")


def mindspore_stamp(seconds):
    """Time of a line of MindSpore itself."""
    time = START + timedelta(seconds=float(seconds))
    return time.strftime("%Y-%m-%d-%H:%M:%S") + f".{time.microsecond // 1000:03d}.{time.microsecond % 1000:03d}"


def mindformers(frame, *, planned, head="", overflow="False", extra=""):
    """MFLossMonitor of version 1.3."""
    lines = [
        f"{stamp(r.seconds)} - mindformers./output/log[mindformers/core/callback/callback.py:529] - INFO - "
        f"{{ Epoch:[  1/  1], step:[{r.step:5d}/{planned}], loss: {r.loss:.3f}, per_step_time: {r.ms:.0f}ms, "
        f"lr: {r.lr:.8g}, overflow cond: {overflow}, loss_scale: 1.0, global_norm: [{r.norm:.6g}]{extra}\n"
        for r in frame.itertuples()
    ]
    return head + "".join(lines)


def megatron(frame, *, planned, batch=64):
    """Megatron-LM and MindSpeed-LLM."""
    return "".join(
        f" [{stamp(r.seconds, '%Y-%m-%d %H:%M:%S.')[:-1]}] iteration {r.step:8d}/{planned:8d} | consumed samples: "
        f"{r.step * batch} | elapsed time per iteration (ms): {r.ms:.1f} | learning rate: {r.lr:.6E} | "
        f"global batch size: {batch} | lm loss: {r.loss:.6E} | loss scale: 1.0 | grad norm: {r.norm:.3f} | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for r in frame.itertuples()
    )


def huggingface(frame, *, planned, epochs=1.0):
    """Trainer of transformers, with the banner that tells the number of steps."""
    banner = f"  Num Epochs = {epochs:.0f}\n  Total optimization steps = {planned}\n"
    return banner + "".join(
        f"{{'loss': {r.loss:.4f}, 'grad_norm': {r.norm}, 'learning_rate': {r.lr}, "
        f"'epoch': {round(r.step / planned * epochs, 4)}}}\n"
        for r in frame.itertuples()
    )


def llama_factory(frame, *, planned):
    """trainer_log.jsonl."""
    return "".join(
        f'{{"current_steps": {r.step}, "total_steps": {planned}, "loss": {r.loss:.4f}, "lr": {r.lr}, '
        f'"epoch": {round(r.step / planned, 4)}, "percentage": 1.0, "elapsed_time": "0:10:00"}}\n'
        for r in frame.itertuples()
    )


def warning(seconds, text, *, level="WARNING", module="MD"):
    """A line of MindSpore's C++ side."""
    where = f"[{level}] {module}(90412,fffd2a7fc1e0,python):{mindspore_stamp(seconds)}"
    return f"{where} [mindspore/ccsrc/x.cc:915] Function] {text}\n"


def slow_data(seconds, limit=25):
    """A batch that came too late."""
    return warning(
        seconds,
        f"Bad performance attention, it takes more than {limit} seconds to fetch a batch of data from dataset pipeline,"
        " which might result `GetNext` timeout problem.",
    )


def notify_wait(seconds, remote, *, error="EI0002: The wait execution of the Notify register times out."):
    """What a rank prints that waited for another one in vain."""
    return (
        warning(seconds, "Run task for graph:kernel_graph_1 error!", level="ERROR", module="DEVICE")
        + "----------------------------------------------------\n- Ascend Error Message:\n"
        + f"{error} Reason: no Notify record from remote rank [{remote}].base information: [tag[AllReduce_world].]\n"
    )


def compiling(seconds, took, *, function="TrainStep.construct", made="1753863604551283712", counter=0, place="a.py.4"):
    """The three lines of one compilation of MindSpore."""
    phase = f"__main__.construct.{place}.{made}train.281471090423824.{counter}"
    return (
        warning(seconds, f"Start compiling, phase: {phase}", level="INFO", module="PIPELINE")
        + warning(seconds, f"Start compiling '{function}' and it will take a while. Please wait...", level="INFO",
                  module="PIPELINE")
        + warning(seconds + took, f"End compiling '{function}'.", level="INFO", module="PIPELINE")
    )  # fmt: skip
