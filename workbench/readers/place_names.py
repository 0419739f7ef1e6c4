"""What names of files and folders say: rank, time of a capture, kind of folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

_ASCEND_FOLDER = re.compile(r"(?P<process>.*?)_?(?P<time>\d{14,17})?_ascend_(?:ms|pt)")
_PROF_FOLDER = re.compile(r"PROF_\d+_(?P<time>\d{14,17})_\w+")
_RANK_WORD = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_]?(\d+)", re.IGNORECASE)
_CARD_FOLDER = re.compile(r"(?:device|card|npu)[-_]?(\d+)", re.IGNORECASE)
_RANK_SUFFIX = re.compile(r"_(\d{1,5})(?:_detail_time|_detail|_type)?\.[A-Za-z]+\Z")
_PROFILER_INFO = re.compile(r"profiler_info_(\d+)\.json")
_RANKED_FILE = re.compile(r"(?:minddata_\w+|cpu_\w+|ascend_mindspore_profiler)_(\d+)\.(?:csv|json|txt|db)")
_RANKED_FACTS = re.compile(
    r"(?:minddata_\w+|(?:pipeline|dataset_iterator|device_queue)_profiling|flops_[a-z_]+|(?:\w+_)?timeline_summary"
    r"|start_time|step_trace_point_info)_(\d{1,5})\.(?:csv|json|txt)"
)
OUTPUT_FOLDER = "ASCEND_PROFILER_OUTPUT"
LEGACY_FOLDER = "profiler"


def is_ascend_folder(name: str) -> bool:
    """`<host>_<pid>_<time>_ascend_ms` and its relatives: one capture of one rank."""
    return _ASCEND_FOLDER.fullmatch(name) is not None


def is_prof_folder(name: str) -> bool:
    """`PROF_<n>_<time>_<letters>`: raw and exported data of msprof."""
    return name.startswith("PROF_")


def is_in_prof_folder(path: Path) -> bool:
    """Whether a file lies in or below a folder of msprof."""
    return f"{os.sep}PROF_" in f"{os.sep}{path}"


def is_capture_folder(folder: Path) -> bool:
    """Whether a profiler made the folder, rather than a user who put some of its files there."""
    name = folder.name
    return is_ascend_folder(name) or is_prof_folder(name) or name == LEGACY_FOLDER or (folder / OUTPUT_FOLDER).is_dir()


def capture_time(name: str) -> str:
    """Digits of the time in a folder name, filled up to milliseconds; empty without one."""
    match = _ASCEND_FOLDER.fullmatch(name) or _PROF_FOLDER.fullmatch(name)
    return (match["time"] or "").ljust(17, "0") if match and match["time"] else ""


def capture_process(name: str) -> str:
    """Host and process in a folder name, empty without them."""
    match = _ASCEND_FOLDER.fullmatch(name)
    return match["process"] if match else ""


def rank_in_folder_name(name: str) -> int | None:
    """Rank in `rank_3`, `rank-0_20240101120000_ascend_ms`, `rank0_ascend_pt`, `worker_3`; card in `device_3`."""
    match = _RANK_WORD.search(name) or _CARD_FOLDER.fullmatch(name)
    return int(match[1]) if match else None


def rank_in_file_name(name: str) -> int | None:
    """Rank in `worker_3.log`, `rank-34.trace.json.gz`."""
    match = _RANK_WORD.search(name)
    return int(match[1]) if match else None


def rank_suffix(name: str) -> int | None:
    """Rank at the end of a profiler's file name: `hccl_raw_0.csv`, `step_trace_raw_1_detail_time.csv`."""
    match = _RANK_SUFFIX.search(name)
    return int(match[1]) if match else None


def rank_of_facts(name: str) -> int | None:
    """Rank at the end of the name of a data-pipeline file or a file of facts, which have no profile window."""
    match = _RANKED_FACTS.fullmatch(name)
    return int(match[1]) if match else None


def ranks_of_listing(names: list[str]) -> set[int]:
    """Ranks of the `profiler_info_<rank>.json` in a folder; else of other files whose suffix is always the rank."""
    for pattern in (_PROFILER_INFO, _RANKED_FILE):
        if ranks := {int(m[1]) for n in names if (m := pattern.fullmatch(n))}:
            return ranks
    return set()


def rank_in_profiler_info(path: Path) -> int | None:
    """Rank inside a `profiler_info.json` whose name has none."""
    try:
        info = msgspec.json.decode(path.read_bytes())
        inner = info.get("ms_profiler_info", info)
        return int(inner["rank_id"])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
