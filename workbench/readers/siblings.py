"""Several files of one kind in one folder, such as `op_statistic_before.csv` and `op_statistic_after.csv`.

A profiler writes one of each per capture, so these are several captures: windows of their own, never one sum.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from workbench.readers.place_names import is_in_prof_folder
from workbench.readers.placing import Place
from workbench.tables import Note

ONE_PER_CAPTURE = frozenset(
    {"step_trace_time", "kernel_details", "op_statistic", "api_statistic", "memory_record", "operator_memory",
     "communication", "communication_matrix"}
)  # fmt: skip
_SLICE = re.compile(r"slice_\d+|_\d+_\d{14,17}\.")  # msprof cuts large tables


def separate_siblings(places: Mapping[Path, Place], kinds: Mapping[Path, str]) -> tuple[dict[Path, Place], list[Note]]:
    """Give the second and further file of a kind in a folder windows after all others of its rank, in name order."""
    alike: dict[tuple[Place, Path, str], list[Path]] = defaultdict(list)
    for path, place in places.items():
        if kinds[path] in ONE_PER_CAPTURE and not _is_slice(path):
            alike[place, path.parent, kinds[path]].append(path)
    moved: dict[Path, Place] = {}
    notes: list[Note] = []
    last: dict[int, int] = defaultdict(int)
    for place in places.values():
        last[place.rank_id] = max(last[place.rank_id], place.window)
    for (place, _, kind), paths in alike.items():
        for number, path in enumerate(sorted(paths)[1:], 1):
            moved[path] = Place(place.rank_id, last[place.rank_id] + number)
        if len(paths) > 1:
            notes.append(_note(kind, place, sorted(paths)))
    return {**places, **moved}, notes


def _is_slice(path: Path) -> bool:
    return _SLICE.search(path.name) is not None or is_in_prof_folder(path)


def _note(kind: str, place: Place, paths: list[Path]) -> Note:
    return Note(
        file=paths[0].name,
        where="window",
        problem=f"{len(paths)} files of kind {kind} of rank {place.rank_id} in one folder: {_names(paths)}.",
        lost="nothing: each is a profile window, in the order of the names",
        fix="put the files of each capture into a folder of its own, to name and order them yourself",
    )


def _names(paths: list[Path]) -> str:
    shown = ", ".join(p.name for p in paths[:4])
    return f"{shown} and {len(paths) - 4} more" if len(paths) > 4 else shown
