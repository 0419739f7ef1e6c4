"""Tables of the post-training evaluation -> charts and tables: problem rates, variants, diversity, instructions."""

from __future__ import annotations

import altair as alt
import pandas as pd
from pandas.io.formats.style import Styler

from workbench.charts.tables import STYLES
from workbench.charts.theme import BLUE, QUIET, AnyChart, empty_chart

EXAMPLE_CHARACTERS = 300


def rates_chart(rates: pd.DataFrame) -> AnyChart:
    """Share of texts that break each rule with its interval, per subset and checkpoint (as `problem_rates` returns)."""
    title = "Texts that break a rule"
    if rates.empty:
        return empty_chart(title)
    shown = rates.assign(state=_states(rates))
    return _intervals(
        shown, value="rate", y="rule", colour="state", row="subset", x_title="share of texts", title=title,
        subtitle="line: 95 % interval over prompts", x_format=".0%",
    )  # fmt: skip


def variant_chart(changes: pd.DataFrame, *, title: str) -> AnyChart:
    """Change of the loss per variant with its interval, per subset and checkpoint (as `variant_changes` returns)."""
    if changes.empty:
        return empty_chart(title)
    shown = changes.assign(state=_states(changes), rate=changes["change"])
    return _intervals(
        shown, value="change", y="variant", colour="state", row="subset",
        x_title="change of the loss on the same targets (nats per token)", title=title,
        subtitle="line: 95 % interval over documents; right of 0: harder to predict", x_format=".2f", zero=True,
    )  # fmt: skip


def instruction_chart(rates: pd.DataFrame) -> AnyChart:
    """Share of instructions followed with its interval (as `instruction_rates` returns)."""
    title = "Instructions that are followed"
    if rates.empty:
        return empty_chart(title)
    shown = rates.assign(state=_states(rates))
    return _intervals(
        shown, value="rate", y="kind", colour="state", row="subset", x_title="share of instructions", title=title,
        subtitle="line: 95 % interval over prompts", x_format=".0%",
    )  # fmt: skip


def diversity_table(found: pd.DataFrame) -> Styler:
    """Diversity per checkpoint, subset and temperature (as `diversity` returns), with intervals."""
    cells = [
        f"{v:.3f}" + ("" if pd.isna(low) else f" ({low:.3f} – {high:.3f})")
        for v, low, high in zip(found["value"], found["low"], found["high"], strict=True)
    ]
    shown = found.assign(cell=cells, temperature=found["temperature"].map(lambda t: "" if pd.isna(t) else f"{t:g}"))
    table = shown.pivot_table(
        index=["checkpoint", "subset", "temperature", "prompts", "texts"], columns="measure", values="cell",
        aggfunc="first", dropna=False,
    ).dropna(how="all").reset_index()  # fmt: skip
    table = table.astype("object").where(table.notna(), "")
    table.columns = [str(c).replace("_", " ") for c in table.columns]
    return table.style.hide(axis="index").format(escape="html").set_table_styles(STYLES)


def examples_table(examples: pd.DataFrame) -> Styler:
    """Worst examples (as `worst_examples` returns): prompt and output, their ends."""
    shown = pd.DataFrame(
        {
            "checkpoint": examples["checkpoint"].fillna(""),
            "subset": examples["subset"],
            "prompt": examples["prompt"].fillna("").map(_end),
            "output": examples["output"].map(_end),
            "what": examples["wrong"].fillna("").map(lambda t: repr(t[:60]) if t else ""),
        }
    )
    table = shown.style.hide(axis="index").format(escape="html").set_table_styles(STYLES)
    return table.set_properties(
        subset=["prompt", "output"], **{"white-space": "pre-wrap", "max-width": "340px", "font-family": "monospace"}
    )


def _end(text: str) -> str:
    """The end of a text, with what does not print made visible: a page must be able to hold it."""
    clean = "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
    return clean if len(clean) <= EXAMPLE_CHARACTERS else "…" + clean[-EXAMPLE_CHARACTERS:]


def _states(rows: pd.DataFrame) -> pd.Series:
    step = rows["step"].map(lambda s: "" if pd.isna(s) else f"step {s}")
    return step.where(step != "", rows["checkpoint"].fillna("the model")).astype(str)


def _intervals(
    rows: pd.DataFrame, *, value: str, y: str, colour: str, row: str, x_title: str, title: str, subtitle: str,
    x_format: str, zero: bool = False,
) -> AnyChart:  # fmt: skip
    drawn = alt.Chart(rows[[y, colour, row, value, "low", "high"]])
    offset = alt.YOffset(f"{colour}:N", sort=rows[colour].drop_duplicates().tolist())
    order = rows[y].drop_duplicates().tolist()
    colours = alt.Color(f"{colour}:N", title=None, sort=rows[colour].drop_duplicates().tolist())
    base = drawn.encode(y=alt.Y(f"{y}:N", title=None, sort=order), yOffset=offset, color=colours)
    numbers = [alt.Tooltip(f"{c}:Q", format=".4f") for c in (value, "low", "high")]
    axis = alt.Axis(format=x_format, tickCount=8)
    lines = base.mark_rule(strokeWidth=2).encode(alt.X("low:Q", title=x_title, axis=axis), alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=alt.X(f"{value}:Q", title=x_title, axis=axis), tooltip=[f"{y}:N", f"{colour}:N", *numbers]
    )
    layers = [lines, points]
    if zero:
        layers.insert(0, drawn.mark_rule(color=BLUE, strokeDash=[3, 3]).encode(x=alt.datum(0.0)))
    states = rows[colour].nunique()
    chart = alt.layer(*layers).properties(height=alt.Step(max(10 * states, 18)))
    header = alt.Header(orient="top", labelAnchor="start", labelColor=QUIET)
    facets = chart.facet(row=alt.Row(f"{row}:N", title=None, header=header)).resolve_scale(y="independent")
    return facets.properties(title=alt.TitleParams(title, subtitle=subtitle))
