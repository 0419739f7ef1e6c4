"""Profiled steps -> charts of where their time went."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, AnyChart, empty_chart

PARTS = {  # column of `analyses.device_steps` -> words, colour
    "computing_us": ("computing", "#b9d6ea"),
    "transfer_us": ("exposed transfer", BLUE),
    "late_rank_us": ("waiting for a late rank", RED),
    "pipeline_wait_us": ("waiting for another stage", PURPLE),
    "data_wait_us": ("waiting for data", ORANGE),
    "compile_us": ("compiling", "#6f4e37"),
    "checkpoint_us": ("saving", SKY),
    "evaluation_us": ("evaluating", GREEN),
    "launch_gap_us": ("between launches", "#f0c987"),
    "unknown_us": ("idle, unknown", GREY),
}
SEEN_SHARE = 0.0005  # half a pixel


def rank_parts_chart(steps: pd.DataFrame) -> AnyChart:
    """Mean step of each rank by part (as `analyses.device_steps` returns): a bar per rank."""
    if steps.empty:
        return empty_chart("Where each rank's step goes")
    means = steps.groupby("rank_id", as_index=False)[list(PARTS)].mean()
    chart = _bars(means, alt.Y("rank_id:O", title="rank"), "rank_id")
    return chart.properties(title="Where each rank's step goes", height=alt.Step(22))


def step_parts_chart(steps: pd.DataFrame, *, rank_id: int) -> AnyChart:
    """Each step of one rank by part: what is longer in the steps that stick out."""
    own = steps[steps["rank_id"] == rank_id]
    title = f"Steps of rank {rank_id}"
    if own.empty:
        return empty_chart(title)
    return _bars(own, alt.Y("step:O", title="step"), "step").properties(title=title, height=alt.Step(18))


def _bars(rows: pd.DataFrame, y: alt.Y, key: str) -> alt.Chart:
    whole = float(rows[list(PARTS)].sum().sum())
    parts = [p for p in PARTS if rows[p].sum() > SEEN_SHARE * whole]
    long = rows.melt(key, parts, "part", "us")
    names = {p: PARTS[p][0] for p in parts}
    long = long.assign(ms=long["us"] / 1e3, order=long["part"].map(parts.index), part=long["part"].map(names))
    scale = alt.Scale(domain=list(names.values()), range=[PARTS[p][1] for p in parts])
    return (
        alt.Chart(long[[key, "part", "ms", "order"]])
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="time per step (ms)"),
            y=y,
            color=alt.Color("part:N", title=None, scale=scale, legend=alt.Legend(orient="top", columns=5)),
            order="order:Q",
            tooltip=[f"{key}:O", "part:N", alt.Tooltip("ms:Q", format=",.2f")],
        )
    )
