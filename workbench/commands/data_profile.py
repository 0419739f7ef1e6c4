"""`workbench data profile`: which operator of a data pipeline holds it back."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.commands.command import Command
from workbench.commands.data_targets import built_pipelines

SHOWN = ("name", "num_workers", "input_fill_share", "output_fill_share", "cpu_cores")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", help="run directory or folder with MindData files; or package.module:function that builds pipelines"
    )
    parser.add_argument("--arguments", help="JSON object of the function's arguments")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each pipeline is profiled (default: 3)")
    parser.add_argument(
        "--step-ms", type=float, default=0.0, help="time of a training step; 0 (default) takes batches as they come"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("data_profile"), help="where the files go (default: data_profile)"
    )


def run_profile(arguments: argparse.Namespace) -> int:
    """Print the operators and the verdict of each pipeline; return 1 if one is held back, else 0."""
    if Path(arguments.target).exists() or ":" not in arguments.target:
        return int(_print_verdict(Path(arguments.target)))
    from workbench.probes.data_profile import profile_pipelines

    pipelines = built_pipelines(arguments.target, arguments.arguments)
    step_us = arguments.step_ms * 1e3
    folders = profile_pipelines(pipelines, arguments.out, seconds=arguments.seconds, step_us=step_us)
    held_back = False
    for name, folder in folders.items():
        print(f"Pipeline {name}")
        held_back |= _print_verdict(folder)
    print(f"The profiles are in {arguments.out}")
    return int(held_back)


def _print_verdict(path: Path) -> bool:
    from workbench.findings.data_pipeline import NAMES, pipeline_verdicts
    from workbench.run import open_run

    run = open_run(path, quiet=True)
    tables = {name: run.table(name) for name in NAMES if name in run.tables}
    operators, found = pipeline_verdicts(tables)
    for rank, row in found.set_index("rank_id").iterrows():
        mine = operators[operators["rank_id"] == rank]
        print(mine[list(SHOWN)].round(2).to_string(index=False))
        print(f"{f'Rank {rank}: ' if len(found) > 1 else ''}{row['sentence']}")
    return bool((~found["keeps_up"].astype(bool)).any())


SUBCOMMANDS = (
    Command(
        name="profile",
        summary="which operator of a data pipeline holds it back (exit status: 0 it keeps up, 1 one does)",
        examples=(
            "workbench data profile runs/demo",
            "workbench data profile my_project.data:build --step-ms 120",
        ),
        add_arguments=_add_profile,
        run=run_profile,
    ),
)
