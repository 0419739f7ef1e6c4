"""The causes of a diagnosis, each with a button to its evidence and one that opens its playbook for this run."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import ipywidgets

from workbench.errors import WorkbenchError
from workbench.findings.diagnosis import Diagnosis
from workbench.findings.finding import Culprit, Finding
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.shown import html_table
from workbench.notebook_copies import fill_playbook
from workbench.widgets.sections import Text

Opened: TypeAlias = dict[tuple[str, Culprit], str]
SHOWN = 12  # causes with buttons; the rest is read in the diagnosis itself


class CauseList(ipywidgets.VBox):
    """Ranked causes, most costly first.

    Args:
        run: what was opened; a playbook gets it as its parameter.
        diagnosis: what was found.
        jump: called with the finding whose evidence is wanted.
        opened: links to playbooks that are shown already, by cause and culprit; new ones are added to it.
    """

    def __init__(
        self,
        run: Path,
        diagnosis: Diagnosis,
        jump: Callable[[Finding], None] | None = None,
        opened: Opened | None = None,
    ) -> None:
        self._run, self._jump = run, jump
        self._opened: Opened = {} if opened is None else opened
        if not diagnosis.causes:
            super().__init__([ipywidgets.HTML(diagnosis._repr_html_())])
            return
        more = len(diagnosis.causes) - SHOWN
        rest = [ipywidgets.HTML(Text(f"{more} more: wb.diagnose(run) lists all.")._repr_html_())] if more > 0 else []
        top = ipywidgets.HTML(html_table([]))
        super().__init__([top, *(self._row(f) for f in diagnosis.causes[:SHOWN]), *rest])

    def _row(self, finding: Finding) -> ipywidgets.VBox:
        text = ipywidgets.HTML(html_table([finding], has_head=False))
        link, key = ipywidgets.Output(), (finding.cause, finding.culprit)
        if key in self._opened:
            _show_words(link, self._opened[key])
        buttons = [] if self._jump is None else [_button("Show evidence", lambda _b: self._show(finding))]
        playbook = PLAYBOOKS.get(finding.playbook)
        if playbook is not None:
            word, notebook = f"Open playbook {finding.playbook}", playbook.notebook
            buttons.append(_button(word, lambda _b: self._open(notebook, key, link)))
        line = ipywidgets.HBox([*buttons, link], layout=ipywidgets.Layout(margin="0 0 8px 130px", align_items="center"))
        return ipywidgets.VBox([text, line])

    def _show(self, finding: Finding) -> None:
        if self._jump is not None:
            self._jump(finding)

    def _open(self, notebook: str, key: tuple[str, Culprit], link: ipywidgets.Output) -> None:
        self._opened[key] = _link_to(notebook, self._run)
        _show_words(link, self._opened[key])


def _button(words: str, clicked: Callable[[ipywidgets.Button], None]) -> ipywidgets.Button:
    button = ipywidgets.Button(description=words, layout=ipywidgets.Layout(width="auto"))
    button.on_click(clicked)
    return button


def _link_to(notebook: str, run: Path) -> str:
    """Write the playbook's copy beside the notebook that is open; give the link to it, or what went wrong."""
    try:
        copy = fill_playbook(notebook, run, Path.cwd())
        relative = quote(Path(os.path.relpath(copy, Path.cwd())).as_posix())
        return f"<a href='{relative}'>{html.escape(notebook)}.ipynb</a>, filled in for this run"
    except (WorkbenchError, OSError) as error:  # no such notebook, or a folder that cannot be written to
        return html.escape(str(error))


def _show_words(place: ipywidgets.Output, words: str) -> None:
    place.outputs = ({"output_type": "display_data", "data": {"text/html": words}, "metadata": {}},)
