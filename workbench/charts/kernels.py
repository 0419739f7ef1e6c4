"""Operator tables -> charts: what takes the time, and on which rank it takes longer."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, RED, AnyChart, empty_chart, swatches

SHOWN = 15
WIDTH, NARROW = 600, 440  # of the plot: names of operators, and of runs of them, stand beside it within 1280 px
CELLS_MOST = 2000  # a heat map of 64 ranks keeps its 30 largest operators
SHARES = alt.Axis(format=".0%", tickCount=8)
LABEL_RATIO = 1.03
RATIO = alt.Color(
    "ratio:Q",
    title="over peers",
    scale=alt.Scale(scheme="blueorange", domainMid=1, domain=[0.5, 1.5], clamp=True),
    legend=swatches(format=".2f"),
)


def operator_totals_chart(totals: pd.DataFrame) -> AnyChart:
    """Largest operator types (as `kernel_totals` returns): mean share of compute time over ranks."""
    if totals.empty:
        return empty_chart("Operators by time")
    kinds = totals.groupby("op_type", as_index=False)[["share", "count", "total_us"]].mean().nlargest(SHOWN, "share")
    return (
        alt.Chart(kinds, title="Operators by time")
        .mark_bar(color=BLUE)
        .encode(
            x=alt.X("share:Q", title="share of compute time, mean over ranks", axis=SHARES),
            y=alt.Y("op_type:N", title=None, sort="-x"),
            tooltip=["op_type:N", alt.Tooltip("share:Q", format=".2%"), alt.Tooltip("count:Q", format=",.0f"),
                     alt.Tooltip("total_us:Q", format=",.0f")],
        )
        .properties(width=WIDTH, height=alt.Step(20))
    )  # fmt: skip


def operator_rank_chart(ratios: pd.DataFrame) -> AnyChart:
    """Operator by rank, coloured by the time over the peers' for the same work (as `operator_ratios` returns).

    A dark column is a slow device, a dark cell a slow operator. Operators in order of their time.
    """
    title = "Time of the same work over the peers'"
    if ratios.empty:
        return empty_chart(title, "no two ranks run the same operator")
    order = ratios.groupby("op_type")["total_us_per_step"].sum().sort_values(ascending=False)
    kept = order.index[: max(1, CELLS_MOST // ratios["rank_id"].nunique())].tolist()
    cells = ratios.loc[ratios["op_type"].isin(kept), ["rank_id", "op_type", "ratio", "total_us_per_step"]]
    base = alt.Chart(cells).encode(
        alt.X("rank_id:O", title="rank", axis=alt.Axis(labelAngle=0)), alt.Y("op_type:N", title=None, sort=kept)
    )
    tooltip = ["rank_id:O", "op_type:N", alt.Tooltip("ratio:Q", format=".3f")]
    tiles = base.mark_rect().encode(color=RATIO, tooltip=tooltip)
    words = base.transform_filter(alt.datum.ratio > LABEL_RATIO).mark_text(fontSize=11)
    return alt.layer(tiles, words.encode(text=alt.Text("ratio:Q", format=".2f"))).properties(
        title=title, width=WIDTH, height=alt.Step(20)
    )


def fusion_chart(candidates: pd.DataFrame) -> AnyChart:
    """Runs of small elementwise operators that could be one kernel each (as `fusion_candidates` returns)."""
    title = "Adjacent elementwise operators that could be one kernel"
    if candidates.empty:
        return empty_chart(title, "no two of them run one after the other in one scope")
    words = {"total_us": "running", "gap_us": "idle between them"}
    top = candidates.head(SHOWN).assign(run=lambda c: c["operators"] + "  ×" + c["runs_per_step"].map("{:,.0f}".format))
    long = top.melt(["run", "scope", "length", "launches_saved"], list(words), "part", "us")
    long = long.assign(ms=long["us"] / 1e3, part=long["part"].map(words))
    scale = alt.Scale(domain=list(words.values()), range=[BLUE, "#f0c987"])
    return (
        alt.Chart(long[["run", "scope", "length", "launches_saved", "part", "ms"]], title=title)
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="time per step (ms)"),
            y=alt.Y("run:N", title=None, sort=top["run"].tolist(), axis=alt.Axis(labelLimit=320)),
            color=alt.Color("part:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
            tooltip=["scope:N", "length:Q", alt.Tooltip("launches_saved:Q", format=",.1f"), "part:N",
                     alt.Tooltip("ms:Q", format=",.3f")],
        )
        .properties(width=NARROW, height=alt.Step(22))
    )  # fmt: skip


def kernel_changes_chart(changes: pd.DataFrame) -> AnyChart:
    """What explains the difference of two profiles (as `compare_kernels` returns); bars with their noise."""
    if changes.empty:
        return empty_chart("What changed")
    largest = changes.head(SHOWN).assign(
        ms=lambda c: c["change_us"] / 1e3,
        low=lambda c: (c["change_us"] - c["noise_us"].fillna(0)) / 1e3,
        high=lambda c: (c["change_us"] + c["noise_us"].fillna(0)) / 1e3,
    )
    y = alt.Y("op_type:N", title=None, sort=largest["op_type"].tolist())
    words = "change per step (ms); whiskers: two standard errors"
    x = alt.X("ms:Q", title=words)
    colour = alt.condition("datum.is_change", alt.value(RED), alt.value("#c7d3dd"))
    bars = (
        alt.Chart(largest)
        .mark_bar()
        .encode(x, y, color=colour, tooltip=["op_type:N", alt.Tooltip("ms:Q", format=",.3f")])
    )
    whiskers = alt.Chart(largest).mark_rule().encode(alt.X("low:Q", title=words), alt.X2("high:Q"), y)
    return alt.layer(bars, whiskers).properties(title="What changed", width=WIDTH, height=alt.Step(20))
