"""A data-parallel training of two ranks, started by msrun, in which one rank's input sleeps before every batch."""

import argparse
import os
import time

os.environ.setdefault("GLOG_v", "4")

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.train import Model

from workbench.probes.recorder import Recorder


def data(steps: int, sleep_s: float) -> ds.GeneratorDataset:
    ds.config.set_prefetch_size(1)
    random = np.random.default_rng(0)

    def batches():
        for _ in range(steps):
            time.sleep(sleep_s)
            yield random.normal(0, 1, (8, 64)).astype(np.float32), random.integers(0, 8, 8).astype(np.int32)

    return ds.GeneratorDataset(batches, ["x", "y"], python_multiprocessing=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--sleep-ms", type=float, default=40)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.communication.init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, device_num=2)
    ms.set_seed(1)
    rank = ms.communication.get_rank()
    network = nn.SequentialCell(nn.Dense(64, 256), nn.ReLU(), nn.Dense(256, 8))
    with_loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    step = nn.TrainOneStepCell(with_loss, nn.Momentum(network.trainable_params(), 0.01, 0.9))
    recorder = Recorder(arguments.run, profile_steps=(10, 21))
    sleep_s = arguments.sleep_ms / 1e3 if rank == arguments.late_rank else 0.0
    Model(step).train(1, data(arguments.steps, sleep_s), callbacks=[recorder])


main()
