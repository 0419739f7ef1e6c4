"""Layer statistics -> heat map over training, curves of single layers, profile over token positions."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from workbench.charts.theme import AnyChart, empty_chart, swatches

CELLS_MOST = 3000
TITLES = {
    "spread": "spread (standard deviation)",
    "max_abs": "largest absolute value",
    "mean": "mean",
    "zero_share": "share of zeros",
}
FACTORS = {"spread": "factor", "max_abs": "factor"}
MOST_LOG2 = 3.0  # colours end at a factor of 8


def layer_heatmap(course: pd.DataFrame, *, measure: str = "spread") -> AnyChart:
    """Layer by step, coloured by the change against the second quarter of the records (as `layer_course` returns)."""
    title = f"Change of each layer's {TITLES[measure]}"
    if course.empty:
        return empty_chart(title)
    cells = _fewer(course.assign(shown=_shown(course["change"], measure)))
    heading = alt.TitleParams(title, subtitle="against the second quarter of the records")
    numbers = [alt.Tooltip(f"{c}:Q", format=".4g") for c in ("value", "reference", "shown")]
    tiles = alt.Chart(cells, title=heading).mark_rect()
    return tiles.encode(
        x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("layer:N", title=None, sort=_in_order(course)),
        color=_colour(cells["shown"], measure),
        tooltip=["layer:N", "step:O", *numbers],
    ).properties(height=alt.Step(15))


def _colour(shown: pd.Series, measure: str) -> alt.Color:
    """Factors on a logarithmic scale around 1, differences on a linear one around 0."""
    legend = swatches(format=".2~g")
    if measure in FACTORS:
        end = float(2**MOST_LOG2)
        scale = alt.Scale(scheme="blueorange", type="log", domain=[1 / end, end], domainMid=1, clamp=True)
        return alt.Color("shown:Q", title=FACTORS[measure], scale=scale, legend=legend)
    end = max(float(shown.abs().max()), 1e-12)
    scale = alt.Scale(scheme="blueorange", domain=[-end, end], domainMid=0, clamp=True)
    return alt.Color("shown:Q", title="difference", scale=scale, legend=legend)


def layer_curves(course: pd.DataFrame, layers: Sequence[str], *, measure: str = "spread") -> AnyChart:
    """Values of a few layers over steps."""
    shown = course[course["layer"].isin(list(layers))]
    title = f"{TITLES[measure].capitalize()} of single layers"
    if shown.empty:
        return empty_chart(title)
    by_factor = measure in FACTORS and bool((shown["value"] > 0).all())
    scale = alt.Scale(type="log") if by_factor else alt.Scale(zero=False)
    return (
        alt.Chart(shown[["layer", "step", "value"]], title=title)
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("value:Q", title=TITLES[measure], scale=scale),
            color=alt.Color("layer:N", title="layer"),
            tooltip=["layer:N", "step:Q", alt.Tooltip("value:Q", format=".4g")],
        )
    )


def position_heatmap(profile: pd.DataFrame) -> AnyChart:
    """Layer by token position, coloured by the spread over the layer's median (as `position_profile` returns)."""
    title = "Spread of each layer by token position"
    if profile.empty:
        return empty_chart(title, "no ranges of positions are recorded")
    span = profile["first_position"].astype(str) + "–" + profile["last_position"].astype(str)
    cells = profile.assign(positions=span, factor=2.0 ** profile["change"])
    order = cells.sort_values("first_position")["positions"].drop_duplicates().tolist()
    subtitle = f"against the layer's median over positions, step {cells['step'].iloc[0]}"
    scale = alt.Scale(scheme="blueorange", type="log", domain=[0.25, 4], domainMid=1, clamp=True)
    numbers = [alt.Tooltip("spread:Q", format=".4g"), alt.Tooltip("factor:Q", format=".3f")]
    tiles = alt.Chart(
        cells[["layer", "positions", "spread", "factor"]], title=alt.TitleParams(title, subtitle=subtitle)
    )
    return (
        tiles.mark_rect()
        .encode(
            x=alt.X("positions:N", title="token positions", sort=order, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("layer:N", title=None, sort=_in_order(profile)),
            color=alt.Color("factor:Q", title="factor", legend=swatches(format=".2~g"), scale=scale),
            tooltip=["layer:N", "positions:N", *numbers],
        )
        .properties(height=alt.Step(15))
    )


def _in_order(rows: pd.DataFrame) -> list[str]:
    return rows.sort_values("layer_index", kind="stable")["layer"].drop_duplicates().tolist()


def _shown(change: pd.Series, measure: str) -> pd.Series:
    return 2.0**change if measure in FACTORS else change


def _fewer(cells: pd.DataFrame) -> pd.DataFrame:
    """Of a network with very many layers those that change most."""
    most = max(CELLS_MOST // max(cells["step"].nunique(), 1), 1)
    strongest = cells.assign(size=cells["change"].abs().replace(np.inf, np.nan)).groupby("layer")["size"].max()
    kept = strongest.fillna(np.inf).nlargest(most).index
    return cells.loc[cells["layer"].isin(kept), ["layer", "layer_index", "step", "value", "reference", "shown"]]
