"""A control that opens a run anew at an interval while it trains: the browser's clock asks, a button stops it."""

from __future__ import annotations

import time
from collections.abc import Callable

import ipywidgets

EVERY_S = (5, 10, 30, 60)
TICKS = 1_000_000  # more than anyone waits for


class Live(ipywidgets.HBox):
    """Play and stop buttons, an interval, and the time of the last look.

    The ticks come from the page that shows the control: where no page is open, nothing runs.

    Args:
        refresh: opens the run anew and draws.
    """

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh, self._done = refresh, 0.0
        self.play = ipywidgets.Play(min=0, max=TICKS, interval=EVERY_S[1] * 1000, show_repeat=False)
        self.every = ipywidgets.Dropdown(
            options=[(f"every {s} s", s) for s in EVERY_S], value=EVERY_S[1], layout=ipywidgets.Layout(width="110px")
        )
        self.label = ipywidgets.HTML()
        words = ipywidgets.HTML("<span style='color:#57606a'>Follow a live run</span>")
        super().__init__([words, self.play, self.every, self.label])
        self.every.observe(lambda change: setattr(self.play, "interval", change.new * 1000), "value")
        self.play.observe(lambda change: self.tick() if change.new > 0 else None, "value")

    def tick(self) -> None:
        """Refresh, unless the last refresh has just ended: ticks that queued up behind a slow one are dropped."""
        if time.monotonic() - self._done < self.every.value / 2:
            return
        self._refresh()
        self._done = time.monotonic()
        self.label.value = f"<span style='color:#57606a'>as of {time.strftime('%H:%M:%S')}</span>"
