"""Tables -> styled HTML tables with units."""

from __future__ import annotations

import pandas as pd
from pandas.io.formats.style import Styler

from workbench.charts.theme import FONT, GRID, QUIET

VERDICT_INK = {"better": "#116329", "worse": "#b3261e", "within noise": "#57606a", "not testable": "#57606a"}
LARGE = 1000.0  # numbers that nobody reads to a thousandth
OPTIONAL = (("bits_per_byte", "bits per byte", ".3f"), ("next_token_accuracy", "next-token accuracy", ".1%"))
STYLES = [
    {"selector": "", "props": f"border-collapse:collapse;font-family:{FONT};font-size:13px;margin:4px 0 12px"},
    {
        "selector": "th",
        "props": f"text-align:left;font-weight:600;padding:4px 10px 4px 0;border-bottom:1px solid {QUIET}",
    },
    {
        "selector": "td",
        "props": f"text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid {GRID};white-space:nowrap",
    },
]


def quality_table(summary: pd.DataFrame) -> Styler:
    """`analyses.summaries.quality_summary`, a row per subset: values with intervals, changes with verdicts."""
    shown = pd.DataFrame(
        {
            "subset": summary["subset"],
            "samples / documents": [f"{n} / {d}" for n, d in zip(summary["n"], summary["documents"], strict=True)],
            "loss (nats per token)": _with_interval(summary, "loss", ".3f"),
            "perplexity": _with_interval(summary, "perplexity", ",.2f"),
        }
    )
    for column, title, form in OPTIONAL:
        if column in summary:
            shown[title] = [_text(v, form) for v in summary[column]]
    verdicts = []
    for role in ("previous", "best"):
        names = summary[f"{role}_reference"].dropna()
        if names.empty:
            continue
        column = f"change of the loss against {names.iloc[0]}"
        shown[column] = _changes(summary, role)
        verdicts.append(column)
    return _styled(shown).map(_verdict_style, subset=verdicts)


def measures_table(summary: pd.DataFrame) -> Styler:
    """A table of measures: measure, value, unit, note. Shares are shown in percent."""
    shown = pd.DataFrame(
        {
            "measure": summary["measure"],
            "value": [_measure(v, u) for v, u in zip(summary["value"], summary["unit"], strict=True)],
            "": summary["note"],
        }
    )
    return _styled(shown)


def changes_table(changed: pd.DataFrame) -> Styler:
    """Changed settings: name, before, after."""
    return _styled(changed.astype("string").fillna("not set")[["name", "before", "after"]])


def plain_table(frame: pd.DataFrame) -> Styler:
    """Any table that an analysis returns: units behind the names, few digits, missing values empty."""
    index = [n for n in frame.index.names if n is not None]
    shown = (frame.reset_index() if index else frame.reset_index(drop=True)).rename(columns=_words)
    forms = {name: f"{{:,.{_digits(shown[name])}f}}" for name in shown.select_dtypes("floating")}
    styled = shown.style.hide(axis="index").format(forms, escape="html", precision=3, thousands=",", na_rep="")
    return styled.set_table_styles(STYLES)


def _digits(column: pd.Series) -> int:
    """Digits behind the point: none of whole numbers, one of large ones."""
    known = column.dropna().astype("float64")
    if (known % 1 == 0).all():
        return 0
    return 1 if known.abs().median() >= LARGE else 3


def _words(column: object) -> str:
    """`transfer_us_per_step` -> `transfer per step, µs`."""
    name = str(column)
    for end, unit in (("_us", "µs"), ("_ns", "ns"), ("_bytes", "bytes"), ("_share", "share")):
        head, _, rest = name.partition(end)
        if (head + end + rest == name) and (not rest or rest.startswith("_per_")):
            return f"{head}{rest}, {unit}".replace("_", " ")
    return name.replace("_id", "").replace("_", " ")


def _styled(shown: pd.DataFrame) -> Styler:
    return shown.style.hide(axis="index").format(escape="html").set_table_styles(STYLES)


def _with_interval(summary: pd.DataFrame, metric: str, form: str) -> list[str]:
    columns = (summary[c] for c in (metric, f"{metric}_low", f"{metric}_high"))
    return [
        _text(v, form) + (f" ({_text(low, form)} – {_text(high, form)})" if pd.notna(low) else "")
        for v, low, high in zip(*columns, strict=True)
    ]


def _changes(summary: pd.DataFrame, role: str) -> list[str]:
    columns = (summary[f"{role}_{c}"] for c in ("change", "low", "high", "verdict"))
    return [
        "" if pd.isna(v) else f"{v:+.3f} ({_text(low, '+.3f')} to {_text(high, '+.3f')}) {word}"
        for v, low, high, word in zip(*columns, strict=True)
    ]


def _verdict_style(text: str) -> str:
    colour = next((c for word, c in VERDICT_INK.items() if text.endswith(word)), None)
    return f"color:{colour}" if colour else ""


def _measure(value: float, unit: str) -> str:
    if unit == "share":
        return f"{value:.2%}"
    number = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{number} {unit}".strip()


def _text(value: float, form: str) -> str:
    return "not a number" if pd.isna(value) else format(value, form)
