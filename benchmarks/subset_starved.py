"""Train a small model for real, let one subset's sampling share fall to zero half-way, and see what is diagnosed.

    python benchmarks/subset_starved.py --seeds 1 2 3 --write docs/evaluation.md

Each training records the samples that it uses and evaluates the same held-out windows every 20 steps. With the fault
the diagnosis has to name the subset, the step and the cause; the same training without it has to stay silent. Each
takes about half a minute on two cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from document import write_section

from workbench.findings.diagnosis import diagnose

EVERY = 20  # steps between evaluations
SHOWN = ("data_mix_shift", "subset_regression", "forgetting", "tokenizer_special_tokens", "context_length_shift")


class Plan(NamedTuple):
    """One training; `subset` None leaves the mix alone."""

    steps: int = 320
    subset: str | None = "arithmetic"
    seed: int = 1
    samples_per_subset: int = 24

    @property
    def onset(self) -> int:
        """First step without the subset."""
        return self.steps // 2


def train(run: Path, plan: Plan) -> None:
    """Train and record into `run`; call it in a process of its own."""
    import mindspore as ms
    import numpy as np
    from mindspore.train import Model

    from workbench.probes.corpus import held_out_samples, load_documents
    from workbench.probes.evaluation import EvaluationTask
    from workbench.probes.inline_evaluation import InlineEval
    from workbench.probes.lab_data import SUBSETS, LabData, lab_samples
    from workbench.probes.lab_steps import PlannedRate
    from workbench.probes.language_model import ByteTransformer, ModelConfig, NextTokenLoss, adamw
    from workbench.probes.recorder import Recorder
    from workbench.probes.sample_columns import FirstInputs, SampleColumns
    from workbench.probes.text_dataset import token_pipeline, write_mindrecord
    from workbench.probes.train_step import RecordedStep

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(plan.seed)
    config = ModelConfig(width=32, layers=2, heads=2, context_length=64)
    documents = load_documents(list(SUBSETS), limit_bytes=200_000)
    data = LabData(starved_from=(plan.subset, plan.onset) if plan.subset else None)
    batch_size = 16
    samples = lab_samples(documents, data, count=plan.steps * batch_size, batch_size=batch_size,
                          context_length=config.context_length, seed=plan.seed)  # fmt: skip
    file = write_mindrecord(samples, run / "data" / "train.mindrecord", subsets=list(SUBSETS))
    batches = token_pipeline(file, batch_size=batch_size, seed=plan.seed, shuffle=False, with_samples=True)
    numbers = {name: k for k, name in enumerate(sorted({s.sample_id for s in samples}))}
    place = np.array([numbers[s.sample_id] for s in samples])  # what a sample is, not when it is used
    batches = batches.map(lambda used: place[used], ["sample"], num_parallel_workers=1)
    network = ByteTransformer(config)
    columns = SampleColumns(sample=2, subset=3, subset_names=SUBSETS)
    recorder = Recorder(run, config={"steps": plan.steps}, seeds={"all": plan.seed}, samples=columns)
    held_out = held_out_samples(documents, context_length=config.context_length, per_subset=plan.samples_per_subset)
    task = EvaluationTask(network=network, subsets=held_out)
    inline = InlineEval(task, recorder, every=EVERY, controlled=False)
    rate = PlannedRate(4e-3, plan.steps // 10, plan.steps)
    step = RecordedStep(FirstInputs(NextTokenLoss(network), 2), adamw(network, rate), clip_norm=1.0)
    Model(step).train(1, batches, callbacks=[recorder, inline], dataset_sink_mode=False)


def train_apart(run: Path, plan: Plan) -> None:
    """`train` in a process of its own."""
    run.mkdir(parents=True, exist_ok=True)
    words = [f"--train={run.absolute()}", f"--steps={plan.steps}", f"--subset={plan.subset or ''}",
             f"--seeds={plan.seed}"]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:  # MindSpore leaves compiler output in the working directory
        subprocess.run([sys.executable, str(Path(__file__).resolve()), *words], check=True, cwd=scratch,
                       capture_output=True, env={**os.environ, "GLOG_v": "3"})  # fmt: skip


def diagnosed(plan: Plan, run: Path) -> dict[str, object]:
    """Train, diagnose, and say whether the diagnosis is right."""
    train_apart(run, plan)
    found = [f for f in diagnose(run).causes if f.playbook == "T5" and f.severity != "info"]
    first = found[0] if found else None
    right = not found
    if plan.subset is not None:
        right = first is not None and first.cause == "data_mix_shift" and first.culprit.subset == plan.subset
        right = right and abs((first.steps.first or 0) - plan.onset) <= 2 * EVERY
    return {
        "seed": plan.seed,
        "cut to zero": f"{plan.subset} at step {plan.onset}" if plan.subset else "nothing",
        "first cause": first.cause if first else "none",
        "subset": first.culprit.subset if first else "",
        "since step": first.steps.first if first else "",
        "confidence": first.confidence if first else "",
        "others": ", ".join(f"{f.cause} {f.culprit.subset}" for f in found[1:]),
        "right": "yes" if right else "NO",
    }


def as_markdown(rows: list[dict[str, object]]) -> str:
    """The results as a table."""
    table = pd.DataFrame(rows)
    lines = [f"| {' | '.join(table.columns)} |", f"|{'---|' * len(table.columns)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def main() -> None:
    """Train with and without the fault for each seed, print, and put the table into the docs if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=Plan().steps)
    parser.add_argument("--subset", help="subset to cut (default: another one for each seed)")
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    parser.add_argument("--write", type=Path, help="document whose table to replace")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train, Plan(arguments.steps, arguments.subset or None, arguments.seeds[0]))
        return
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        for seed in arguments.seeds:
            cut = arguments.subset or ("arithmetic", "python", "english")[seed % 3 - 1]
            for subset in (cut, None):
                plan = Plan(arguments.steps, subset, seed)
                rows.append(diagnosed(plan, folder / f"{subset or 'healthy'}_{seed}"))
                print(rows[-1], flush=True)
    text = as_markdown(rows)
    print(text)
    if arguments.write:
        write_section(arguments.write, "starved", text)


if __name__ == "__main__":
    main()
