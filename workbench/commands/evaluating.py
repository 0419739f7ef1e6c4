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


def _add_post_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--checkpoint", help="file name, stem or step of a checkpoint (default: the last)")
    parser.add_argument("--task", help="package.module:function (default: `evaluation.post_training` of run.json)")
    parser.add_argument(
        "--dimensions",
        nargs="+",
        default=["robustness", "context_length", "generation", "instructions"],
        help="which of robustness, context_length, generation, instructions (default: all)",
    )
    parser.add_argument("--cell", action="store_true", help="evaluate the live cell, without an export to MindIR")


def run_post_training(arguments: argparse.Namespace) -> int:
    """Evaluate one checkpoint in many dimensions and say where the results are."""
    from workbench.probes.evaluate import evaluate_dimensions, import_from_here
    from workbench.readers.checkpoints import choose_checkpoint, find_checkpoints

    import_from_here()
    chosen = choose_checkpoint(find_checkpoints(arguments.run), arguments.checkpoint)
    record = evaluate_dimensions(
        arguments.run.absolute(),
        chosen.path.absolute(),
        step=chosen.step,
        task=arguments.task,
        dimensions=arguments.dimensions,
        use_mindir=not arguments.cell,
    )
    graph = "the exported MindIR" if record["on_mindir"] else f"the live cell ({record['why_not']})"
    print(f"Evaluated {chosen.name} on {graph}: {', '.join(arguments.dimensions)}.")
    print(f"Recorded in {arguments.run / 'post_training'} and {arguments.run / 'generations'}.")
    print("Look at it with notebooks/reports/post_training.ipynb, or workbench diagnose.")
    return 0


COMMANDS = (
    Command(
        name="evaluate",
        summary="evaluate a checkpoint on every subset",
        examples=("workbench evaluate runs/demo", "workbench evaluate runs/demo --checkpoint 240"),
        add_arguments=_add_evaluate,
        run=run_evaluate,
    ),
    Command(
        name="post-training",
        summary="evaluate a checkpoint in many dimensions: robustness, context length, generation, instructions",
        examples=(
            "workbench post-training runs/demo",
            "workbench post-training runs/demo --checkpoint 240 --dimensions generation instructions",
        ),
        add_arguments=_add_post_training,
        run=run_post_training,
    ),
)
