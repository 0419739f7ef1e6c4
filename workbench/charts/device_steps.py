"""Profiled steps -> charts of where their time went."""

from __future__ import annotations

from collections.abc import Mapping

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
UNSPLIT = {"transfer_us": ("exposed communication", BLUE)}
SEEN_SHARE = 0.0005  # half a pixel


def rank_parts_chart(steps: pd.DataFrame, *, split: bool = True) -> AnyChart:
    """Mean step of each rank by part (as `analyses.device_steps` returns): a bar per rank.

    `split` is False for steps made without collectives: what they call transfer is then all exposed communication.
    """
    if steps.empty:
        return empty_chart("Where each rank's step goes")
    means = steps.groupby("rank_id", as_index=False)[list(PARTS)].mean()
    chart = _bars(means, alt.Y("rank_id:O", title="rank"), "rank_id", {} if split else UNSPLIT)
    return chart.properties(title="Where each rank's step goes", height=alt.Step(22))


def step_parts_chart(steps: pd.DataFrame, *, rank_id: int) -> AnyChart:
    """Each step of one rank by part: what is longer in the steps that stick out."""
    own = steps[steps["rank_id"] == rank_id]
    title = f"Steps of rank {rank_id}"
    if own.empty:
        return empty_chart(title)
    return _bars(own, alt.Y("step:O", title="step"), "step").properties(title=title, height=alt.Step(18))


def stage_bubbles_chart(bubbles: pd.DataFrame) -> AnyChart:
    """Computing and standing still per pipeline stage (as `stage_bubbles` returns), the bubble's share beside it."""
    title = "Pipeline bubble per stage"
    if len(bubbles) < 2:
        return empty_chart(title, "no sends and receives between known ranks: one stage")
    words = {"computing_us": PARTS["computing_us"], "transfer_us": PARTS["transfer_us"],
             "late_rank_us": PARTS["late_rank_us"], "pipeline_wait_us": PARTS["pipeline_wait_us"],
             "idle_us": ("idle", GREY)}  # fmt: skip
    rows = bubbles.assign(label=bubbles["bubble_share"].map("{:.0%} waiting".format))
    bars = _stacked(rows, words, alt.Y("stage:O", title="stage"), "stage")
    label = alt.Chart(rows.assign(ms=rows[list(words)].sum(axis=1) / 1e3)[["stage", "ms", "label"]])
    text = label.mark_text(align="left", dx=4).encode(x="ms:Q", y="stage:O", text="label:N")
    return alt.layer(bars, text).properties(title=title, height=alt.Step(30))


def _bars(rows: pd.DataFrame, y: alt.Y, key: str, words: Mapping[str, tuple[str, str]] | None = None) -> alt.Chart:
    whole, named = float(rows[list(PARTS)].sum().sum()), {**PARTS, **(words or {})}
    return _stacked(rows, {p: named[p] for p in PARTS if rows[p].sum() > SEEN_SHARE * whole}, y, key)


def _stacked(rows: pd.DataFrame, words: dict[str, tuple[str, str]], y: alt.Y, key: str) -> alt.Chart:
    """Bars of the columns of `words` (column -> words, colour), stacked in its order."""
    order = list(words)
    long = rows.melt(key, order, "part", "us")
    long = long.assign(
        ms=long["us"] / 1e3,
        order=long["part"].map(order.index),
        part=long["part"].map({p: w for p, (w, _) in words.items()}),
    )
    scale = alt.Scale(domain=[w for w, _ in words.values()], range=[c for _, c in words.values()])
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
