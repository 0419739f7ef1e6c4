"""The explorer: choose a run, ranks, steps, a subset and a checkpoint; tabs of tables and charts follow."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import ipywidgets
import traitlets

from workbench.analyses.evaluation import checkpoints_in_order
from workbench.charts.theme import prepare_live_charts
from workbench.errors import WorkbenchError
from workbench.findings.diagnosis import Diagnosis, diagnose
from workbench.findings.finding import Finding
from workbench.run import Run, open_run
from workbench.widgets import sections
from workbench.widgets.boards import BoardPages
from workbench.widgets.causes import CauseList, Opened
from workbench.widgets.live import Live
from workbench.widgets.page import Page, Shown
from workbench.widgets.pickers import ALL, LAST, Pickers
from workbench.widgets.rows import Rows
from workbench.widgets.tabs import TABS, evidence_tab

BOARDS_TAB = "Boards"
TITLES = (*TABS, BOARDS_TAB)
STYLE = (
    "<style>.workbench-tabs > .lm-TabBar .lm-TabBar-tab "
    "{flex: 0 0 auto !important; min-width: 0 !important; padding: 0 9px}</style>"
)
DIAGNOSE_AFTER_S = 0.3  # so that the page is sent before the rules run


class Explorer(ipywidgets.VBox):
    """Explore a run in JupyterLab: `explorer = workbench.explore("runs/demo"); explorer`.

    Traits to read and to set: run_path, ranks, rank (the one shown alone), steps, subset, checkpoint, tab, other_path
    (the run to compare with). `tables` is what the tab on show is made of, `diagnosis` is None until the rules ran.
    """

    run_path = traitlets.Unicode()
    other_path = traitlets.Unicode()
    ranks = traitlets.Tuple()
    rank = traitlets.Int(0)
    steps = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0))
    subset = traitlets.Unicode(ALL)
    checkpoint = traitlets.Unicode(LAST)
    tab = traitlets.Unicode(TITLES[0])
    tables = traitlets.Dict()
    diagnosis = traitlets.Instance(Diagnosis, allow_none=True)

    def __init__(self, run: Run) -> None:
        prepare_live_charts()
        self.run, self._rows = run, Rows(run)
        self._other: tuple[Rows, Diagnosis] | None = None
        self._causes: CauseList | None = None
        self._playbooks: Opened = {}
        self._stale: set[str] = set()
        self._ready = False
        self._pages: dict[str, Page | BoardPages] = {}
        self._pickers = Pickers(run)
        self._live = Live(self.refresh)
        self._tabs = ipywidgets.Tab(children=[ipywidgets.VBox() for _ in TITLES], titles=list(TITLES))
        self._tabs.add_class("workbench-tabs")
        self._problem = ipywidgets.HTML()
        top = ipywidgets.HBox([self._pickers.widget])
        super().__init__([ipywidgets.HTML(STYLE), top, self._live, self._problem, self._tabs])
        self.run_path = str(run.root)
        self._link()

    def page(self, tab: str) -> Page | BoardPages:
        """What a tab shows, made when it is first asked for."""
        if tab not in self._pages:
            boards = tab == BOARDS_TAB
            made = BoardPages(self._shown, self._brushed) if boards else Page(TABS[tab], self._brushed)
            self._pages[tab] = made
            above = [self._other_picker()] if tab == "Compare" else []
            self._tabs.children[TITLES.index(tab)].children = [*above, made.widget]
        return self._pages[tab]

    def show_all_steps(self) -> None:
        """Take the filter on steps back."""
        self.steps = self._rows.steps()

    def refresh(self) -> None:
        """Open the run anew, as it may have gone on; filters stay, a range that took all steps goes on with them."""
        self._try(lambda: self._take(Rows(open_run(self.run.root, quiet=True, eager=False)), keep=True))

    def show_evidence(self, finding: Finding) -> None:
        """Go to the tab that shows a finding's evidence, at its rank and subset."""
        culprit, self._ready = finding.culprit, False  # one drawing for all three changes
        if culprit.rank in self.run.ranks:
            self.rank = culprit.rank
        if culprit.subset is not None and culprit.subset in self._pickers.subset.options:
            self.subset = culprit.subset
        self.tab = evidence_tab(finding)
        self._ready = True
        self._filter()

    def _link(self) -> None:
        pickers = self._pickers
        pickers.run.observe(self._run_chosen, "value")
        pickers.path.observe(lambda change: setattr(self, "run_path", change.new or self.run_path), "value")
        for name in ("steps", "checkpoint", "subset", "ranks", "rank"):
            traitlets.link((self, name), (getattr(pickers, name), "value"))
        pickers.all_steps.on_click(lambda _button: self.show_all_steps())
        self._tabs.observe(self._tab_clicked, "selected_index")

    def _run_chosen(self, change: Any) -> None:
        if self._ready:  # else its choices are being set, which puts the first of them forward for a moment
            self.run_path = change.new

    @traitlets.observe("run_path")
    def _open(self, _change: object) -> None:
        def opened() -> None:
            same = self.run_path == str(self.run.root)
            self._take(self._rows if same else Rows(open_run(self.run_path, quiet=True, eager=False)), keep=False)

        self._try(opened)

    @traitlets.observe("other_path")
    def _open_other(self, _change: object) -> None:
        def opened() -> None:
            run = open_run(self.other_path, quiet=True) if self.other_path else None
            self._other = None if run is None else (Rows(run), diagnose(run))
            self._filter()

        self._try(opened)

    def _take(self, rows: Rows, *, keep: bool) -> None:
        """Show a run; `keep` leaves the filters as they are where the run allows it."""
        steps, had_all = rows.steps(), self.steps == self._rows.steps() and self._ready
        had_ranks = set(self.ranks) == set(self.run.ranks)
        samples = rows.tables(["eval_samples"], steps).get("eval_samples")
        checkpoints = [] if samples is None else checkpoints_in_order(samples)[::-1]
        subsets = rows.subsets()
        self._ready = False
        self.run, self._rows = rows.run, rows
        self._pickers.show_run(rows.run)
        ranks = tuple(rows.run.ranks)
        chosen = self.ranks if keep and not had_ranks else ranks
        first, last = (self.steps[0], steps[1] if had_all else self.steps[1]) if keep else steps
        self._pickers.offer(list(ranks), steps, checkpoints, subsets)
        self.ranks, self.steps = chosen, (max(first, steps[0]), last)
        if not keep:
            self.checkpoint, self.subset, self.rank = LAST, ALL, ranks[0] if ranks else 0
            self.diagnosis, self._causes, self._playbooks = None, None, {}
        self._ready = True
        self._filter()
        _soon(lambda: self._diagnose(rows))

    def _diagnose(self, rows: Rows) -> None:
        """Run the rules on what was opened, unless something else was opened meanwhile."""

        def diagnosed() -> None:
            self.diagnosis = diagnose(rows.run)
            self._causes = CauseList(rows.run.root, self.diagnosis, self.show_evidence, self._playbooks)
            self._stale |= {"Overview", "Compare"}
            self._draw()

        if rows is self._rows:
            self._try(diagnosed)

    @traitlets.observe("ranks", "rank", "steps", "subset", "checkpoint")
    def _filter(self, _change: object = None) -> None:
        if self._ready:
            self._stale = set(TITLES)
            self._draw()

    @traitlets.observe("tab")
    def _draw(self, _change: object = None) -> None:
        self._tabs.selected_index = TITLES.index(self.tab)
        if not self._ready or self.tab not in self._stale:
            return
        self._stale.discard(self.tab)
        page = self.page(self.tab)
        if isinstance(page, BoardPages):
            page.draw()
            return
        shown = self._shown(TABS[self.tab].tables)
        self.tables = shown.tables
        page.draw(shown)

    def _shown(self, names: tuple[str, ...]) -> Shown:
        other = None
        if self._other is not None:
            rows, diagnosis = self._other
            steps = rows.steps() if self.steps == self._rows.steps() else self.steps
            other = Shown(rows, names, ranks=(), steps=steps, diagnosis=diagnosis)
        return Shown(
            self._rows, names, ranks=self.ranks, steps=self.steps, rank=self.rank,
            subset=None if self.subset == ALL else self.subset,
            checkpoint=None if self.checkpoint == LAST else self.checkpoint,
            diagnosis=self.diagnosis, causes=self._causes, other=other,
        )  # fmt: skip

    def _other_picker(self) -> ipywidgets.Combobox:
        control = ipywidgets.Combobox(
            options=[path for _name, path in self._pickers.run.options if path != self.run_path],
            placeholder="path of a second run", description="With", continuous_update=False,
            layout=ipywidgets.Layout(width="700px"),
        )  # fmt: skip
        traitlets.link((self, "other_path"), (control, "value"))
        return control

    def _try(self, action: Callable[[], None]) -> None:
        """Do it, or say why it cannot be done and leave what is shown."""
        try:
            action()
        except WorkbenchError as error:
            self._problem.value = sections.Text(str(error), quiet=False)._repr_html_()
            return
        except Exception as error:  # also what is done later, where nobody would see it
            self._problem.value = sections.Text(f"{type(error).__name__}: {error}", quiet=False)._repr_html_()
            raise
        self._problem.value = ""

    def _tab_clicked(self, change: Any) -> None:
        self.tab = TITLES[change.new]

    def _brushed(self, first: float, last: float) -> None:
        self.steps = (round(first), max(round(last), round(first) + 1))


def explore(run: Run | str | os.PathLike[str]) -> Explorer:
    """The explorer of a run, to be shown as the last line of a cell in JupyterLab.

    Args:
        run: an opened run, or a path to open.
    """
    return Explorer(run if isinstance(run, Run) else open_run(run, quiet=True, eager=False))


def _soon(action: Callable[[], None]) -> None:
    """Do it once the page has been sent, where a loop runs (in a kernel); else now."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        action()
    else:
        loop.call_later(DIAGNOSE_AFTER_S, action)
