"""The causes of a diagnosis, each with a button to its evidence and one that opens its playbook for this run."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import ipywidgets

from workbench.errors import WorkbenchError
from workbench.findings.diagnosis import Diagnosis
from workbench.findings.finding import Finding
from workbench.findings.playbooks import PLAYBOOKS
from workbench.findings.shown import as_html_row
from workbench.notebook_copies import fill_playbook
from workbench.widgets.sections import Text

SHOWN = 12  # causes with buttons; the rest is read in the diagnosis itself
TABLE = "table-layout:fixed;width:100%"
COLUMNS = "<colgroup><col style='width:130px'><col><col style='width:80px'><col style='width:32%'></colgroup>"


class CauseList(ipywidgets.VBox):
    """Ranked causes, most costly first.

    Args:
        run: what was opened; a playbook gets it as its parameter.
        diagnosis: what was found.
        jump: called with the finding whose evidence is wanted.
    """

    def __init__(self, run: Path, diagnosis: Diagnosis, jump: Callable[[Finding], None] | None = None) -> None:
        self._run, self._jump = run, jump
        if not diagnosis.causes:
            super().__init__([ipywidgets.HTML(diagnosis._repr_html_())])
            return
        more = len(diagnosis.causes) - SHOWN
        rest = [ipywidgets.HTML(Text(f"{more} more: wb.diagnose(run) lists all.")._repr_html_())] if more > 0 else []
        super().__init__([*(self._row(f) for f in diagnosis.causes[:SHOWN]), *rest])

    def _row(self, finding: Finding) -> ipywidgets.VBox:
        text = ipywidgets.HTML(f"<table style='{TABLE}'>{COLUMNS}{as_html_row(finding)}</table>")
        link = ipywidgets.Output()
        buttons = [] if self._jump is None else [_button("Show evidence", lambda _b: self._show(finding))]
        playbook = PLAYBOOKS.get(finding.playbook)
        if playbook is not None:
            word, notebook = f"Open playbook {finding.playbook}", playbook.notebook
            buttons.append(_button(word, lambda _b: _link_to(notebook, self._run, link)))
        line = ipywidgets.HBox([*buttons, link], layout=ipywidgets.Layout(margin="0 0 8px 130px", align_items="center"))
        return ipywidgets.VBox([text, line])

    def _show(self, finding: Finding) -> None:
        if self._jump is not None:
            self._jump(finding)


def _button(words: str, clicked: Callable[[ipywidgets.Button], None]) -> ipywidgets.Button:
    button = ipywidgets.Button(description=words, layout=ipywidgets.Layout(width="auto"))
    button.on_click(clicked)
    return button


def _link_to(notebook: str, run: Path, place: ipywidgets.Output) -> None:
    """Write the playbook's copy beside the notebook that is open, and show the link that Lab follows to it."""
    try:
        copy = fill_playbook(notebook, run, Path.cwd())
        relative = quote(Path(os.path.relpath(copy, Path.cwd())).as_posix())
        words = f"<a href='{relative}'>{html.escape(notebook)}.ipynb</a>, filled in for this run"
    except (WorkbenchError, OSError) as error:  # no such notebook, or a folder that cannot be written to
        words = html.escape(str(error))
    place.outputs = ({"output_type": "display_data", "data": {"text/html": words}, "metadata": {}},)
