"""Tables on a data set -> charts: lengths, tokens kept and cut, what ails each subset, batch sizes."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, INK, ORANGE, RED, AnyChart, empty_chart

AILMENTS = {  # column of `subset_health` -> words on the chart
    "unusable_share": "unusable",
    "empty_share": "empty",
    "exact_share": "exact copies",
    "near_share": "near copies",
    "long_share": "too long",
    "lost_share": "tokens cut",
    "unknown_share": "unknown",
    "byte_share": "byte tokens",
}
MOST_SUBSETS = 20
WORST_SHARE = 0.3  # from here on the colour says no more


def length_chart(histogram: pd.DataFrame, training_length_tokens: float | None = None) -> AnyChart:
    """Samples per length (table of `length_histogram`) by subset, on a logarithmic axis; red: training length."""
    if histogram.empty:
        return empty_chart("Length of samples", "no samples")
    unit = str(histogram["unit"].iloc[0])
    scale = alt.Scale(type="log", nice=False)
    bars = (
        alt.Chart(_with_few_subsets(histogram, "samples"))
        .mark_bar()
        .encode(
            x=alt.X("low:Q", bin="binned", scale=scale, title=f"{unit} per sample", axis=alt.Axis(format="~s")),
            x2="high:Q",
            y=alt.Y("samples:Q", stack=True, title="samples"),
            color=alt.Color("subset:N", legend=alt.Legend(title=None)),
            tooltip=["subset:N", "low:Q", "high:Q", "samples:Q"],
        )
    )
    if training_length_tokens is None or unit != "tokens":
        return bars.properties(title="Length of samples")
    line = alt.Chart(pd.DataFrame({"at": [training_length_tokens]})).mark_rule(color=RED, strokeWidth=2)
    words = f"red: the training length of {training_length_tokens:,.0f} tokens"
    return alt.layer(bars, line.encode(x="at:Q")).properties(title=alt.Title("Length of samples", subtitle=words))


def tokens_chart(cut: pd.DataFrame) -> AnyChart:
    """Tokens per subset (table of `truncation`), those that the training length cuts off apart."""
    subsets = cut[cut["subset"] != "(all)"] if len(cut) else cut
    if subsets.empty:
        return empty_chart("Tokens per subset", "needs a tokenizer and a training length")
    largest = subsets.nlargest(MOST_SUBSETS, "tokens").assign(kept=lambda t: t["tokens"] - t["lost_tokens"])
    long = largest.rename(columns={"lost_tokens": "cut off"}).melt(
        ["subset", "tokens", "lost_share"], ["kept", "cut off"], var_name="part", value_name="part_tokens"
    )
    colour = alt.Scale(domain=["kept", "cut off"], range=[BLUE, RED])
    return (
        alt.Chart(long, title="Tokens per subset")
        .mark_bar()
        .encode(
            x=alt.X("part_tokens:Q", title="tokens", axis=alt.Axis(format="~s")),
            y=alt.Y("subset:N", sort="-x", title=None),
            color=alt.Color("part:N", scale=colour, legend=alt.Legend(title=None)),
            order=alt.Order("part:N", sort="descending"),
            tooltip=["subset:N", "part:N", alt.Tooltip("part_tokens:Q", format=",.0f"),
                     alt.Tooltip("lost_share:Q", format=".1%")],
        )
        .properties(height=alt.Step(24))
    )  # fmt: skip


def health_chart(health: pd.DataFrame) -> AnyChart:
    """What ails each subset (table of `subset_health`): a share per field, darker where it is more."""
    known = [c for c in AILMENTS if c in health and health[c].notna().any()]
    if health.empty or not known:
        return empty_chart("What ails the samples", "no samples")
    long = health.nlargest(MOST_SUBSETS + 1, "samples").melt(
        ["subset", "samples"], known, var_name="what", value_name="share"
    )
    long = long.dropna().assign(what=lambda t: t["what"].map(AILMENTS))
    base = alt.Chart(long, title="What ails the samples").encode(
        x=alt.X("what:N", sort=list(AILMENTS.values()), title=None, axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("subset:N", title=None),
    )
    scale = alt.Scale(domain=[0, WORST_SHARE], range=["#ffffff", ORANGE], clamp=True, interpolate="rgb")
    fields = base.mark_rect().encode(
        color=alt.Color("share:Q", scale=scale, legend=None),
        tooltip=["subset:N", "what:N", alt.Tooltip("share:Q", format=".2%"), "samples:Q"],
    )
    words = base.mark_text(color=INK).encode(text=alt.Text("share:Q", format=".1%"))
    return alt.layer(fields, words).properties(height=alt.Step(26))


def batch_size_chart(sizes: pd.DataFrame) -> AnyChart:
    """Steps per batch size (table of `batch_sizes`), all ranks together."""
    if sizes.empty:
        return empty_chart("Batch sizes", "no steps with a number of samples")
    total = sizes.groupby("samples", as_index=False)["steps"].sum()
    return (
        alt.Chart(total, title="Batch sizes")
        .mark_bar(color=BLUE, size=40)
        .encode(
            x=alt.X("samples:O", title="samples per batch and rank", axis=alt.Axis(labelAngle=0, format="d")),
            y=alt.Y("steps:Q", title="steps"),
            tooltip=["samples:O", "steps:Q"],
        )
    )


def _with_few_subsets(histogram: pd.DataFrame, weight: str) -> pd.DataFrame:
    """The seven largest subsets by name, the others as one."""
    largest = histogram.groupby("subset", dropna=False)[weight].sum().nlargest(7).index
    names = histogram["subset"].where(histogram["subset"].isin(largest), "others").fillna("(none)")
    keys = ["unit", "subset", "low", "high"]
    return histogram.assign(subset=names).groupby(keys, as_index=False)[weight].sum()
