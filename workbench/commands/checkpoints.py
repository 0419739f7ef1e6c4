"""`workbench checkpoints`: which checkpoint to take, which to keep, and removing the others on request."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.command import Command

if TYPE_CHECKING:
    import pandas as pd

    from workbench.reporting.retention import Retention

DEFAULT_BASELINES = "baselines"


def _add_checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="folder of all reports (reports)")
    parser.add_argument(
        "--baselines", type=Path, nargs="+", metavar="PATH", help="baseline files or folders (baselines, if there)"
    )
    parser.add_argument("--keep-last", type=int, default=2, help="how many of the last ones to keep in any case (2)")
    parser.add_argument(
        "--release-reported",
        action="store_true",
        help="let those go that only their own finished report refers to; the report stays",
    )
    parser.add_argument("--delete", action="store_true", help="remove what the plan does not keep, after asking")


def run_checkpoints(arguments: argparse.Namespace) -> int:
    """Print the ranking and the plan; with --delete ask, then remove."""
    from workbench.reporting.retention import plan_retention, remove

    baselines = arguments.baselines or [p for p in (Path(DEFAULT_BASELINES),) if p.exists()]
    retention = plan_retention(
        arguments.run,
        reports=arguments.reports,
        baselines=baselines,
        keep_last=arguments.keep_last,
        release_reported=arguments.release_reported,
    )
    gone = _gone(retention)
    if not len(retention.plan):
        print(f"{arguments.run} has no complete checkpoint file.{gone}")
        return 0
    if retention.ranked is None:
        print("No checkpoint was evaluated: `workbench report RUN` does that. All are kept.")
    else:
        print(_ranking(retention.ranked), end=f"\n{gone}\n")
    spare = retention.plan[~retention.plan["keep"]]
    print(_plan(retention.plan))
    size = f"{len(spare)} file(s), {spare['size_bytes'].sum() / 2**20:,.1f} MiB"
    if not arguments.delete:
        print(f"Nothing was removed. --delete would remove {size}, after asking.")
    elif len(spare) and _agreed(size):
        removed = remove(retention)
        print(f"Removed {len(removed)} of {len(spare)} file(s): {', '.join(p.name for p in removed) or 'none'}")
    else:
        print("Nothing was removed.")
    return 0


def _gone(retention: Retention) -> str:
    """A line on evaluated checkpoints without a file, and which one to take if the recommended one is among them."""
    if retention.ranked is None:
        return ""
    has_file = retention.ranked["checkpoint"].isin(retention.files.keys())
    if has_file.all():
        return ""
    lost, there = retention.ranked[~has_file], retention.ranked[has_file & retention.ranked["score"].notna()]
    text = f"\nEvaluated, but the file is gone or damaged: {', '.join(lost['checkpoint'])}.\n"
    if lost["recommended"].any() and len(there):
        text += f"Of those that are there, {there.loc[there['score'].idxmin(), 'checkpoint']} has the best score.\n"
    return text


def _agreed(size: str) -> bool:
    try:
        return input(f"Remove {size}? There is no way back. Type yes: ").strip().lower() == "yes"
    except EOFError:  # nobody there to ask
        print()
        return False


def _ranking(ranked: pd.DataFrame) -> str:
    shown = ranked.assign(
        set=ranked["in_best_set"].map({True: "best set", False: ""}).where(~ranked["recommended"], "RECOMMENDED")
    )
    columns = [
        "checkpoint",
        "step",
        "mean_loss",
        "worst_subset",
        "worst_subset_excess",
        "unrest",
        "score",
        "set",
        "why",
    ]
    numbers = {c: "{:.3f}".format for c in ("mean_loss", "worst_subset_excess", "unrest", "score")}
    return _left(shown[columns].to_string(index=False, formatters=numbers | _padded(shown), justify="left"))


def _padded(shown: pd.DataFrame) -> dict[str, Callable[[str], str]]:
    """Formatters that begin texts at one place; pandas would end them there."""
    texts = [c for c in ("checkpoint", "worst_subset", "why") if c in shown]
    widths = {c: int(shown[c].str.len().max()) for c in texts if shown[c].notna().any()}
    return {c: partial(_as_wide, width) for c, width in widths.items()}


def _as_wide(width: int, text: object) -> str:
    return (text if isinstance(text, str) else "").ljust(width)


def _left(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def _plan(plan: pd.DataFrame) -> str:
    shown = plan.assign(keep=plan["keep"].map({True: "keep", False: "REMOVE"}), MiB=plan["size_bytes"] / 2**20)
    columns = ["checkpoint", "step", "MiB", "keep", "why"]
    forms = {"MiB": "{:,.1f}".format} | _padded(shown)
    return _left(shown[columns].to_string(index=False, formatters=forms, justify="left"))


COMMANDS = (
    Command(
        name="checkpoints",
        summary="which checkpoint to take, which to keep; removes the others only on request",
        examples=("workbench checkpoints runs/demo", "workbench checkpoints runs/demo --delete"),
        add_arguments=_add_checkpoints,
        run=run_checkpoints,
    ),
)
