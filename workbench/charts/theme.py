"""One look for all charts, and showing them without internet access."""

from __future__ import annotations

import contextlib
import os
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

import altair as alt
import pandas as pd
import vl_convert as vlc

from workbench.cache import user_cache
from workbench.errors import UnknownParameterError
from workbench.files import write_atomic

HEIGHT = 200
WIDTHS = {
    "workbench": 690,
    "workbench page": 920,
}  # of the plot, by theme: beside Lab's file browser; on a page; 1280 px
LOG_TICKS = [m * 10.0**k for k in range(-12, 16) for m in (1, 2, 5)]
LOG_TICKS_LEAST = 2  # with fewer in view an axis has no scale that could be read
FONT = "'Noto Sans', 'Helvetica Neue', Arial, 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
INK, QUIET, GRID = "#24292f", "#57606a", "#e6e8eb"

# Okabe and Ito's colours, told apart with any colour vision; yellow is left out, it is lost on white.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c959f",
)  # fmt: skip
SERIES = [BLUE, ORANGE, GREEN, PURPLE, RED, SKY, GREY]

AnyChart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart
Target = Literal["auto", "lab", "static"]
STATIC_RENDERER = "workbench_static"
TARGET_VARIABLE = "WORKBENCH_CHARTS"  # "lab" or "static"; set for the kernels of archived reports


def enable_offline(target: Target = "auto") -> str:
    """Show charts in this session with the workbench's look and without internet access.

    Args:
        target: "lab" for live charts in JupyterLab; "static" for pages that are archived: each chart becomes a picture
            (SVG) beside its Vega-Lite description. "auto" takes what the variable `WORKBENCH_CHARTS` says, else "lab"
            in a kernel that a Jupyter server started for a notebook, else "static".

    Returns:
        The target that was chosen.
    """
    chosen = _chosen(target)
    if chosen == "lab":
        prepare_live_charts()
        alt.renderers.enable("jupyter", offline=True)
    else:
        alt.theme.register("workbench page", enable=True)(lambda: look(WIDTHS["workbench page"]))
        alt.renderers.register(STATIC_RENDERER, static_bundle)
        alt.renderers.enable(STATIC_RENDERER)
    return chosen


def are_static() -> bool:
    """Whether charts of this session are pictures: nobody can press a button on such a page."""
    return bool(alt.renderers.active == STATIC_RENDERER)


def prepare_live_charts() -> None:
    """Give `alt.JupyterChart` the workbench's look and its scripts, so that it loads none."""
    alt.theme.register("workbench", enable=True)(lambda: look(WIDTHS["workbench"]))
    if alt.JupyterChart._is_offline:
        return
    alt.JupyterChart._esm, alt.JupyterChart._is_offline = chart_scripts(), True


def chart_scripts() -> str:
    """The scripts that draw live charts; bundled once per user, which takes a second or two, and kept."""
    kept = user_cache() / f"charts-{alt.__version__}-{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="utf-8")
    alt.JupyterChart.enable_offline()
    scripts = str(alt.JupyterChart._esm)
    with contextlib.suppress(OSError):  # a folder that cannot be written to: bundled again the next time
        write_atomic(kept, scripts.encode())
    return scripts


def static_bundle(spec: dict[str, Any], **_options: object) -> dict[str, Any]:
    """A chart's description together with its picture, by MIME type."""
    return {"application/vnd.vegalite.v6+json": spec, "image/svg+xml": vlc.vegalite_to_svg(spec)}


def swatches(**options: Any) -> alt.Legend:
    """A legend of squares for a colour scale: the gradients of several SVG charts on a page have one id, and mix up."""
    return alt.Legend(type="symbol", symbolType="square", **options)


def empty_chart(title: str, words: str = "nothing recorded") -> alt.Chart:
    """A chart that says that there is nothing to draw: axes without data have sizes beyond all numbers."""
    text = alt.Chart(alt.Data(values=[{"words": words}]), title=title).mark_text(color=QUIET, fontSize=13)
    return text.encode(text="words:N").properties(height=60)


def half_width() -> int:
    """Width of the plots of two charts side by side, in the theme that is on."""
    return WIDTHS.get(alt.theme.active, WIDTHS["workbench"]) // 2 - 40


def look(width: int) -> alt.theme.ThemeConfig:
    """The theme: quiet axes, text that can be read at 1280 px, colours for any colour vision, fonts with CJK."""
    text = {"labelFont": FONT, "titleFont": FONT, "labelColor": QUIET, "titleColor": INK}
    sizes = {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"}
    title = {"font": FONT, "fontSize": 15, "fontWeight": 600, "anchor": "start", "color": INK}
    config: dict[str, Any] = {
        "background": "white",
        "font": FONT,
        "view": {"continuousWidth": width, "continuousHeight": HEIGHT, "discreteWidth": width, "stroke": None},
        "axis": {**text, **sizes, "gridColor": GRID, "domainColor": GREY, "tickColor": GREY, "labelLimit": 240},
        "axisX": {"grid": False, "labelOverlap": "greedy", "labelSeparation": 8},
        "legend": {**text, **sizes, "labelLimit": 240, "symbolOpacity": 1, "orient": "top", "titleOrient": "left"},
        "header": {**text, **sizes},
        "title": {**title, "subtitleFont": FONT, "subtitleFontSize": 12, "subtitleColor": QUIET},
        "line": {"strokeWidth": 1.8},
        "range": {"category": SERIES, "heatmap": {"scheme": "cividis"}, "ordinal": {"scheme": "cividis"}},
    }
    return alt.theme.ThemeConfig(config=config)  # type: ignore[typeddict-item]


def _chosen(target: str) -> str:
    if target == "auto":
        target = os.environ.get(TARGET_VARIABLE) or ("lab" if "JPY_SESSION_NAME" in os.environ else "static")
    if target not in ("lab", "static"):
        raise UnknownParameterError(f"{target!r} is no target for charts.", fix="use 'auto', 'lab' or 'static'")
    return target


def log_axis(values: pd.Series) -> alt.Axis:
    """Axis of a log scale over positive `values`: ticks at 1, 2, 5, or even ones where too few of those are in view."""
    low, high = values.min(), values.max()
    inside = sum(low <= tick <= high for tick in LOG_TICKS)
    return alt.Axis(format=",~r", tickCount=5) if inside < LOG_TICKS_LEAST else alt.Axis(values=LOG_TICKS, format="~g")
