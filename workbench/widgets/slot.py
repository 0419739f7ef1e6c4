"""A place on a page that shows one thing after another: a chart, a table, a line of text, a widget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import ipywidgets
import pandas as pd

from workbench.charts.tables import plain_table

BRUSH = "brush"
BRUSH_WAIT_MS = 400  # after the last movement: each redraw costs the kernel some tenths of a second
Brushed = Callable[[float, float], None]


class Slot:
    """Shows what `show` gets. The chart widget is kept and given new charts, as each carries the scripts it draws with.

    Args:
        brushed: called with first and last step when the user drags over the chart; None for charts without.
    """

    def __init__(self, *, brushed: Brushed | None = None) -> None:
        self._brushed = brushed
        self._text = ipywidgets.HTML(layout=ipywidgets.Layout(overflow="auto"))
        self._chart: alt.JupyterChart | None = None
        self.widget = ipywidgets.VBox([self._text])

    def show(self, part: Any) -> None:
        """Show a chart, a widget, or anything else that has an HTML form."""
        self.widget.layout.display = ""
        if isinstance(part, alt.TopLevelMixin):
            self._show_chart(part)
        elif isinstance(part, ipywidgets.Widget):
            self.widget.children = [part]
        elif isinstance(part, pd.DataFrame):
            self.show(plain_table(part))
        else:
            self._text.value = part._repr_html_()
            self.widget.children = [self._text]

    def hide(self) -> None:
        """Show nothing, and take no room."""
        self.widget.layout.display = "none"

    def _show_chart(self, chart: Any) -> None:
        if self._brushed is not None:
            chart = chart.add_params(alt.selection_interval(name=BRUSH, encodings=["x"]))
        if self._chart is None:
            self._chart = alt.JupyterChart(chart, debounce_wait=BRUSH_WAIT_MS, max_wait=False)  # not while dragging
        else:
            self._chart.chart = chart
        if self._brushed is not None:
            self._chart.selections.observe(self._selected, BRUSH)
        self.widget.children = [self._chart]

    def _selected(self, change: Any) -> None:
        steps = (change.new.value or {}).get("step")
        if steps and self._brushed is not None:
            self._brushed(min(steps), max(steps))
