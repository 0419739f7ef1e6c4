"""Scaling tables -> charts: speed-up over devices with its forecast, and what the loss is made of."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, AnyChart, empty_chart

PART_COLOURS = {
    "communication": BLUE, "late ranks": RED, "bubble": PURPLE, "input": ORANGE, "launch gaps": SKY,
    "computing": GREEN, "unknown": GREY,
}  # fmt: skip
SHARE_SHOWN = 0.005  # less in every run is noise, and makes the axis start below 0


def speed_up_chart(efficiency: pd.DataFrame, forecast: pd.DataFrame | None = None) -> AnyChart:
    """Speed-up over devices (table of `scaling_efficiency`), both axes logarithmic; grey: ideal; dashed: forecast.

    The band is the 95 % interval of the forecast, a red ring the count where scaling bends.
    """
    if efficiency.empty:
        return empty_chart("Speed-up", "no runs")
    x = alt.X(
        "devices:Q",
        scale=alt.Scale(type="log", base=2, nice=False),
        title="devices",
        axis=_counts(efficiency, forecast),
    )
    y = alt.Y("speed_up:Q", scale=alt.Scale(type="log", base=2), title="speed-up")
    base = alt.Chart(efficiency).encode(x=x)
    tips = ["devices:Q", alt.Tooltip("speed_up:Q", format=".2f"), alt.Tooltip("efficiency_share:Q", format=".1%")]
    layers = [
        base.mark_line(color=GREY, strokeWidth=1).encode(alt.Y("ideal_speed_up:Q", title="speed-up")),
        base.mark_line(color=BLUE, point=alt.OverlayMarkDef(color=BLUE, size=50)).encode(y=y, tooltip=tips),
        alt.Chart(efficiency[efficiency["is_bend"]]).mark_point(color=RED, size=220, strokeWidth=2).encode(x=x, y=y),
    ]
    if forecast is not None and len(forecast):
        layers += _forecast(efficiency, forecast, x, y)
    bend = efficiency.loc[efficiency["is_bend"], "devices"]
    words = f"bends at {int(bend.iloc[0])} devices" if len(bend) else "grey: ideal"
    return alt.layer(*layers).properties(title=alt.Title("Speed-up", subtitle=words))


def scaling_loss_chart(efficiency: pd.DataFrame) -> AnyChart:
    """What the device time that is lost against the smallest run is made of, per device count."""
    names = [c for c in efficiency if c.startswith("lost_") and efficiency[c].abs().gt(SHARE_SHOWN).any()]
    if efficiency.empty or not names:
        return empty_chart("What the loss is made of", "nothing is lost")
    long = efficiency.melt(["devices"], names, var_name="part", value_name="share").dropna()
    long["part"] = long["part"].str.removeprefix("lost_").str.removesuffix("_share").str.replace("_", " ")
    colour = alt.Scale(domain=list(PART_COLOURS), range=list(PART_COLOURS.values()))
    present = [part for part in PART_COLOURS if part in set(long["part"])]
    return (
        alt.Chart(long, title="What the loss is made of")
        .mark_bar()
        .encode(
            x=alt.X("devices:O", title="devices", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("share:Q", title="share of device time", axis=alt.Axis(format="%")),
            color=alt.Color("part:N", scale=colour, legend=alt.Legend(title=None, values=present)),
            tooltip=["devices:O", "part:N", alt.Tooltip("share:Q", format=".1%")],
        )
    )


def _forecast(efficiency: pd.DataFrame, forecast: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    base_per_s = float(efficiency["throughput_per_s"].iloc[0])
    rows = forecast.assign(
        speed_up=forecast["throughput_per_s"] / base_per_s,
        low=forecast["low_per_s"] / base_per_s,
        high=forecast["high_per_s"] / base_per_s,
    )
    chart = alt.Chart(rows).encode(x=x)
    band = chart.mark_area(color=BLUE, opacity=0.15).encode(alt.Y("low:Q", title="speed-up"), alt.Y2("high:Q"))
    line = chart.mark_line(color=BLUE, strokeDash=[5, 4]).encode(
        y=y, tooltip=["devices:Q", "speed_up:Q", "low:Q", "high:Q"]
    )
    known = rows["low"].notna().any()
    return [band, line] if known else [line]


def _counts(efficiency: pd.DataFrame, forecast: pd.DataFrame | None) -> alt.Axis:
    counts = set(efficiency["devices"]) | (set() if forecast is None else set(forecast["devices"]))
    return alt.Axis(values=sorted(int(c) for c in counts), format="d")
