"""Members of communication files -> rows of `collectives` and `links`, by the same rules for JSON and databases."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from workbench.tables import Note

TOTAL = "Total Op Info"
POINT_TO_POINT = re.compile("send|receive|recv", re.IGNORECASE)
OP_TYPE = re.compile(r"(?:hcom_)?([A-Za-z]+)")
STATISTIC = re.compile(r"(.+)-(top1|middle|bottom[123]|total)")
LINK = re.compile(r"(\d+)-(\d+)")
REPEATS_OTHERS = "SDMA"  # the sum of HCCS, PCIE and SIO
BYTES_PER_MB = 1e6
TIMES_US = {
    "elapsed_us": "Elapse Time(ms)",
    "transit_us": "Transit Time(ms)",
    "wait_us": "Wait Time(ms)",
    "synchronization_us": "Synchronization Time(ms)",
    "idle_us": "Idle Time(ms)",
}


def walk(value: Any, depth: int, odd: list[str], keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict]]:
    """Objects `depth` levels down, with the keys that lead there; whatever is no object there goes into `odd`."""
    if not isinstance(value, Mapping):
        odd.append("/".join(keys))
    elif depth == 0:
        yield keys, dict(value)
    else:
        for key, member in value.items():
            yield from walk(member, depth - 1, odd, (*keys, key))


def operation_row(key: str, info: Mapping[str, Any], odd: list[str]) -> dict[str, Any]:
    """Columns of one operation `<name>@<group id>` from its time and bandwidth parts."""
    times = _part(info, "Communication Time Info", key, odd)
    parts = _part(info, "Communication Bandwidth Info", key, odd)
    moved = [
        (transport, number(part, "Transit Size(MB)", odd), number(part, "Bandwidth(GB/s)", odd))
        for transport, part in parts.items()
        if isinstance(part, Mapping)
    ]
    if parts and REPEATS_OTHERS not in parts:  # each writer has it: the part is cut, its sum would be too small
        odd.append(f"{key}/Communication Bandwidth Info/{REPEATS_OTHERS}")
        moved = []
    row = {name: number(times, raw, odd) * 1000 for name, raw in TIMES_US.items()}
    return operation(key, start_ns(times.get("Start Timestamp(us)")), row, moved)


def operation(
    key: str, start: int | None, times_us: Mapping[str, float], moved: Iterable[tuple[str, float, float]]
) -> dict[str, Any]:
    """Columns of one operation.

    Args:
        key: `<name>@<group id>`.
        start: ns since epoch.
        times_us: the five times.
        moved: transport, MB (10^6 bytes), GB/s.
    """
    name, _, group = key.partition("@")
    size, transport, speed = moved_bytes(moved)
    transit = times_us["transit_us"]
    return {
        "name": name,
        "op_type": op_type(name),
        "group_id": group or None,
        "is_p2p": is_point_to_point(name),
        "start_ns": start,
        **times_us,
        "transit_us": float("nan") if transit == 0 and size != 0 else transit,
        "size_bytes": size,
        "transport": transport,
        "bandwidth_bytes_per_s": speed,
    }


def moved_bytes(moved: Iterable[tuple[str, float, float]]) -> tuple[float, str | None, float]:
    """All bytes, the transport that moved most of them, and its bytes/s; missing where a part is unknown."""
    parts = list(moved)
    single = [m for m in parts if m[0] != REPEATS_OTHERS]
    if not any(size > 0 for _, size, _ in single):
        single = parts  # SDMA alone
    if not single or any(math.isnan(size) for _, size, _ in single):
        return float("nan"), None, float("nan")
    total = sum(size for _, size, _ in single) * BYTES_PER_MB
    transport, size, speed = max(single, key=lambda m: m[1])
    if size <= 0:
        return total, None, float("nan")
    return total, transport, speed * 1e9 if speed > 0 else float("nan")


def link_row(key: str, link: str, info: Mapping[str, Any], odd: list[str]) -> dict[str, Any]:
    """Columns of one link `<src>-<dst>` of `<type>-<statistic>@<group id>`, or of `<operation>@<group id>`."""
    ranks = LINK.fullmatch(link.strip())
    if ranks is None:
        odd.append(f"{key}/{link}")
    size, transit = number(info, "Transit Size(MB)", odd), number(info, "Transit Time(ms)", odd)
    return {
        **link_names(key, info.get("op_name", info.get("Op Name"))),
        "src_rank": int(ranks.group(1)) if ranks else None,
        "dst_rank": int(ranks.group(2)) if ranks else None,
        "transport": _text(info.get("Transport Type")),
        "size_bytes": size * BYTES_PER_MB,
        "transit_us": transit * 1000,
        "bandwidth_bytes_per_s": number(info, "Bandwidth(GB/s)", odd) * 1e9,
    }


def link_names(key: str, op_name: object) -> dict[str, Any]:
    """Type, operation, group, statistic of a link's row; rows per operation (2023) have global ranks.

    A writer that does not know the type of an operation puts its whole name there: `hcom_send__1_0_1@7-top1@7`.
    """
    name, _, group = key.rpartition("@") if "@" in key else (key, "", "")
    ranked = STATISTIC.fullmatch(name)
    return {
        "op_type": op_type(ranked.group(1) if ranked else name),
        "op_name": _text(op_name) if ranked else name,
        "group_id": group or None,
        "statistic": ranked.group(2) if ranked else "op",
        "is_global": ranked is None,
    }


def op_type(name: str) -> str:
    """`allreduce` of `hcom_allReduce__586_0_1`; other names keep their first word, lower case."""
    found = OP_TYPE.match(name)
    return (found.group(1) if found else name).lower()


def is_point_to_point(name: str) -> bool:
    """Whether an operation is a send or receive."""
    return POINT_TO_POINT.search(name) is not None


def step_number(key: object) -> int | None:
    """13 of `step13` or `13`; None of `step` and of anything else."""
    found = re.fullmatch(r"(?:step)?\s*(\d{1,18})", str(key).strip())
    return int(found.group(1)) if found else None


def without_lone_zero(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with missing steps if 0 is the only one: MindSpore writes it where it knows no steps."""
    steps = rows.step.astype("Int64")
    known = steps.dropna()
    return rows.assign(step=steps.mask(steps == 0) if len(known) and (known == 0).all() else steps)


