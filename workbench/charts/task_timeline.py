"""Bars of device tasks -> timelines: one row per rank, or per stream of a rank."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, QUIET, RED, SKY, AnyChart, empty_chart

LANES = {"computing": "#7fb3d8", "communication": ORANGE, "idle": "#d8dde2"}
OPERATORS_SHOWN = 6
OPERATOR_COLOURS = [BLUE, ORANGE, GREEN, PURPLE, SKY, RED]
OTHERS = "other operators"
NAME_PARTS = 2  # the last parts of an operator's scope tell it apart
HOW = "Alt + wheel zooms, dragging moves, a double click takes it back."
ZOOM = alt.selection_interval(name="zoom", encodings=["x"], bind="scales", zoom="wheel![event.altKey]")
NOTHING = "no task of these ranks and steps has a start time"


def rank_timeline_chart(bars: pd.DataFrame, shown: pd.DataFrame, *, note: str = "") -> AnyChart:
    """When each rank computes, communicates and stands idle.

    Args:
        bars: as `analyses.task_timeline.rank_bars` returns.
        shown: the steps, as `shown_steps` returns.
        note: what was left out.
    """
    title = "When each rank computes, communicates, stands idle"
    if bars.empty:
        return empty_chart(title, NOTHING)
    lanes = [lane for lane in LANES if lane in set(bars["lane"])]
    scale = alt.Scale(domain=lanes, range=[LANES[lane] for lane in lanes])
    rows = _drawn(bars, shown).assign(half=bars["lane"].eq("communication").astype(int))
    chart = _bars(rows, alt.Y("rank_id:O", title="rank"), [alt.Tooltip("lane:N", title="what")]).encode(
        yOffset=alt.YOffset("half:O", sort=[0, 1]), color=alt.Color("lane:N", title=None, scale=scale)
    )
    return _with_steps(chart, shown, title, note).properties(height=alt.Step(15))


def stream_timeline_chart(bars: pd.DataFrame, shown: pd.DataFrame, *, rank_id: int, note: str = "") -> AnyChart:
    """The tasks of one rank by stream, coloured by operator type.

    Args:
        bars: as `analyses.task_timeline.stream_bars` returns.
        shown: the steps, as `shown_steps` returns.
        rank_id: the rank, for the title.
        note: what was left out.
    """
    title = f"Tasks of rank {rank_id}"
    if bars.empty:
        return empty_chart(title, NOTHING)
    kinds = bars["op_type"].fillna(bars["name"])
    largest = bars["busy_us"].groupby(kinds).sum().nlargest(OPERATORS_SHOWN).index.tolist()
    rows = _drawn(bars, shown).assign(kind=kinds, operator=kinds.where(kinds.isin(largest), OTHERS))
    known = [*largest, OTHERS] if (rows["operator"] == OTHERS).any() else largest
    scale = alt.Scale(domain=known, range=[*OPERATOR_COLOURS[: len(largest)], GREY])
    colour = alt.Color("operator:N", title=None, scale=scale, legend=alt.Legend(columns=4, symbolType="square"))
    tips = [alt.Tooltip("lane:N", title="stream"), alt.Tooltip("kind:N", title="operator type")]
    edge = alt.Stroke("operator:N", scale=scale, legend=None)
    chart = _bars(rows, alt.Y("lane:N", title=None), tips).encode(color=colour, stroke=edge)
    return _with_steps(chart, shown, title, note).properties(height=alt.Step(26))


def _drawn(bars: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """The columns that are drawn: times in ms from the begin of what is shown, durations in words."""
    begin_ns = int(shown["start_ns"].min())
    name = bars["name"].astype("string").str.split("/").str[-NAME_PARTS:].str.join("/")
    several = name + " and " + (bars["tasks"] - 1).astype("string") + " more"
    return pd.DataFrame(
        {
            "rank_id": bars["rank_id"],
            "lane": bars["lane"],
            "step": bars["step"].astype("Int64").astype("string").fillna("–"),
            "task": name.where(bars["tasks"] < 2, several).fillna("none"),
            "start_ms": (bars["start_ns"] - begin_ns) / 1e6,
            "end_ms": (bars["end_ns"] - begin_ns) / 1e6,
            "duration": (bars["end_ns"] - bars["start_ns"]).div(1e3).map(_time_words),
            "busy": bars["busy_us"].map(_time_words),
        }
    )


def _time_words(us: float) -> str:
    return f"{us:,.1f} µs" if us < 1e3 else f"{us / 1e3:,.3f} ms"


def _bars(rows: pd.DataFrame, y: alt.Y, tips: list[alt.Tooltip]) -> alt.Chart:
    end_ms = float(rows["end_ms"].max())
    x = alt.X("start_ms:Q", title="time (ms)", scale=alt.Scale(domain=[0, end_ms], nice=False))
    times = [
        alt.Tooltip("rank_id:O", title="rank"),
        alt.Tooltip("task:N", title="task"),
        alt.Tooltip("step:N", title="step"),
        alt.Tooltip("start_ms:Q", title="start, ms", format=",.3f"),
        alt.Tooltip("duration:N", title="duration"),
        alt.Tooltip("busy:N", title="of it in tasks"),
    ]
    return (
        alt.Chart(rows)
        .mark_bar(clip=True, strokeWidth=0.6)
        .encode(x, alt.X2("end_ms:Q"), y, tooltip=[*tips, *times])
        .add_params(ZOOM)
    )


def _with_steps(chart: alt.Chart, shown: pd.DataFrame, title: str, note: str) -> AnyChart:
    """The chart with a line at the begin of each step, and its number."""
    words = alt.Title(title, subtitle=f"{note} {HOW}".strip())
    known = shown.dropna(subset=["step"])
    if known.empty:
        return chart.properties(title=words)
    begins = pd.DataFrame(
        {
            "start_ms": (known["start_ns"] - shown["start_ns"].min()) / 1e6,
            "words": "step " + known["step"].astype("Int64").astype("string"),
        }
    )
    base = alt.Chart(begins).encode(alt.X("start_ms:Q", title="time (ms)"))
    lines = base.mark_rule(color=QUIET, strokeDash=[3, 3], clip=True)
    text = base.mark_text(clip=False, align="left", baseline="bottom", dx=3, dy=-3, color=QUIET)
    seen = text.encode(text="words:N", y=alt.value(0)).transform_filter(ZOOM)
    return alt.layer(chart, lines, seen).properties(title=words)
