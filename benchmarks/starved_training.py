"""Train behind a slow data pipeline, tune it, and train again: the runs of data_samples/data_starved.

    python benchmarks/starved_training.py OUT [--map-ms 5] [--steps 200]

Both runs record their steps and the profile of their pipeline. The slow operator waits for each sample, as a fetch from
remote storage does; the second run has the setting that `tune` recommends for the highest throughput.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GLOG_v", "4")

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore.train import Model

from workbench.probes.corpus import load_documents
from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, WarmupCosine, adamw
from workbench.probes.pipeline_tune import apply, tune
from workbench.probes.recorder import Recorder
from workbench.probes.text_dataset import training_samples, write_mindrecord
from workbench.probes.train_step import RecordedStep

BATCH = 8
CONTEXT = 64


class Fetch:
    """Waits for each sample."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """Wait, then hand the sample on."""
        time.sleep(self.seconds)
        return tokens


def train(run_dir: Path, dataset: ds.Dataset, *, steps: int) -> None:
    """Train `steps` steps on the pipeline, recorded with the profile of the pipeline."""
    ms.set_seed(1)
    network = ByteTransformer(ModelConfig(width=32, layers=2, heads=2, context_length=CONTEXT))
    step = RecordedStep(NextTokenLoss(network), adamw(network, WarmupCosine(4e-3, 20, steps)), clip_norm=1.0)
    recorder = Recorder(run_dir, config={"batch_size": BATCH, "context_length": CONTEXT}, seeds={"all": 1},
                        steps_total=steps, profile_data=True)  # fmt: skip
    Model(step).train(1, dataset, callbacks=[recorder], dataset_sink_mode=False)


def main() -> None:
    """Train, tune, train again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--map-ms", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ds.config.set_seed(1)
    samples = training_samples(load_documents(["english", "python"], limit_bytes=400_000), context_length=CONTEXT)
    samples = samples[: arguments.steps * BATCH]  # take() would read the rest of the epoch before it ends
    out = arguments.out.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # MindSpore leaves compiler output in the working directory
        file = write_mindrecord(samples, Path(folder) / "train.mindrecord", subsets=["english", "python"])
        read = ds.MindDataset(str(file), columns_list=["tokens", "targets"], shuffle=True, num_parallel_workers=1)
        slow = read.map(Fetch(arguments.map_ms / 1e3), ["tokens"], num_parallel_workers=1)
        dataset = slow.batch(BATCH, drop_remainder=True, num_parallel_workers=1)
        train(out / "starved", dataset, steps=arguments.steps)
        tuned = tune(dataset)
        print(tuned.table.to_string())
        print(f"recommended: {tuned.recommended}; gain {tuned.gain:.2f}")
        train(out / "tuned", apply(dataset, tuned.recommended), steps=arguments.steps)
        os.chdir(out)


if __name__ == "__main__":
    main()
