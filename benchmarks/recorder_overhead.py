"""Step time with and without the Recorder: two processes that take turns, so that a drifting machine hits both alike.

python benchmarks/recorder_overhead.py [--blocks 40] [--steps-per-block 10] [--step clip|plain]

Both train the rehearsal model with `Model.train` on the same batches. "without" is what a script has today: MindSpore's
own `TrainOneStepCell` (with `--step clip` a subclass that clips by `ops.clip_by_global_norm`); "with" is RecordedStep
and a Recorder with default settings. A step's time runs from the end of one step's callbacks to the end of the next's.
Prints the ratio of the medians and a 95 % bootstrap interval over pairs of blocks.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

WARMUP_STEPS = 8
GOAL = 1.01


def child(arguments):
    """Train; after each block of steps report its step times and wait for the next turn."""
    os.environ.setdefault("GLOG_v", "4")
    import mindspore as ms
    import mindspore.dataset as ds
    from mindspore import nn, ops
    from mindspore.train import Callback, Model

    from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, WarmupCosine, adamw
    from workbench.probes.recorder import Recorder
    from workbench.probes.train_step import RecordedStep

    class ClippedStep(nn.TrainOneStepCell):
        def construct(self, *inputs):
            loss = self.network(*inputs)
            sens = ops.fill(loss.dtype, loss.shape, self.sens)
            gradients = self.grad_reducer(self.grad(self.network, self.weights)(*inputs, sens))
            gradients = ops.clip_by_global_norm(gradients, 1.0)
            return ops.depend(loss, self.optimizer(gradients))

    class Turns(Callback):
        def __init__(self):
            super().__init__()
            self.times, self.last, self.warm = [], 0.0, False

        def on_train_step_end(self, run_context):
            params = run_context.original_args()
            loss = params.net_outputs
            (loss[0] if isinstance(loss, tuple) else loss).asnumpy()
            now = time.perf_counter()
            if params.cur_step_num > WARMUP_STEPS:
                self.times.append(now - self.last)
            if params.cur_step_num >= WARMUP_STEPS and (len(self.times) == arguments.steps_per_block or not self.warm):
                self.warm = True
                print(" ".join(f"{t:.9f}" for t in self.times), flush=True)
                self.times = []
                if sys.stdin.readline() == "":
                    sys.exit(0)
            self.last = time.perf_counter()

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    config = ModelConfig()
    steps = WARMUP_STEPS + arguments.blocks * arguments.steps_per_block
    network = NextTokenLoss(ByteTransformer(config))
    optimizer = adamw(network, WarmupCosine(1e-3, 10, steps))
    callbacks = [Turns()]
    if arguments.child == "with":
        cell = RecordedStep(network, optimizer, clip_norm=1.0 if arguments.step == "clip" else None)
        callbacks.insert(0, Recorder(tempfile.mkdtemp(prefix="overhead_")))
    else:
        cell = (ClippedStep if arguments.step == "clip" else nn.TrainOneStepCell)(network, optimizer)
    rows = np.random.default_rng(0).integers(0, 256, (64, 2, config.context_length)).astype(np.int32)
    data = ds.NumpySlicesDataset((rows[:, 0], rows[:, 1]), ["tokens", "targets"], shuffle=False)
    data = data.batch(8).repeat(steps // 8 + 1).take(steps)
    Model(cell).train(1, data, callbacks=callbacks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps-per-block", type=int, default=10)
    parser.add_argument("--step", choices=["clip", "plain"], default="clip")
    parser.add_argument("--child", choices=["with", "without"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    words = [sys.executable, __file__, "--blocks", str(arguments.blocks), "--step", arguments.step]
    words += ["--steps-per-block", str(arguments.steps_per_block)]
    processes = {
        role: subprocess.Popen(
            [*words, "--child", role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for role in ("without", "with")
    }
    for process in processes.values():  # both compiled and warmed up
        while process.stdout.readline().strip():
            pass
    times = {role: [] for role in processes}
    for block in range(arguments.blocks):
        order = list(processes) if block % 2 == 0 else list(processes)[::-1]
        for role in order:
            processes[role].stdin.write("go\n")
            processes[role].stdin.flush()
            times[role].append([float(word) for word in processes[role].stdout.readline().split()])
    for process in processes.values():
        process.stdin.close()
        process.wait()
    report(np.array(times["with"]), np.array(times["without"]), arguments)


def report(recorded, plain, arguments):
    """Print medians, ratio and interval; arrays are (block, step) in seconds."""
    generator = np.random.default_rng(0)
    draws = generator.integers(0, len(plain), (4000, len(plain)))
    ratios = [np.median(recorded[d]) / np.median(plain[d]) for d in draws]
    low, high = np.quantile(ratios, [0.025, 0.975])
    ratio = np.median(recorded) / np.median(plain)
    print(f"step kind: {arguments.step}; {plain.size} steps each, in turns of {arguments.steps_per_block}")
    print(f"median step without Recorder: {np.median(plain) * 1e3:8.2f} ms")
    print(f"median step with Recorder:    {np.median(recorded) * 1e3:8.2f} ms")
    verdict = "met" if ratio <= GOAL else "not met"
    print(f"ratio {ratio:.4f}, 95 % interval {low:.4f} to {high:.4f}; goal <= {GOAL}: {verdict}")


if __name__ == "__main__":
    main()
