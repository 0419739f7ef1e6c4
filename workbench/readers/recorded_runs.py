"""What lies in a directory -> the one recorded run that is meant; notes on runs inside it and on lost ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.errors import UnknownContentError
from workbench.readers.discovery import Discovery, relative_name
from workbench.tables import Note

SHOWN = 10


def only_one_run(root: Path, discovery: Discovery, info: Mapping[str, object] | None) -> None:
    """Leave out runs inside a recorded run, and note them and the ranks that its world size tells and nobody recorded.

    Args:
        root: what was opened.
        discovery: what lies there; its sources and notes are changed.
        info: `run.json` of `root`; None where it has none.

    Raises:
        UnknownContentError: `root` is no recorded run and holds several.
    """
    inner = {s.path.parent for s in discovery.sources if s.kind == "run_json" and s.path.parent != root}
    if info is None:
        if len(inner) > 1:
            raise UnknownContentError(
                f"{root} holds {len(inner)} recorded runs: {_names(root, inner)}.", fix="open one of them"
            )
        return
    if inner:
        discovery.sources[:] = [s for s in discovery.sources if inner.isdisjoint(s.path.parents)]
        discovery.notes.append(_inner_runs(root, inner))
    discovery.notes.extend(_lost_ranks(discovery, info.get("world_size")))


def _names(root: Path, folders: set[Path]) -> str:
    return ", ".join(repr(relative_name(root, p)) for p in sorted(folders)[:SHOWN])


def _inner_runs(root: Path, inner: set[Path]) -> Note:
    return Note(
        file=relative_name(root, min(inner)),
        where="whole directory",
        problem=f"{len(inner)} other recorded run(s) inside this one: {_names(root, inner)}.",
        lost="nothing of this run; the others are not read",
        fix="open them on their own, and keep runs side by side",
    )


def _lost_ranks(discovery: Discovery, world_size: object) -> list[Note]:
    """A note if the run was recorded by some, but not all ranks of its job."""
    there = {s.rank_id for s in discovery.sources if s.kind == "run_metrics"}
    if not isinstance(world_size, int) or isinstance(world_size, bool) or not there:
        return []
    lost = [rank for rank in range(min(world_size, 1 << 20)) if rank not in there]
    if not lost:
        return []
    more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
    shown = ", ".join(map(str, lost[:SHOWN])) + more
    return [
        Note(
            file="metrics",
            where="ranks",
            problem=f"{len(there)} of {world_size} ranks were recorded; missing: {shown}.",
            lost="whatever only these ranks show: the slow one may be among them",
            fix="copy metrics/rank_<rank>.jsonl of these ranks, too, and give the Recorder to all ranks",
        )
    ]
