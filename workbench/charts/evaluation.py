"""Tables of evaluation results -> charts."""

from __future__ import annotations

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, GREEN, GREY, QUIET, RED, AnyChart
from workbench.errors import UnknownParameterError
from workbench.metrics import evaluation_title

VERDICT_COLOURS = {"better": GREEN, "within noise": GREY, "worse": RED, "not testable": "#b8bec6"}


def subset_chart(evals: pd.DataFrame, metric: str = "loss", *, highlight: str | None = None) -> AnyChart:
    """One metric per subset over the checkpoints' steps, with its confidence band.

    Args:
        evals: step, checkpoint, subset, metric, value, low, high.
        metric: metric to show.
        highlight: checkpoint to mark with a line.

    Raises:
        UnknownParameterError: no row has the metric.
    """
    shown = evals.loc[evals["metric"] == metric, ["checkpoint", "step", "subset", "value", "low", "high"]]
    if shown.empty:
        raise UnknownParameterError(
            f"There is no value of metric {metric!r}.", fix=f"use one of {sorted(evals['metric'].unique())}"
        )
    title = evaluation_title(metric)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False))
    base = alt.Chart(shown).encode(x=alt.X("step:Q", title="step", scale=alt.Scale(nice=False, padding=12)))
    colour = alt.Color("subset:N", title="subset")
    band = base.mark_area(opacity=0.15).encode(
        alt.Y("low:Q", title=title, scale=alt.Scale(zero=False)), alt.Y2("high:Q"), color=colour
    )
    numbers = [alt.Tooltip(f"{c}:Q", format=".4f") for c in ("value", "low", "high")]
    line = base.mark_line(point=True).encode(
        y=y, color=colour, tooltip=["checkpoint:N", "step:Q", "subset:N", *numbers]
    )
    here = shown.loc[shown["checkpoint"] == highlight, ["step"]].drop_duplicates().head(1)
    rule = alt.Chart(here).mark_rule(color=QUIET, strokeDash=[4, 3]).encode(x="step:Q")
    name = title.split(" (")[0].capitalize()
    heading = alt.TitleParams(f"{name} per subset", subtitle=_band_words(evals))
    return alt.layer(band, rule, line).properties(title=heading)


def changes_chart(changes: pd.DataFrame, *, metric: str = "loss") -> AnyChart:
    """Paired changes per subset with their intervals, one panel per reference checkpoint.

    Args:
        changes: reference, subset, change, low, high, p_holm, verdict (a key of `VERDICT_COLOURS`).
        metric: the metric that changed.
    """
    title = evaluation_title(metric)
    words = [w for w in VERDICT_COLOURS if w in set(changes["verdict"])]
    scale = alt.Scale(domain=words, range=[VERDICT_COLOURS[w] for w in words])
    columns = ["reference", "subset", "change", "low", "high", "p_holm", "verdict"]
    order = list(dict.fromkeys(changes["subset"]))
    rows = alt.Chart(changes[columns])
    base = rows.encode(
        y=alt.Y("subset:N", title=None, sort=order), color=alt.Color("verdict:N", title=None, scale=scale)
    )
    x_title = f"change of {title}"
    numbers = [alt.Tooltip(f"{c}:Q", format="+.4f") for c in ("change", "low", "high")]
    interval = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q", title=x_title), alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("change:Q", title=x_title, axis=alt.Axis(tickCount=8)),
        tooltip=["subset:N", *numbers, alt.Tooltip("p_holm:Q", format=".3g"), "verdict:N"],
    )
    zero = rows.mark_rule(color=BLUE, strokeDash=[3, 3]).encode(x=alt.datum(0.0))
    layers = alt.layer(zero, interval, points).properties(height=alt.Step(24))
    references = list(dict.fromkeys(changes["reference"]))
    row = alt.Row("reference:N", title=None, sort=references, header=alt.Header(orient="top", labelAnchor="start"))
    return layers.facet(row=row).properties(title=alt.TitleParams("Change per subset, paired on the same samples"))


def _band_words(evals: pd.DataFrame) -> str:
    levels = evals["confidence"].dropna().unique() if "confidence" in evals else []
    return f"band: {levels[0]:.0%} interval over documents" if len(levels) == 1 else ""
