"""Tables of memory analyses -> styled HTML tables with units."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from workbench.charts.memory import short_name
from workbench.charts.tables import STYLES

GIB, MIB = 2**30, 2**20
SHOWN_ROWS = 10
UNITS = (("GiB", GIB), ("MiB", MIB), ("KiB", 2**10), ("bytes", 1))


def peaks_table(peaks: pd.DataFrame) -> Styler:
    """`memory_peaks`, the fullest ranks first."""
    top = peaks.nlargest(SHOWN_ROWS, "peak_allocated_bytes")
    return _styled(
        {
            "rank": top["rank_id"],
            "pool": top["component"].fillna("not named"),
            "allocated at the peak (GiB)": _number(top["peak_allocated_bytes"] / GIB),
            "reserved at its peak (GiB)": _number(top["peak_reserved_bytes"] / GIB),
            "reserved beyond use (GiB)": _number(top["unused_bytes"] / GIB),
            "share of reserved": [f"{v:.1%}" if pd.notna(v) else "" for v in top["unused_share"]],
        }
    )


def holes_table(holes: pd.DataFrame) -> Styler:
    """`holes`, largest first: free pieces and the block that pins each."""
    top = holes.head(SHOWN_ROWS)
    return _styled(
        {
            "hole": _sizes(top["size_bytes"]),
            "pinned by": top["pinned_by"].map(short_name),
            "which holds": _sizes(top["pin_bytes"]),
            "it is freed": ["not in the record" if missing else "later" for missing in top["pinned_until"].isna()],
        }
    )


def long_lives_table(late: pd.DataFrame) -> Styler:
    """`long_lives`: blocks that outlive their peers."""
    top = late.head(SHOWN_ROWS)
    return _styled(
        {
            "rank": top["rank_id"],
            "operator": top["name"].map(short_name),
            "size": _sizes(top["size_bytes"]),
            "lives, times its peers": _number(top["life"] / top["usual_life"].where(top["usual_life"] > 0)),
            "peers": top["peers"],
        }
    )


def growth_table(growth: pd.DataFrame) -> Styler:
    """`floor_growth`, most growth first."""
    top = growth.nlargest(SHOWN_ROWS, "growth_bytes_per_step")
    interval = [
        f"{low / MIB:,.2f} to {high / MIB:,.2f}"
        for low, high in zip(top["low_bytes_per_step"], top["high_bytes_per_step"], strict=True)
    ]
    return _styled(
        {
            "rank": top["rank_id"],
            "growth per step (MiB)": _number(top["growth_bytes_per_step"] / MIB),
            "95 % interval": interval,
            "steps that rise": [f"{r} of {s - 1}" for r, s in zip(top["rising_steps"], top["steps"], strict=True)],
        }
    )


def _styled(columns: dict[str, object]) -> Styler:
    frame = pd.DataFrame(columns)
    return frame.style.hide(axis="index").format(escape="html").set_table_styles(STYLES)


def _sizes(values: pd.Series) -> list[str]:
    """Bytes with the unit that leaves one to three digits before the point."""
    found = []
    for value in values.astype("float64"):
        unit, size = next(((u, s) for u, s in UNITS if value >= s), UNITS[-1])
        found.append("" if pd.isna(value) else f"{value / size:.1f} {unit}")
    return found


def _number(values: pd.Series) -> list[str]:
    return ["" if pd.isna(v) else f"{v:,.3g}" if abs(v) < 1000 else f"{v:,.0f}" for v in values.astype("float64")]
