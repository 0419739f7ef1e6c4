"""Courses of subsets, the sampling mix beside them, and the choice of a checkpoint -> charts."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREEN, GREY, INK, QUIET, RED, AnyChart, swatches
from workbench.errors import UnknownParameterError
from workbench.metrics import evaluation_title

FELL, HOLDS = "fell beyond noise", "holds or improves"
DARK_SHARE = 0.6  # of the colour scale: from there on ink is lost on a cell
STATES = {FELL: 1.0, HOLDS: 0.45}  # opacity
SHADES = alt.Scale(scheme="oranges", zero=False)
CHOICE_WORDS = {"recommended": GREEN, "cannot be told from the best": BLUE, "worse beyond noise": GREY}


def subset_course_chart(
    evals: pd.DataFrame, drops: pd.DataFrame, *, metric: str, mix_steps: tuple[int, ...] = ()
) -> AnyChart:
    """Every subset's score against its level before its largest drop; those that fell beyond noise stand out.

    Args:
        evals: table `evals` of one kind.
        drops: courses as `subset_course.drops` returns them, with column fallen (boolean).
        metric: metric to show.
        mix_steps: steps at which the sampling mix changed, drawn as lines.

    Raises:
        UnknownParameterError: no course has the metric.
    """
    own = drops[drops["metric"] == metric].set_index("subset")
    rows = evals[(evals["metric"] == metric) & evals["subset"].isin(own.index)].dropna(subset=["step", "value"])
    if rows.empty:
        raise UnknownParameterError(f"There is no course of {metric!r}.", fix=f"use one of {sorted(set(drops.metric))}")
    shown = rows[["step", "subset", "value"]].assign(
        change=rows["value"] - rows["subset"].map(own["before"]).astype(float),
        state=rows["subset"].map(own["fallen"]).map({True: FELL, False: HOLDS}),
    )
    title = f"change of {evaluation_title(metric)}"
    lines = (
        alt.Chart(shown)
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("change:Q", title=title),
            color=alt.Color("subset:N", title="subset"),
            opacity=alt.Opacity(
                "state:N", title=None, scale=alt.Scale(domain=list(STATES), range=list(STATES.values()))
            ),
            tooltip=[
                "subset:N",
                "step:Q",
                alt.Tooltip("value:Q", format=".4f"),
                alt.Tooltip("change:Q", format="+.4f"),
            ],
        )
    )
    last = shown[shown["state"] == FELL].sort_values("step").drop_duplicates("subset", keep="last")
    names = alt.Chart(last).mark_text(align="left", dx=7, color=RED, fontWeight="bold")
    names = names.encode(x="step:Q", y="change:Q", text="subset:N")
    zero = alt.Chart(shown).mark_rule(color=QUIET).encode(y=alt.datum(0.0))
    changes = alt.Chart(pd.DataFrame({"step": list(mix_steps)}, dtype="float64"))
    rules = changes.mark_rule(color=BLUE, strokeDash=[4, 3]).encode(x="step:Q")
    words = "dashed: the sampling mix changed" if mix_steps else ""
    heading = alt.TitleParams("Subsets against their level before", subtitle=words)
    return alt.layer(zero, rules, lines, names).properties(title=heading, width=620, height=280, padding={"right": 90})


def mix_chart(shares: pd.DataFrame) -> AnyChart:
    """Share of each source among the samples, from step to step.

    Args:
        shares: step, source, share; a share holds until the next step of the same source.
    """
    base = alt.Chart(shares[["step", "source", "share"]])
    return (
        base.mark_line(interpolate="step-after", point=True)
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("share:Q", title="share of the samples", axis=alt.Axis(format="%")),
            color=alt.Color("source:N", title="source"),
            tooltip=["source:N", "step:Q", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(title="Sampling mix", width=620, height=180)
    )


def choice_chart(ranked: pd.DataFrame) -> AnyChart:
    """Score of each checkpoint above the recommended one, with its interval; the best set in colour.

    Args:
        ranked: table as `rank_checkpoints` returns it.
    """
    words = list(CHOICE_WORDS)
    place = ranked["in_best_set"].map({True: words[1], False: words[2]}).where(~ranked["recommended"], words[0])
    shown = ranked[["checkpoint", "step", "behind", "low", "high", "mean_loss", "why"]].assign(place=place)
    shown = shown[shown["behind"].notna()]
    scale = alt.Scale(domain=words, range=list(CHOICE_WORDS.values()))
    base = alt.Chart(shown).encode(
        y=alt.Y("checkpoint:N", title=None, sort=list(ranked["checkpoint"])),
        color=alt.Color("place:N", title=None, scale=scale),
    )
    title = "score above the recommended one (nats per token)"
    interval = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q", title=title), alt.X2("high:Q"))
    tooltip = ["checkpoint:N", "step:Q", alt.Tooltip("behind:Q", format="+.4f"),
               alt.Tooltip("mean_loss:Q", format=".4f"), "why:N"]  # fmt: skip
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=alt.X("behind:Q", title=title), tooltip=tooltip)
    zero = alt.Chart(shown).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x=alt.datum(0.0))
    heading = alt.TitleParams("Which checkpoint?", subtitle="loss, spread over subsets and gradients before it")
    return alt.layer(zero, interval, points).properties(title=heading, width=520, height=alt.Step(24))


def position_chart(losses: pd.DataFrame, *, subset: str | None = None) -> AnyChart:
    """Heat map of the loss by place in the sample (across) and by sample length (down), one panel per subset.

    Args:
        losses: one model state of `position_loss.loss_by_position`.
        subset: show this one only.
    """
    rows = losses if subset is None else losses[losses["subset"] == subset]
    place = [f"{a}-{b}" for a, b in zip(rows["first_position"], rows["last_position"], strict=True)]
    length = [f"{a}-{b}" for a, b in zip(rows["low_tokens"], rows["high_tokens"], strict=True)]
    numbers = rows[["subset", "last_position", "high_tokens", "loss", "low", "high", "perplexity", "n"]]
    shown = numbers.assign(place=place, length=length)
    places = list(dict.fromkeys(shown.sort_values("last_position")["place"]))
    lengths = list(dict.fromkeys(shown.sort_values("high_tokens")["length"]))
    base = alt.Chart(shown).encode(
        x=alt.X("place:N", title="place in the sample (tokens)", sort=places, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("length:N", title=None, sort=lengths),
    )
    three = [alt.Tooltip(f"{c}:Q", format=".3f") for c in ("loss", "low", "high")]
    cells = base.mark_rect().encode(
        color=alt.Color("loss:Q", title="nats per token", scale=SHADES, legend=swatches()),
        tooltip=["subset:N", "place:N", "length:N", *three, alt.Tooltip("perplexity:Q", format=".4g"), "n:Q"],
    )
    dark = float(shown["loss"].min() + DARK_SHARE * (shown["loss"].max() - shown["loss"].min()))
    colour = alt.condition(f"datum.loss > {dark}", alt.value("white"), alt.value(INK))
    texts = base.mark_text().encode(text=alt.Text("loss:Q", format=".2f"), color=colour)
    panels = alt.layer(cells, texts).properties(width=420, height=alt.Step(30))
    return panels.facet(row=alt.Row("subset:N", title=None)).properties(
        title=alt.TitleParams("Loss by length and place", subtitle="down: length of the sample in tokens, per subset")
    )
