"""Which of several files that tell the same is read: profilers write one capture in up to four forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from workbench.readers.place_names import is_in_prof_folder

# Per table, kinds that tell the same of one capture, the best first. Kinds in one tuple belong together. A kind that is
# not named for a table is always read.
ALTERNATIVES: dict[str, tuple[tuple[str, ...], ...]] = {
    "step_time": (
        ("step_trace_time",),
        ("profiler_database",),
        ("step_trace_raw", "cluster_analyse", "cluster_analyse_data_parallel"),
    ),
    "kernels": (("kernel_details",), ("profiler_database",), ("output_timeline", "aicpu_csv", "aicpu_text")),
    "collectives": (("communication",), ("profiler_database",), ("hccl_raw", "step_trace_raw")),
    "links": (("communication_matrix",), ("profiler_database",), ("hccl_raw",)),
    "memory_timeline": (("memory_record", "npu_module_mem"), ("profiler_database",)),
    "tensor_lifetimes": (("operator_memory", "static_op_mem"), ("profiler_database",)),
    "host_ops": (("api_statistic", "dataset"), ("profiler_database",)),
    "kernel_totals": (("op_statistic",), ("intermediate_type", "intermediate_detail"), ("op_compute_time",)),
    "data_ops": (("minddata_summary_json",), ("minddata_summary_csv",)),
}
# Written by an analysis over all ranks: read where there are no, or hardly any, files of the ranks themselves.
OVER_ALL_RANKS = frozenset({"cluster_step_trace_time", "cluster_communication", "cluster_communication_matrix"})

_PARTS_OF_TIMELINE = ("hccl", "task_time")  # msprof writes their events once more into msprof*.json beside them

Candidate = tuple[Path, str, tuple[int, int], tuple[str, ...]]  # path, kind, (rank, window), tables


def tables_to_read(candidates: Sequence[Candidate]) -> dict[Path, tuple[str, ...]]:
    """Tables that each file is read for. A table of which a better file of the same capture exists is left out."""
    best: dict[tuple[str, tuple[int, int]], int] = {}
    ranks: dict[str, set[int]] = defaultdict(set)
    over_all: set[str] = set()
    for path, kind, place, tables in candidates:
        for table in tables:
            if kind in OVER_ALL_RANKS:
                over_all.add(table)
                continue
            ranks[table].add(place[0])
            level = _level(path, kind, table)
            if level is not None:
                best[table, place] = min(level, best.get((table, place), level))
    summaries_win = {table for table in over_all if len(ranks[table]) < 2}

    whole_timelines = {
        path.parent for path, kind, *_ in candidates if kind == "trace" and path.name.startswith("msprof")
    }

    def is_read(path: Path, kind: str, place: tuple[int, int], table: str) -> bool:
        if kind == "trace" and path.parent in whole_timelines and path.name.startswith(_PARTS_OF_TIMELINE):
            return False
        if table in over_all:
            return (kind in OVER_ALL_RANKS) == (table in summaries_win)
        level = _level(path, kind, table)
        return level is None or level == best[table, place]

    return {
        path: tuple(table for table in tables if is_read(path, kind, place, table))
        for path, kind, place, tables in candidates
    }


def _level(path: Path, kind: str, table: str) -> int | None:
    """0 is best; None where the kind has no alternative. What msprof keeps in PROF_* comes after everything else."""
    levels = ALTERNATIVES.get(table, ())
    for level, kinds in enumerate(levels):
        if kind in kinds:
            return level + (len(levels) if is_in_prof_folder(path) else 0)
    if table == "trace_events":
        return 1 if is_in_prof_folder(path) else 0
    return None
