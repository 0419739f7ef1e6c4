"""Tables of memory analyses -> charts. Times are shown from the first one on."""

from __future__ import annotations

from pathlib import PurePosixPath

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREY, INK, ORANGE, QUIET, RED, AnyChart, empty_chart, half_width

GIB, MS = 2**30, 1e-6
MOST_PARTS = 12
MOST_BLOCKS = 800  # rectangles of a memory map; smaller blocks are left out and counted
MOST_TICKS = 20
MOST_RANK_LINES = 7  # as many colours
APART_SHARE = 0.01  # two lines closer than this cover each other
LABEL_PIXELS = 170
STAGE_PIXELS = 95  # two such charts stand beside each other
KINDS = {"allocated_bytes": "allocated", "reserved_bytes": "reserved", "active_bytes": "active"}
KIND_COLOURS = {"reserved": GREY, "allocated": BLUE, "active": ORANGE}


def pool_chart(curve: pd.DataFrame) -> AnyChart:
    """Allocated, reserved and active memory of one rank's pool (`memory_curve`, downsampled) over time."""
    timed = curve.dropna(subset=["time_ns"])
    if timed.empty:
        return empty_chart("Memory pool", "no sample has a time")
    wide = timed.assign(ms=(timed["time_ns"] - timed["time_ns"].min()).astype("float64") * MS)
    known = [c for c in KINDS if wide[c].notna().any() and (c != "active_bytes" or _differs(wide))]
    long = wide.melt("ms", known, "kind", "value_bytes").dropna(subset=["value_bytes"])
    long = long.assign(gib=long["value_bytes"] / GIB, kind=long["kind"].map(KINDS))
    shown = [kind for kind in KIND_COLOURS if (long["kind"] == kind).any()]
    colours = alt.Scale(domain=shown, range=[KIND_COLOURS[kind] for kind in shown])
    return (
        alt.Chart(long[["ms", "kind", "gib"]], title=_title("Memory pool", f"rank {int(timed['rank_id'].iloc[0])}"))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("ms:Q", title="time (ms)", scale=alt.Scale(nice=False)),
            y=alt.Y("gib:Q", title="memory (GiB)"),
            color=alt.Color("kind:N", title=None, scale=colours),
            tooltip=["kind:N", alt.Tooltip("ms:Q", format=",.3f"), alt.Tooltip("gib:Q", format=".4f")],
        )
    )


def peak_parts_chart(parts: pd.DataFrame) -> AnyChart:
    """Who holds the memory at the peak (`peak_parts`) of the rank with the highest peak, largest first."""
    if parts.empty:
        return empty_chart("Memory at the peak")
    top = parts[parts["rank_id"] == parts.loc[parts["peak_bytes"].idxmax(), "rank_id"]]
    shown = top.head(MOST_PARTS)
    rest = top.iloc[MOST_PARTS:]
    if len(rest):
        sums = rest[["size_bytes", "blocks", "share"]].sum()
        other = {"part": f"{len(rest)} smaller parts", "listed": True, **sums.to_dict()}
        shown = pd.concat([shown, pd.DataFrame([other])], ignore_index=True)
    data = shown.assign(gib=shown["size_bytes"] / GIB, label=shown["part"].map(short_name))
    peak = f"rank {int(top['rank_id'].iloc[0])}: {top['peak_bytes'].iloc[0] / GIB:.2f} GiB; grey: no row of its own"
    title = _title("Memory at the peak", peak)
    return (
        alt.Chart(data[["label", "part", "gib", "blocks", "share", "listed"]], title=title)
        .mark_bar()
        .encode(
            x=alt.X("gib:Q", title="memory (GiB)", axis=alt.Axis(tickCount=8)),
            y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=LABEL_PIXELS)),
            color=alt.condition("datum.listed", alt.value(BLUE), alt.value(GREY)),
            tooltip=["part:N", "blocks:Q", alt.Tooltip("gib:Q", format=".4f"), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=2 * half_width() - LABEL_PIXELS + 60, height=alt.Step(22))
    )


