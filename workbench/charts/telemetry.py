"""Telemetry of one rank beside the other ranks -> chart."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import GREY, RED, AnyChart, empty_chart

ROW_PIXELS = 80
GIB = 2**30
UNITS = {"_mhz": "MHz", "_celsius": "°C", "_watts": "W", "_bytes": "GiB", "_per_s": "per s", "_share": "share"}
SHADE = "#fff1c2"


def telemetry_chart(course: pd.DataFrame, steps_s: tuple[float, float] | None = None) -> AnyChart | alt.VConcatChart:
    """One row of plots per metric (`telemetry_course`): red the rank, grey the range and median of all others.

    Args:
        course: as `telemetry_course` returns.
        steps_s: a time range to mark, in the unit of `at`: the steps that a finding is about.
    """
    if course.empty:
        return empty_chart("Telemetry", "no metric of this rank that can explain slowness")
    metrics = list(dict.fromkeys(course["metric"]))
    last = metrics[-1]
    plots = [_plot(course[course["metric"] == m], steps_s, with_axis=m == last) for m in metrics]
    own = next((w for w in course["who"] if w != "other ranks"), "rank")
    return alt.vconcat(*plots, spacing=8).properties(
        title=alt.Title(f"Card and host of {own}", subtitle="red: this rank; grey: range and median of the others")
    )


def _plot(rows: pd.DataFrame, steps_s: tuple[float, float] | None, *, with_axis: bool) -> AnyChart:
    words, unit = _words(str(rows["metric"].iloc[0]))
    scale = GIB if unit == "GiB" else 1.0
    data = rows.assign(low=rows["low"] / scale, median=rows["median"] / scale, high=rows["high"] / scale)
    x = alt.X("at:Q", title=str(rows["axis"].iloc[0]) if with_axis else None, scale=alt.Scale(nice=False),
              axis=alt.Axis(labels=with_axis, ticks=with_axis))  # fmt: skip
    y_axis = alt.Axis(format="%") if unit == "share" else alt.Axis()
    title = [words, f"({unit})"] if unit and unit != "share" else [words]
    y = alt.Y("low:Q", title=title, scale=alt.Scale(zero=False), axis=y_axis)
    median = alt.Y("median:Q", title=title, scale=alt.Scale(zero=False))
    tips = ["who:N", alt.Tooltip("at:Q", format=",.4g"), alt.Tooltip("median:Q", format=",.4g")]
    is_other = alt.datum.who == "other ranks"
    base = alt.Chart(data[["who", "at", "low", "median", "high"]]).encode(x=x)
    layers = [
        base.transform_filter(is_other).mark_area(color=GREY, opacity=0.3).encode(y=y, y2="high:Q"),
        base.transform_filter(is_other).mark_line(color=GREY, strokeWidth=1.2).encode(y=median, tooltip=tips),
        base.transform_filter(~is_other).mark_line(color=RED).encode(y=median, tooltip=tips),
    ]
    if steps_s is not None:
        marked = alt.Chart(pd.DataFrame([{"from": steps_s[0], "to": steps_s[1]}]))
        layers.insert(0, marked.mark_rect(color=SHADE).encode(x="from:Q", x2="to:Q"))
    return alt.layer(*layers).properties(height=ROW_PIXELS)


def _words(metric: str) -> tuple[str, str]:
    """`device_clock_mhz` -> "device clock", "MHz"."""
    for suffix, unit in UNITS.items():
        if metric.endswith(suffix):
            return metric.removesuffix(suffix).replace("_", " "), unit
    return metric.replace("_", " "), ""
