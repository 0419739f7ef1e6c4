"""Logs of whole jobs as Megatron, MindFormers and NCCL print them, for tests of rules that read several logs."""

import numpy as np


def megatron_job(*, step_ms, batch, tflops=None, steps=20, timers=None, start_lines=(), seed=0, noise=0.005):
    """Lines of one log: start-up lines, steps of `step_ms` (1 with compilation), timers {name: (min_ms, max_ms)}."""
    random = np.random.default_rng(seed)
    lines = list(start_lines)
    for step in range(1, steps + 1):
        ms = step_ms * (8 if step == 1 else 1 + random.normal(0, noise))
        flops = "" if tflops is None else f" throughput per GPU (TFLOP/s/GPU): {tflops * step_ms / ms:.1f} |"
        lines.append(
            f" [2025-03-02 10:{step // 60:02d}:{step % 60:02d}] iteration {step:8d}/     500 | consumed samples: "
            f"{step * batch:12d} | elapsed time per iteration (ms): {ms:.1f} |{flops} global batch size: {batch:5d} | "
            f"lm loss: {9 - step / 100:.6E} | loss scale: 1.0 | grad norm: 2.1 |"
        )
        if timers and step % 5 == 0:
            lines += [f"    {name} {'.' * 20}: ({low:.2f}, {high:.2f})" for name, (low, high) in timers.items()]
    return lines


def nccl_start(host, *, network="Socket", reason=None, pid=3105):
    """Start-up lines of NCCL on a host."""
    head = f"{host}:{pid}:{pid + 7} [0] NCCL INFO "
    lines = [head + "Bootstrap : Using eth0:10.0.0.1<0>"]
    reasons = {
        "no device": "NET/IB : No device found.",
        "disabled": "NCCL_IB_DISABLE set by environment to 1.",
        "allowed": "NCCL_IB_DISABLE set by environment to 0.",
        "mlx": "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
    }
    lines += [head + reasons[reason]] if reason else []
    return [*lines, head + f"Using network {network}"]


def mindformers_job(*, step_ms, devices, batch, steps=20, seed=0):
    """Lines of one rank's log of MindFormers; the device count stands in the batch line and in samples per device."""
    random = np.random.default_rng(seed)
    head = "2025-05-11 09:{:02d}:{:02d},118 - mindformers./output/log[mindformers/core/callback.py:529] - INFO - "
    per_device = batch // devices
    lines = [head.format(0, 0) + "global_batch_size = batch_size_per_card * device_num * gradient_accumulation_steps "
             f"= {per_device} * {devices} * 1 = {batch}"]  # fmt: skip
    for step in range(1, steps + 1):
        ms = step_ms * (8 if step == 1 else 1 + random.normal(0, 0.005))
        lines.append(
            head.format(1 + step // 60, step % 60) + f"{{ Epoch:[  1/  1], step:[{step:5d}/ 6500], loss: 8.1, "
            f"per_step_time: {ms:.0f}ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0"
        )
        lines.append(f"   0.2% |{' ' * 50}| {batch / devices / ms * 1e3:.5f} samples/s/p  2:29:40 }}")
    return lines
