"""Three boards of a run: training quality, resource efficiency, data health; in the explorer, or alone and live."""

from __future__ import annotations

import os
from collections.abc import Callable

import ipywidgets
import traitlets

from workbench.charts.theme import prepare_live_charts
from workbench.errors import UnknownParameterError, WorkbenchError
from workbench.run import Run, open_run
from workbench.widgets.live import Live
from workbench.widgets.page import Page, Shown
from workbench.widgets.rows import Rows
from workbench.widgets.sections import Text
from workbench.widgets.slot import Brushed
from workbench.widgets.tabs import BOARDS


class BoardPages:
    """The boards behind a row of buttons.

    Args:
        shown: gives what is on show, for the tables of a board.
        brushed: called with first and last step when the user drags over a chart with steps.
    """

    def __init__(self, shown: Callable[[tuple[str, ...]], Shown], brushed: Brushed | None = None) -> None:
        self._shown = shown
        self.pages = {name: Page(tab, brushed) for name, tab in BOARDS.items()}
        self.choice = ipywidgets.ToggleButtons(options=list(BOARDS))
        self._place = ipywidgets.VBox()
        self.widget = ipywidgets.VBox([self.choice, self._place])
        self.choice.observe(lambda _change: self.draw(), "value")

    def draw(self) -> None:
        """Draw the chosen board."""
        page = self.pages[self.choice.value]
        self._place.children = [page.widget]
        page.draw(self._shown(BOARDS[self.choice.value].tables))


class Board(ipywidgets.VBox):
    """One board of a run, which can follow the run while it trains: `Board("runs/demo", "Training quality")`.

    Args:
        run: an opened run, or a path to open.
        board: one of BOARDS.

    Raises:
        UnknownParameterError: there is no such board.
    """

    steps = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0))

    def __init__(self, run: Run | str | os.PathLike[str], board: str) -> None:
        if board not in BOARDS:
            raise UnknownParameterError(f"There is no board {board!r}.", fix=f"use one of {', '.join(BOARDS)}")
        prepare_live_charts()
        self._tab = BOARDS[board]
        self._rows = Rows(run if isinstance(run, Run) else open_run(run, quiet=True, eager=False))
        self.page = Page(self._tab, self._brushed)
        self._live = Live(self.refresh)
        self._all = ipywidgets.Button(description="All steps", layout=ipywidgets.Layout(width="100px"))
        self._all.on_click(lambda _button: self.show_all_steps())
        super().__init__([ipywidgets.HBox([self._live, self._all]), self.page.widget])
        self.show_all_steps()

    def show_all_steps(self) -> None:
        """Take the filter on steps back."""
        self.steps = self._rows.steps()
        self._draw()

    def refresh(self) -> None:
        """Open the run anew and draw; a range that took all steps goes on with them."""
        had_all = self.steps == self._rows.steps()
        try:
            self._rows = Rows(open_run(self._rows.run.root, quiet=True, eager=False))
        except WorkbenchError as error:  # the run's directory went away while it was followed
            self.page.note.value = Text(str(error), quiet=False)._repr_html_()
            return
        self.show_all_steps() if had_all else self._draw()

    def _brushed(self, first: float, last: float) -> None:
        self.steps = (round(first), max(round(last), round(first) + 1))
        self._draw()

    def _draw(self) -> None:
        ranks = tuple(self._rows.run.ranks)
        rank = ranks[0] if ranks else 0
        self.page.draw(Shown(self._rows, self._tab.tables, ranks=ranks, steps=self.steps, rank=rank))
