"""Which checkpoint files of a run may go: the plan from evaluation, reports and baselines; and removing them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from workbench.analyses.checkpoint_choice import rank_checkpoints
from workbench.analyses.protocol import comparable_samples
from workbench.analyses.retention import KEEP_LAST, retention_plan
from workbench.errors import UnknownContentError
from workbench.readers.checkpoints import Checkpoint, find_checkpoints
from workbench.reporting.archive import reports_of
from workbench.run import Run, open_run

OWN_REPORT = "has a report"


class Retention(NamedTuple):
    """The plan, the ranking that it rests on (None: nothing evaluated), and the files by checkpoint name."""

    plan: pd.DataFrame
    ranked: pd.DataFrame | None
    files: dict[str, Checkpoint]


def plan_retention(
    run: Path,
    *,
    reports: Path,
    baselines: Sequence[Path] = (),
    keep_last: int = KEEP_LAST,
    release_reported: bool = False,
) -> Retention:
    """What to keep of a run's checkpoints; nothing is removed.

    Args:
        run: run directory.
        reports: folder of all reports.
        baselines: JSON or JSON Lines files, or folders of them; a checkpoint whose name stands in one is kept.
        keep_last: how many of the last ones are kept in any case.
        release_reported: let those go that only their own finished report refers to. The report stays.

    Raises:
        UnknownContentError: there is no such run directory or baseline.
    """
    files = {c.name: c for c in find_checkpoints(run)}
    ranked = _ranked(open_run(run, quiet=True))
    rows = [(c.name, c.step, c.size_bytes) for c in files.values()]
    table = pd.DataFrame(rows, columns=["checkpoint", "step", "size_bytes"])
    referenced = {} if release_reported else {
        r.name: OWN_REPORT for r in reports_of(run, reports).records() if r.status == "complete"
    }  # fmt: skip
    referenced |= {name: f"named in {where}" for name, where in _named_in(baselines, files.values())}
    return Retention(retention_plan(table, ranked, referenced, keep_last=keep_last), ranked, files)


def remove(retention: Retention) -> list[Path]:
    """Remove the files that the plan does not keep, and return them; a file that changed since is left alone."""
    removed = []
    for name in retention.plan.loc[~retention.plan["keep"], "checkpoint"]:
        file = retention.files[str(name)]
        try:
            stat = file.path.stat()
        except FileNotFoundError:
            continue
        if (stat.st_size, stat.st_mtime_ns) == file.fingerprint:
            file.path.unlink()
            removed.append(file.path)
    return removed


def _ranked(opened: Run) -> pd.DataFrame | None:
    if not opened.has("eval_samples"):
        return None
    evals = opened.table("evals") if opened.has("evals") else None
    samples, _ = comparable_samples(opened.table("eval_samples"), evals)
    if not samples["checkpoint"].notna().any():
        return None
    return rank_checkpoints(samples, opened.table("training_steps") if opened.has("training_steps") else None)


def _named_in(baselines: Sequence[Path], checkpoints: Iterable[Checkpoint]) -> Iterator[tuple[str, str]]:
    wanted = {text: c.name for c in checkpoints for text in (c.name, c.path.name, str(c.path))}
    for file in (f for path in baselines for f in _json_files(path)):
        for text in _texts(file):
            if (name := wanted.get(text) or wanted.get(Path(text).name)) is not None:
                yield name, file.name


def _json_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(f for f in path.rglob("*") if f.suffix in (".json", ".jsonl") and f.is_file())
    if not path.is_file():
        raise UnknownContentError(f"There is no baseline {path}.", fix="give a JSON or JSON Lines file, or a folder")
    return [path]


def _texts(file: Path) -> Iterator[str]:
    """Every text in a JSON or JSON Lines file; lines that are no JSON are taken as one text each."""
    content = file.read_text(encoding="utf-8", errors="replace")
    documents = [content] if file.suffix == ".json" else content.splitlines()
    for document in documents:
        try:
            yield from _strings(json.loads(document))
        except json.JSONDecodeError:
            yield from document.replace('"', " ").replace(",", " ").split()


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