def start_ns(value: object) -> int | None:
    """Nanoseconds of epoch microseconds; product and sum in integers, since a float holds the us but not the ns."""
    us = _finite(value)
    return None if us is None or abs(us) >= 9e15 else int(us) * 1000 + round((us - int(us)) * 1000)


def number(part: Mapping[str, Any], name: str, odd: list[str]) -> float:
    """Member `name` as float; NaN where it is absent, and in `odd` where it is no number."""
    value = part.get(name)
    if value is None or value in ("N/A", ""):
        return float("nan")
    found = _finite(value)
    if found is None:
        odd.append(name)
    return float("nan") if found is None else found


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _part(info: Mapping[str, Any], name: str, key: str, odd: list[str]) -> Mapping[str, Any]:
    part = info.get(name)
    if isinstance(part, Mapping):
        return part
    odd.append(f"{key}/{name}")
    return {}


def odd_note(odd: list[str], file: str) -> list[Note]:
    """One note on members that are not what they should be."""
    if not odd:
        return []
    return [
        Note(
            file=file,
            where=f"member {odd[0]}"[:200],
            problem=f"{len(odd)} members are absent or not of the kind that belongs there.",
            lost="their values",
            fix="copy the file again from the training host, or parse the profile again",
        )
    ]


def transit_note(rows: pd.DataFrame, file: str) -> list[Note]:
    """One note on operations whose transit time contradicts their bytes."""
    count = int((rows.transit_us.isna() & (rows.size_bytes.astype("float64") > 0)).sum())
    if not count:
        return []
    return [
        Note(
            file=file,
            where="Transit Time(ms)",
            problem=f"{count} operations have a transit time of 0 or none although they moved bytes.",
            lost="transit_us of these operations; their wait and idle times are as written",
            fix="take speed from the bandwidth, and judge waiting by the start times across the ranks",
        )
    ]
