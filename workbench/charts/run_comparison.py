"""Two runs -> charts of them in one picture."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from workbench.charts.theme import BLUE, ORANGE, QUIET, RED, AnyChart, empty_chart

BARS_WIDTH = 600  # of the plot: the names of the parts stand beside it
SEEN_SHARE = 0.001  # of a step: smaller parts cannot be seen


def courses_chart(rows: pd.DataFrame, column: str, *, title: str, unit: str, onset: int | None = None) -> AnyChart:
    """A line per run over steps (as `run_comparison.courses` returns); a dashed line at step `onset`."""
    if rows.empty:
        return empty_chart(title, f"no step has a {column}")
    y = alt.Y(f"{column}:Q", title=unit, scale=alt.Scale(zero=False))
    x = alt.X("step:Q", title="step", scale=alt.Scale(nice=False))
    tooltip = ["run:N", "step:Q", alt.Tooltip(f"{column}:Q", format=".4f")]
    lines = alt.Chart(rows).mark_line(strokeWidth=1.3).encode(x, y, color=_colour(rows), tooltip=tooltip)
    if onset is None:
        return lines.properties(title=title)
    mark = alt.Chart(pd.DataFrame({"step": [onset]})).mark_rule(color=RED, strokeDash=[5, 4]).encode(x)
    named = alt.TitleParams(title, subtitle=f"dashed: step {onset}, where the fault begins", subtitleColor=QUIET)
    return alt.layer(lines, mark).properties(title=named)


def parts_chart(
    rows: pd.DataFrame,
    words: Mapping[str, str],
    *,
    title: str = "Where a mean step's time goes",
    unit: str = "time per step (ms)",
) -> AnyChart:
    """Parts of a mean step of two runs, a pair of bars per part.

    Args:
        rows: run, part, us_per_step.
        words: what a part is called on the chart; others keep their name.
        title: of the chart.
        unit: title of the axis, where the times are those of something else than a step.
    """
    largest = rows.groupby("part")["us_per_step"].max()
    seen = largest[largest > SEEN_SHARE * float(rows["us_per_step"].sum())].sort_values(ascending=False)
    if seen.empty:
        return empty_chart(title)
    order = [words.get(p, p) for p in seen.index]
    own = rows[rows["part"].isin(seen.index)]
    shown = own.assign(part=own["part"].replace(dict(words)), ms=own["us_per_step"] / 1e3)
    return (
        alt.Chart(shown[["run", "part", "ms"]], title=title)
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title=unit),
            y=alt.Y("part:N", title=None, sort=order),
            yOffset=alt.YOffset("run:N", sort=_runs(rows)),
            color=_colour(rows),
            tooltip=["run:N", "part:N", alt.Tooltip("ms:Q", format=",.3f")],
        )
        .properties(width=BARS_WIDTH, height=alt.Step(14))
    )


def _colour(rows: pd.DataFrame) -> alt.Color:
    scale = alt.Scale(domain=_runs(rows), range=[BLUE, ORANGE])
    return alt.Color("run:N", title=None, scale=scale, legend=alt.Legend(orient="top"))


def _runs(rows: pd.DataFrame) -> list[str]:
    """The runs in the order of the table."""
    return rows["run"].drop_duplicates().tolist()
