"""A tiny real training with a Recorder, run by test_recorder.py; prints what it computed by hand."""

import argparse
import errno
import json
import os
import time

os.environ.setdefault("GLOG_v", "4")

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, WarmupCosine, adamw
from workbench.probes.recorder import Recorder
from workbench.probes.signals import layer_group
from workbench.probes.train_step import RecordedStep

STEPS = 6


class ByHand(Callback):
    """Before each step, differentiate the same batch and compute the norms in numpy."""

    def __init__(self, network, optimizer, nan_at):
        super().__init__()
        self.steps = []
        self.optimizer = optimizer
        self.parameters = network.trainable_params()
        self.gradient = ms.value_and_grad(network, None, self.parameters)
        self.nan_at = nan_at
        self.first_parameter_norm = None

    def on_train_step_begin(self, run_context):
        params = run_context.original_args()
        if params.cur_step_num == self.nan_at:
            self.parameters[0].set_data(ms.Tensor(np.full(self.parameters[0].shape, np.nan, np.float32)))
        loss, gradients = self.gradient(*params.train_dataset_element)
        squares = [float((g.asnumpy().astype(np.float64) ** 2).sum()) for g in gradients]
        groups = {}
        for parameter, square in zip(self.parameters, squares, strict=True):
            groups[layer_group(parameter.name)] = groups.get(layer_group(parameter.name), 0.0) + square
        self.steps.append(
            {
                "loss": float(loss.asnumpy()),
                "gradient_norm": sum(squares) ** 0.5,
                "groups": {g: s**0.5 for g, s in groups.items()},
                "learning_rate": float(np.ravel(self.optimizer.get_lr().asnumpy())[0]),
            }
        )

    def on_train_step_end(self, run_context):
        if self.first_parameter_norm is None:
            squares = [(p.asnumpy().astype(np.float64) ** 2).sum() for p in self.parameters]
            self.first_parameter_norm = float(sum(squares)) ** 0.5


class Sleeper(Callback):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_step_end(self, run_context):
        time.sleep(self.seconds)


class FullDisk:
    """A file on a disk without space."""

    def write(self, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self):
        pass


class FillDisk(Callback):
    def __init__(self, recorder, step):
        super().__init__()
        self.recorder, self.step = recorder, step

    def on_train_step_begin(self, run_context):
        if run_context.original_args().cur_step_num == self.step:
            files = self.recorder.writer._open
            for path in files:
                files[path] = FullDisk()


def build(arguments):
    ms.set_seed(3)
    config = ModelConfig(width=8, layers=2, heads=2, context_length=16)
    network = ByteTransformer(config)
    with_loss = NextTokenLoss(network)
    optimizer = adamw(network, WarmupCosine(1e-2, 2, STEPS))
    if arguments.step == "recorded":
        return with_loss, optimizer, RecordedStep(with_loss, optimizer, clip_norm=0.5)
    return with_loss, optimizer, nn.TrainOneStepCell(with_loss, optimizer, return_grad=arguments.step == "return_grad")


def data(slow_ms, steps=STEPS):
    ds.config.set_prefetch_size(1)
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 256, (steps * 4, 2, 16)).astype(np.int32)

    class Source:
        def __len__(self):
            return len(rows)

        def __getitem__(self, i):
            time.sleep(slow_ms / 1e3 / 4)
            return rows[i][0], rows[i][1]

    return ds.GeneratorDataset(Source(), ["tokens", "targets"], shuffle=False, python_multiprocessing=False).batch(4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("mode", choices=["graph", "pynative"])
    parser.add_argument("--step", default="recorded")
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--slow-data-ms", type=float, default=0)
    parser.add_argument("--slow-callback-ms", type=float, default=0)
    parser.add_argument("--nan-at", type=int)
    parser.add_argument("--full-disk-at", type=int)
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    with_loss, optimizer, step = build(arguments)
    config = {"model": {"width": 8}, "note": "nested"}
    recorder = Recorder(arguments.run, config=config, profile_steps=(2, 3) if arguments.profile else None)
    out = {"finished": True}
    if arguments.loop:
        step.set_train()
        with recorder:
            recorder.bind(step)
            for batch in recorder.batches(data(0).create_tuple_iterator()):
                recorder.end_step(step(*batch))
    else:
        by_hand = ByHand(with_loss, optimizer, arguments.nan_at)
        saving = ModelCheckpoint("tiny", os.path.join(arguments.run, "checkpoints"), CheckpointConfig(3))
        callbacks = [by_hand, recorder, saving]
        if arguments.slow_callback_ms:
            callbacks.append(Sleeper(arguments.slow_callback_ms / 1e3))
        if arguments.full_disk_at:
            callbacks.append(FillDisk(recorder, arguments.full_disk_at))
        for _ in range(2 if arguments.twice else 1):
            Model(step).train(1, data(arguments.slow_data_ms, arguments.steps), callbacks=callbacks)
        out |= {"steps": by_hand.steps, "first_parameter_norm": by_hand.first_parameter_norm}
    print(json.dumps({**out, "lost_records": recorder.writer.lost_records}))


main()
