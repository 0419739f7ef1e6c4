"""`workbench data tune`: measure a pipeline's operators, recommend a setting, apply it and measure again."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from workbench.commands.command import Command
from workbench.commands.data_targets import built_pipelines
from workbench.errors import PipelineError

SERVICE_SHOWN = ("name", "workers", "processes", "service_us", "cpu_us", "lock_us", "rows_per_batch")
SETTING_SHOWN = (
    "source",
    "setting",
    "batch_us",
    "low_us",
    "high_us",
    "measured_us",
    "bound",
    "queue_bytes",
    "is_recommended",
)


def _add_tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="package.module:function that builds a pipeline (or several, by name)")
    parser.add_argument("--arguments", help="JSON object of the function's arguments")
    parser.add_argument(
        "--step-ms", type=float, default=0.0,
        help="time of a training step without waiting; 0 (default) asks for the highest throughput",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.5, help="for each of the runs of an operator (default: 0.5)")
    parser.add_argument("--autotune", action="store_true", help="let MindSpore's AutoTune choose, too, and compare")
    parser.add_argument("--out", type=Path, help="write the table of settings to this CSV file")


def run_tune(arguments: argparse.Namespace) -> int:
    """Print services, predictions beside measurements, and the recommended setting of each pipeline."""
    from workbench.probes.pipeline_tune import tune

    pipelines = built_pipelines(arguments.target, arguments.arguments)
    for name, dataset in pipelines.items():
        try:
            tuned = tune(
                dataset,
                step_us=arguments.step_ms * 1e3,
                seconds_each=arguments.seconds,
                with_autotune=arguments.autotune,
                progress=lambda what: print(f"  measuring {what}", file=sys.stderr),
            )
        except PipelineError as error:
            _leave(error)
        print(f"Pipeline {name}, per row of each operator, on {tuned.machine.cores:.0f} cores")
        print(tuned.services.table[list(SERVICE_SHOWN)].round(1).to_string(index=False))
        print(tuned.table[list(SETTING_SHOWN)].round(1).to_string(index=False))
        print("\n".join([*tuned.services.notes, f"Recommended: {tuned.recommended} ({tuned.gain:.2f} times as fast)"]))
        if arguments.out:
            tuned.table.assign(pipeline=name).to_csv(arguments.out, index=False, mode="w")
            print(f"The settings are in {arguments.out}")
    return 0


def _leave(error: PipelineError) -> None:
    """A source that hangs keeps MindSpore's threads busy: nothing but leaving at once ends the process."""
    if "did not answer" not in error.problem:
        raise error
    print(error, file=sys.stderr, flush=True)
    os._exit(2)


SUBCOMMANDS = (
    Command(
        name="tune",
        summary="what each operator of a pipeline can do, and the cheapest setting that feeds a step, measured",
        examples=("workbench data tune my_project.data:build --step-ms 120",),
        add_arguments=_add_tune,
        run=run_tune,
    ),
)
