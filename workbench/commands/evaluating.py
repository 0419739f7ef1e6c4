"""`workbench evaluate`: evaluate a checkpoint on every subset, without a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.commands.command import Command


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--checkpoint", help="file name, stem or step of a checkpoint (default: the last)")
    parser.add_argument("--task", help="package.module:function (default: what run.json names)")


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Evaluate one checkpoint and print its metrics per subset."""
    from workbench.analyses.evaluation import subset_metrics
    from workbench.probes.evaluate import evaluate_checkpoint, import_from_here
    from workbench.readers.checkpoints import choose_checkpoint, find_checkpoints
    from workbench.run import open_run

    import_from_here()
    chosen = choose_checkpoint(find_checkpoints(arguments.run), arguments.checkpoint)
    evaluate_checkpoint(arguments.run.absolute(), chosen.path.absolute(), step=chosen.step, task=arguments.task)
    samples = open_run(arguments.run, quiet=True).table("eval_samples")
    metrics = subset_metrics(samples[samples.checkpoint == chosen.name])
    print(metrics.pivot_table(index="subset", columns="metric", values="value").round(4).to_string())
    print(f"Recorded in {arguments.run / 'evals' / 'checkpoint.jsonl'} and {arguments.run / 'eval_samples'}")
    return 0


COMMANDS = (
    Command(
        name="evaluate",
        summary="evaluate a checkpoint on every subset",
        examples=("workbench evaluate runs/demo", "workbench evaluate runs/demo --checkpoint 240"),
        add_arguments=_add_evaluate,
        run=run_evaluate,
    ),
)
