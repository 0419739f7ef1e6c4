"""Small memory records made by hand: rows of `tensor_lifetimes` and `memory_timeline`."""

import pandas as pd

from workbench.tables import MEMORY_TIMELINE, TENSOR_LIFETIMES


def lifetimes(*blocks, rank_id=0, total_before=None) -> pd.DataFrame:
    """Blocks (name, size_bytes, allocated_at, freed_at or None); totals of a pool that held `total_before`."""
    frame = pd.DataFrame(blocks, columns=["name", "size_bytes", "allocated_at", "freed_at"])
    frame = frame.assign(rank_id=rank_id, window=0, clock="ns", size_bytes=frame["size_bytes"].astype("float64"))
    frame = TENSOR_LIFETIMES.check(frame.astype({"freed_at": "Int64"}))
    if total_before is None:
        return frame
    dead = frame["freed_at"].astype("Int64").fillna(2**62)
    totals = [
        total_before + frame["size_bytes"][(frame["allocated_at"] <= at) & (dead > at)].sum()
        for at in frame["allocated_at"]
    ]
    return frame.assign(allocated_total_bytes=totals)


def timeline(*samples, rank_id=0, component="MindSpore") -> pd.DataFrame:
    """Samples (time_ns, allocated_bytes, reserved_bytes) of one pool."""
    frame = pd.DataFrame(samples, columns=["time_ns", "allocated_bytes", "reserved_bytes"])
    frame = frame.astype({"allocated_bytes": "float64", "reserved_bytes": "float64"})
    return MEMORY_TIMELINE.check(
        frame.assign(rank_id=rank_id, window=0, component=component, active_bytes=frame["allocated_bytes"])
    )
