"""Layer probes on real trainings: how far healthy layers depart from their kind, whether damaged ones are named, cost.

    python benchmarks/layer_probe.py drift [--seeds 1 2 3] [--steps 240] [--keep FOLDER]
    python benchmarks/layer_probe.py cost [--rounds 3] [--steps 60]

`drift` trains the rehearsal model (graph mode, CPU) healthy and with one layer's weights scaled at half of the run, and
prints the largest departure of each run beside the verdict. `cost` trains with and without the probe in turns, in both
modes, and prints the ratio of the median steps. Each training is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FAULTS = {"healthy": None, "mlp_out x 8": ("mlp_out", 8.0), "attention.out x 0.1": ("attention.out", 0.1)}


def child(arguments: argparse.Namespace) -> None:
    """One training into `folder`."""
    os.environ.setdefault("GLOG_v", "4")
    import mindspore as ms
    from mindspore.train import Callback, Model

    from workbench.probes import LayerProbe, RecordedStep, Recorder
    from workbench.probes.corpus import load_documents
    from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, WarmupCosine, adamw
    from workbench.probes.text_dataset import token_pipeline, training_samples, write_mindrecord

    folder = arguments.folder
    (folder / "work").mkdir(parents=True)
    os.chdir(folder / "work")  # MindSpore leaves compiler output in the working directory
    ms.set_device("CPU")
    ms.set_context(mode=ms.PYNATIVE_MODE if arguments.mode == "pynative" else ms.GRAPH_MODE)
    ms.set_seed(arguments.seed)
    model = ModelConfig(width=64, layers=4, context_length=64)

    class Damage(Callback):
        def on_train_step_end(self, run_context):
            part, factor = FAULTS[arguments.fault]
            if run_context.original_args().cur_step_num == arguments.steps // 2:
                weight = next(p for p in network.get_parameters() if p.name.endswith(f"blocks.2.{part}.weight"))
                weight.set_data(weight * factor)

    documents = load_documents(limit_bytes=200_000)
    samples = training_samples(documents, context_length=model.context_length, seed=arguments.seed)
    data = write_mindrecord(samples, folder / "data.mindrecord", subsets=sorted({d.subset for d in documents}))
    dataset = token_pipeline(data, batch_size=8, seed=arguments.seed)
    dataset = dataset.repeat(arguments.steps // dataset.get_dataset_size() + 1).take(arguments.steps)
    network = ByteTransformer(model)
    recorder = Recorder(folder / "run", config={"width": 64, "layers": 4}, seeds={"all": arguments.seed})
    callbacks = [recorder]
    if arguments.every:
        callbacks.append(LayerProbe(network, recorder, every=arguments.every))
    if FAULTS[arguments.fault]:
        callbacks.append(Damage())
    optimizer = adamw(network, WarmupCosine(2e-3, 20, arguments.steps))
    Model(RecordedStep(NextTokenLoss(network), optimizer, clip_norm=1.0)).train(1, dataset, callbacks=callbacks)


def train(folder: Path, **options: object) -> Path:
    """Train once in a process of its own; return the run directory."""
    words = [sys.executable, __file__, "child", "--folder", str(folder)]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "run"


def drift(arguments: argparse.Namespace) -> None:
    """Departures of healthy and damaged trainings."""
    from workbench.analyses import layer_statistics
    from workbench.findings.layers import find_layer_drift
    from workbench.run import open_run

    print("| seed | fault | largest departure, factor | first finding |\n| --- | --- | --- | --- |")
    for seed in arguments.seeds:
        for fault in FAULTS:
            with tempfile.TemporaryDirectory() as folder:
                root = train(Path(folder) / "x", seed=seed, fault=fault, steps=arguments.steps, every=5)
                table = open_run(root, quiet=True).table("layer_statistics")
                if arguments.keep:
                    shutil.copytree(root, arguments.keep / f"{fault.replace(' ', '_')}_{seed}")
            largest = max(departures(table, layer_statistics))
            findings = find_layer_drift(table)
            print(f"| {seed} | {fault} | {2**largest:.2f} | {findings[0].title if findings else 'none'} |", flush=True)


def departures(table, analysis) -> list[float]:
    """Largest log2 departure per measure, whatever the thresholds say."""
    found = []
    for measure in analysis.LOG_MEASURES:
        values = analysis._matrix(analysis.whole_rows(table), measure)
        changes = analysis._log2(values) - analysis._log2(values.iloc[analysis._quarter(len(values))].median())
        own = changes - analysis._of_peers(changes)
        found.append(float(own.tail(max(len(values) // 5, 3)).median().abs().max()))
    return found


def cost(arguments: argparse.Namespace) -> None:
    """Median step with and without the probe, in turns."""
    from workbench.run import open_run

    print("| mode | without, ms | every 10 steps, ms | ratio | compile without, s | with, s |\n|" + " --- |" * 6)
    for mode, count in (("graph", arguments.steps), ("pynative", arguments.steps // 3)):
        times: dict[int, list[float]] = {0: [], 10: []}
        first: dict[int, float] = {}
        for _ in range(arguments.rounds):
            for every in times:
                with tempfile.TemporaryDirectory() as folder:
                    root = train(Path(folder) / "x", seed=1, fault="healthy", steps=count, every=every, mode=mode)
                    table = open_run(root, quiet=True).table("training_steps")
                run_us = table["step_us"] - table["data_wait_us"] + table["callbacks_us"].shift(-1).fillna(0.0)
                times[every] += run_us.iloc[5:].tolist()
                first[every] = table["step_us"].iloc[0] / 1e6
        without, with_probe = (float(np.mean(times[k])) / 1e3 for k in (0, 10))
        steps = f"{without:.1f} | {with_probe:.1f} | {with_probe / without:.3f}"
        print(f"| {mode} | {steps} | {first[0]:.1f} | {first[10]:.1f} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["drift", "cost", "child"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder to keep the runs of `drift` in")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--fault", choices=list(FAULTS), default="healthy", help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=10, help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    {"drift": drift, "cost": cost, "child": child}[arguments.what](arguments)


if __name__ == "__main__":
    main()
