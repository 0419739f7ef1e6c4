"""Communication tables -> charts: who waits for whom, and which link is slow."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, RED, AnyChart, empty_chart, swatches

CELLS_MOST = 4096


def rank_waits_chart(losses: pd.DataFrame) -> AnyChart:
    """Wait and transfer per rank in collectives (as `late_rank_losses` returns). The culprit waits least."""
    title = "Waiting and moving data in collectives"
    if losses.empty:
        return empty_chart(title, "no collective of several known ranks")
    words = {"wait_us_per_step": "waiting for the last rank", "transfer_us_per_step": "moving data"}
    long = losses.melt("rank_id", list(words), "part", "us")
    long = long.assign(ms=long["us"] / 1e3, part=long["part"].map(words))
    scale = alt.Scale(domain=list(words.values()), range=[RED, BLUE])
    return (
        alt.Chart(long[["rank_id", "part", "ms"]])
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="time per step (ms), hidden by computing or not"),
            y=alt.Y("rank_id:O", title="rank"),
            color=alt.Color("part:N", title=None, scale=scale),
            tooltip=["rank_id:O", "part:N", alt.Tooltip("ms:Q", format=",.2f")],
        )
        .properties(title=title, height=alt.Step(22))
    )


def late_ranks_chart(losses: pd.DataFrame) -> AnyChart:
    """What each rank costs the others by starting last (as `late_rank_losses` returns)."""
    title = "Who everyone waits for"
    if losses.empty:
        return empty_chart(title, "no collective of several known ranks")
    shown = losses.assign(ms=losses["lost_us_per_step"] / 1e3)
    return (
        alt.Chart(shown[["rank_id", "ms", "last", "operations"]], title=title)
        .mark_bar(color=RED)
        .encode(
            x=alt.X("ms:Q", title="wait of the others for this rank (ms per step)"),
            y=alt.Y("rank_id:O", title="rank"),
            tooltip=["rank_id:O", alt.Tooltip("ms:Q", format=",.2f"), "last:Q", "operations:Q"],
        )
        .properties(height=alt.Step(22))
    )


def communication_kinds_chart(kinds: pd.DataFrame) -> AnyChart:
    """Wait and transfer per step for data, tensor, pipeline, ... parallelism (as `communication_kinds` returns)."""
    title = "Communication by what it is for"
    if kinds.empty:
        return empty_chart(title, "no communication")
    words = {"wait_us": "waiting for the last rank", "transfer_us": "moving data"}
    long = kinds.melt(["kind", "groups", "operations_per_step"], list(words), "part", "us")
    long = long.assign(ms=long["us"] / 1e3, part=long["part"].map(words))
    scale = alt.Scale(domain=list(words.values()), range=[RED, BLUE])
    bars = (
        alt.Chart(long[["kind", "groups", "operations_per_step", "part", "ms"]])
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="time per step of a rank that takes part (ms)"),
            y=alt.Y("kind:N", title=None, sort=kinds["kind"].tolist()),
            color=alt.Color("part:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
            tooltip=["kind:N", "part:N", alt.Tooltip("ms:Q", format=",.2f"), "groups:Q",
                     alt.Tooltip("operations_per_step:Q", format=",.1f")],
        )
    )  # fmt: skip
    exposed = kinds.dropna(subset=["exposed_us"]).assign(ms=lambda k: k["exposed_us"] / 1e3)
    marks = (
        alt.Chart(exposed[["kind", "ms"]])
        .mark_tick(color="#222222", thickness=3, size=20)
        .encode(
            x="ms:Q",
            y=alt.Y("kind:N", sort=kinds["kind"].tolist()),
            tooltip=[alt.Tooltip("ms:Q", format=",.2f", title="not hidden by computing (ms)")],
        )
    )
    if exposed.empty:
        return bars.properties(title=title, height=alt.Step(26))
    return alt.layer(bars, marks).properties(title=f"{title} (mark: not hidden by computing)", height=alt.Step(26))


def link_matrix_chart(summary: pd.DataFrame) -> AnyChart:
    """Bandwidth from rank to rank (as `link_summary` returns), coloured against the links of the same transport."""
    title = "Bandwidth of links"
    cells = summary[summary["is_global"].astype(bool)]
    if cells.empty and len(summary):  # numbers in a group: those of the largest group are the ones to compare
        cells = summary[summary["group_id"] == summary["group_id"].value_counts().index[0]]
    if cells.empty:
        return empty_chart(title, "no link moved a megabyte")
    cells = cells.nlargest(CELLS_MOST, "ratio").assign(
        gb_per_s=lambda c: c["bandwidth_bytes_per_s"] / 1e9, speed=lambda c: 1 / c["ratio"]
    )
    base = alt.Chart(cells[["src_rank", "dst_rank", "transport", "gb_per_s", "speed"]]).encode(
        alt.X("dst_rank:O", title="to rank", axis=alt.Axis(labelAngle=0)), alt.Y("src_rank:O", title="from rank")
    )
    colour = alt.Color(
        "speed:Q",
        title="of peers",
        scale=alt.Scale(scheme="redblue", domain=[0, 2], domainMid=1),
        legend=swatches(format=".0%", orient="right"),
    )
    tooltip = ["src_rank:O", "dst_rank:O", "transport:N", alt.Tooltip("gb_per_s:Q", format=".2f", title="GB/s")]
    tiles = base.mark_rect().encode(color=colour, tooltip=tooltip)
    if len(cells) > 256:
        return tiles.properties(title=title, width=420, height=420)
    words = base.mark_text(fontSize=11).encode(text=alt.Text("gb_per_s:Q", format=".1f"))
    return alt.layer(tiles, words).properties(title=f"{title} (GB/s)", width=alt.Step(44), height=alt.Step(28))