def rank_peaks_chart(peaks: pd.DataFrame) -> AnyChart:
    """Peak of each rank (`memory_peaks`): what was in use at once, and what the pool holds beyond it."""
    known = peaks.dropna(subset=["peak_allocated_bytes"])
    if known.empty:
        return empty_chart("Peak memory per rank")
    names = {"peak_allocated_bytes": "allocated at the peak", "unused_bytes": "reserved beyond it"}
    long = known.melt("rank_id", list(names), "kind", "value_bytes").dropna(subset=["value_bytes"])
    long = long.assign(gib=long["value_bytes"] / GIB, kind=long["kind"].map(names))
    colour = alt.Scale(domain=list(names.values()), range=[BLUE, GREY])
    return (
        alt.Chart(long[["rank_id", "kind", "gib"]], title="Peak memory per rank")
        .mark_bar()
        .encode(
            x=alt.X("rank_id:O", title="rank", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("gib:Q", title="memory (GiB)"),
            color=alt.Color("kind:N", title=None, scale=colour),
            order=alt.Order("kind:N"),
            tooltip=["rank_id:O", "kind:N", alt.Tooltip("gib:Q", format=".3f")],
        )
    )


def stage_peaks_chart(peaks: pd.DataFrame) -> AnyChart:
    """Peak of each pipeline stage (`stage_peaks_of_logs`) against the limit of the pool, a bar per set and stage."""
    title = "Peak memory per pipeline stage"
    if peaks.empty:
        return empty_chart(title, "no log or dry run tells the peaks of stages")
    data = peaks.assign(gib=peaks["actual_peak_bytes"] / GIB, limit=peaks["budget_bytes"] / GIB)
    data["kind"] = (data["gib"] > data["limit"]).map({True: "above the limit", False: "within the limit"})
    data["name"] = [f"{PurePosixPath(r.set).stem} · {r.stage}" for r in data.itertuples()]
    colour = alt.Scale(domain=["within the limit", "above the limit"], range=[BLUE, RED])
    base = alt.Chart(data[["name", "gib", "limit", "kind"]])
    y = alt.Y("name:N", title="stage", sort=None, axis=alt.Axis(labelLimit=STAGE_PIXELS))
    tooltip = ["name:N", alt.Tooltip("gib:Q", format=".1f"), alt.Tooltip("limit:Q", format=".1f")]
    x = alt.X("gib:Q", title="memory (GiB)")
    bars = base.mark_bar().encode(x, y, alt.Color("kind:N", title=None, scale=colour), tooltip=tooltip)
    numbers = base.mark_text(align="left", color="white").encode(
        x=alt.value(5),  # at the axis: a number at the bar's end would lie on the limit
        y=y,
        text=alt.Text("gib:Q", format=".1f"),
    )
    limit = base.mark_rule(color=INK, strokeDash=[5, 4]).encode(alt.X("limit:Q", title="memory (GiB)"))
    named = _title(title, "dashed: limit of the pool" if data["limit"].notna().any() else "no limit is told")
    width = 2 * half_width() - LABEL_PIXELS + 60
    return alt.layer(bars, numbers, limit).properties(title=named, width=width, height=alt.Step(24))


def memory_map_chart(blocks: pd.DataFrame, *, clock: str = "ns") -> AnyChart:
    """Where blocks lay and how long: one rectangle per block (blocks with addresses, e.g. of `replay`).

    Args:
        blocks: name, size_bytes, allocated_at, freed_at, address (a number).
        clock: `ns`, or `task` where times count tasks.
    """
    if blocks.empty:
        return empty_chart("Memory map")
    last = int(max(blocks["allocated_at"].max(), blocks["freed_at"].max() if blocks["freed_at"].notna().any() else 0))
    end = blocks["freed_at"].fillna(last).astype("float64")
    start = blocks["allocated_at"].astype("float64")
    base, scale, title = float(start.min()), *((MS, "time (ms)") if clock == "ns" else (1.0, "tasks"))
    data = pd.DataFrame(
        {
            "name": blocks["name"],
            "label": blocks["name"].map(short_name),
            "born": (start - base) * scale,
            "dead": (end - base) * scale,
            "low": blocks["address"].astype("float64") / GIB,
            "high": (blocks["address"].astype("float64") + blocks["size_bytes"]) / GIB,
            "mib": blocks["size_bytes"] / 2**20,
            "kept": blocks["freed_at"].isna(),
        }
    )
    shown = data.nlargest(MOST_BLOCKS, "mib")
    subtitle = f"the {len(shown)} largest of {len(data)} blocks; orange: never freed"
    return (
        alt.Chart(shown, title=_title("Memory map", subtitle))
        .mark_rect(stroke="white", strokeWidth=0.3, opacity=0.85)
        .encode(
            x=alt.X("born:Q", title=title, scale=alt.Scale(nice=False)),
            x2="dead:Q",
            y=alt.Y("low:Q", title="address (GiB)", scale=alt.Scale(nice=False)),
            y2="high:Q",
            color=alt.condition("datum.kept", alt.value(ORANGE), alt.value(BLUE)),
            tooltip=["name:N", alt.Tooltip("mib:Q", format=",.2f"), alt.Tooltip("born:Q", format=",.3f"),
                     alt.Tooltip("dead:Q", format=",.3f")],
        )
        .properties(height=260)
    )  # fmt: skip


def floors_chart(floors: pd.DataFrame) -> AnyChart:
    """Lowest memory of each step (`step_floors`), one line per rank: a leak rises. At most a few ranks: most growth."""
    if floors["step"].nunique() < 2:
        return empty_chart("Memory that steps leave behind", "needs two profiled steps: profile with a schedule")
    ordered = floors.sort_values("step")
    span = ordered.groupby("rank_id")["floor_bytes"].agg(["first", "last"])
    chosen = (span["last"] - span["first"]).nlargest(MOST_RANK_LINES).index
    of = f"the {len(chosen)} ranks that grow most, of {len(span)}" if len(chosen) < len(span) else ""
    steps = sorted(int(s) for s in ordered["step"].unique())
    ticks = alt.Axis(values=steps[:: len(steps) // MOST_TICKS + 1], format="d")
    data = ordered[ordered["rank_id"].isin(chosen)]
    data = data.assign(gib=data["floor_bytes"] / GIB)[["rank_id", "step", "gib"]]
    return (
        alt.Chart(data, title=_title("Memory that steps leave behind", of))
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="step", axis=ticks),
            y=alt.Y("gib:Q", title="lowest in the step (GiB)", scale=alt.Scale(zero=False)),
            color=alt.Color("rank_id:N", title="rank"),
            tooltip=["rank_id:N", "step:Q", alt.Tooltip("gib:Q", format=".4f")],
        )
    )


def savings_chart(savings: pd.DataFrame) -> AnyChart:
    """What a change to each operator would take off the peak (`recompute_savings`, `last_use_savings`), most first."""
    if savings.empty:
        return empty_chart("What a change would save", "no block has a row of its own")
    saved, pool = savings["saved_allocated_bytes"] / GIB, savings["saved_reserved_bytes"] / GIB
    data = savings.assign(gib=saved, pool=pool, label=savings["part"].map(short_name))
    last_use = (savings["change"] == "free_at_last_use").all()
    what = "Off the peak, if freed at the last use" if last_use else "Off the peak at most, if recomputed"
    title = _title(what, "red: the peak would not move")
    return (
        alt.Chart(data[["label", "part", "gib", "pool", "change"]], title=title)
        .mark_bar()
        .encode(
            x=alt.X("gib:Q", title="off the peak (GiB)", axis=alt.Axis(tickCount=8)),
            y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=LABEL_PIXELS)),
            color=alt.condition("datum.gib > 0", alt.value(BLUE), alt.value(RED)),
            tooltip=["part:N", "change:N", alt.Tooltip("gib:Q", format=".4f"), alt.Tooltip("pool:Q", format=".3f")],
        )
        .properties(width=2 * half_width() - LABEL_PIXELS + 60, height=alt.Step(22))
    )


def _differs(curve: pd.DataFrame) -> bool:
    """Whether active memory says more than allocated memory; where they are alike one line hides the other."""
    apart = (curve["active_bytes"] - curve["allocated_bytes"]).abs().max()
    return bool(apart > APART_SHARE * curve["allocated_bytes"].max())


def short_name(name: object) -> str:
    """The last two parts of a scope."""
    return "/".join(str(name).split("/")[-2:])


def _title(text: str, subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=subtitle, subtitleColor=QUIET)
