"""Tables on the samples that training used -> charts: the order of the samples, and the share of each subset."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, RED, SERIES, AnyChart, empty_chart


def shuffle_chart(path: pd.DataFrame) -> AnyChart:
    """Where samples stand in the data set over their place in training (table of `shuffle_path`).

    A complete shuffle fills the plane; a small buffer, or none, draws lines.
    """
    if path.empty:
        return empty_chart("Order of the samples", "no samples recorded")
    return (
        alt.Chart(path, title=alt.Title("Order of the samples", subtitle="lines: neighbours stay together"))
        .mark_circle(size=9, opacity=0.6, color=BLUE)
        .encode(
            x=alt.X("place:Q", title="place in training (samples)", axis=alt.Axis(format="~s")),
            y=alt.Y("sample:Q", title="place in the data set", axis=alt.Axis(format="~s")),
            tooltip=["rank_id:O", "place:Q", "sample:Q"],
        )
    )


def sampling_share_chart(
    shares: pd.DataFrame, intended: Mapping[str, float] | None = None, onset_step: int | None = None
) -> AnyChart:
    """Share of each subset over the steps (table of `sampling_shares`) with its 95 % interval.

    Dashed lines are the intended shares, a red rule the onset of a drift.
    """
    if shares.empty:
        return empty_chart("Share of the subsets", "no subsets recorded")
    largest = shares.groupby("subset")["count"].sum().nlargest(len(SERIES)).index
    rows = shares[shares["subset"].isin(largest)].assign(step=(shares["first_step"] + shares["last_step"]) / 2)
    colour = alt.Color("subset:N", scale=alt.Scale(domain=list(largest)), legend=alt.Legend(title=None))
    base = alt.Chart(rows).encode(
        x=alt.X("step:Q", title="step", scale=alt.Scale(zero=False, nice=False)), color=colour
    )
    share = alt.Y("share:Q", title="share of the samples", axis=alt.Axis(format="%"), scale=alt.Scale(zero=True))
    tips = ["subset:N", "first_step:Q", "last_step:Q", alt.Tooltip("share:Q", format=".1%"), "draws:Q"]
    layers: list[alt.Chart] = [
        base.mark_area(opacity=0.15).encode(alt.Y("low:Q", title="share of the samples"), alt.Y2("high:Q")),
        base.mark_line().encode(y=share, tooltip=tips),
    ]
    words = []
    if intended:
        total = sum(intended.values())
        plan = pd.DataFrame({"subset": list(largest), "share": [intended.get(s, 0) / total for s in largest]})
        layers.append(alt.Chart(plan).mark_rule(strokeDash=[5, 4]).encode(y=share, color=colour))
        words.append("dashed: intended")
    if onset_step is not None:
        rule = alt.Chart(pd.DataFrame({"step": [onset_step]})).mark_rule(color=RED, strokeWidth=2)
        layers.append(rule.encode(x="step:Q"))
        words.append(f"red: drifts from step {onset_step}")
    return alt.layer(*layers).properties(title=alt.Title("Share of the subsets", subtitle="; ".join(words)))
