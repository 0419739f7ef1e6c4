"""A report: one notebook run for one checkpoint, its executed copy, its page, and the findings that it left.

The notebook runs in a process of its own, which ends when the caller does; nothing is left running after a kill.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from workbench.errors import ReportFailedError, UnknownParameterError, UnreadableFileError
from workbench.files import write_json_atomic
from workbench.findings.finding import Finding
from workbench.processes import Outcome, run_child

FINDINGS_SCHEMA = 1
EXECUTION_MODULE = "workbench.reporting.execution"  # by name: a watcher needs no papermill
EXIT_UNKNOWN_PARAMETER = 4
EXIT_NOTEBOOK_RAISED = 5


class Failure(msgspec.Struct):
    """What the process that ran a notebook says on its last line when it fails."""

    problem: str
    fix: str


class Rendering(NamedTuple):
    """A notebook that was run: whether it raised (and why), and the process that ran it."""

    failure: Failure | None
    outcome: Outcome


def render_report(notebook: Path, output: Path, /, **parameters: object) -> Path:
    """Run `notebook` in its folder with these parameters and write its executed copy to `output`.

    Args:
        notebook: a notebook with a cell tagged `parameters`.
        output: where the executed copy goes; it is kept when a cell raises.
        **parameters: values for names that the parameters cell declares (text, numbers, lists, None).

    Returns:
        `output`.

    Raises:
        UnknownParameterError: a name that the notebook does not declare; the message lists the declared ones.
        ReportFailedError: a cell raised; `output` shows where.
    """
    rendering = run_notebook(notebook, output, parameters)
    if rendering.failure is not None:
        raise ReportFailedError(rendering.failure.problem, fix=rendering.failure.fix)
    return output


def run_notebook(
    notebook: Path,
    output: Path,
    parameters: dict[str, Any],
    *,
    page: Path | None = None,
    title: str | None = None,
    index_href: str | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Rendering:
    """Like `render_report`, but a cell that raises is a result; with `page`, the HTML page is written as well.

    Raises:
        UnknownParameterError: a name that the notebook does not declare.
    """
    job = {
        "notebook": str(notebook.resolve()),
        "output": str(output.resolve()),
        "page": None if page is None else str(page.resolve()),
        "title": title,
        "index_href": index_href,
        "parameters": parameters,
    }
    outcome = run_child([sys.executable, "-m", EXECUTION_MODULE, msgspec.json.encode(job).decode()], tick=tick)
    if outcome.status == 0:
        return Rendering(None, outcome)
    failure = _failure(outcome)
    if outcome.status == EXIT_UNKNOWN_PARAMETER:
        raise UnknownParameterError(failure.problem, fix=failure.fix)
    return Rendering(failure, outcome)


def save_findings(findings: Iterable[Finding], path: Path | str) -> None:
    """Write findings beside a report, ranked as given. Called in the last cell of a report notebook."""
    write_json_atomic(Path(path), {"schema": FINDINGS_SCHEMA, "findings": [f.to_dict() for f in findings]})


def read_findings(path: Path) -> list[dict[str, Any]]:
    """The findings that a report left; empty where it left no file.

    Raises:
        UnreadableFileError: the file is damaged.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        return list(content["findings"])
    except FileNotFoundError:
        return []
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError):
        raise UnreadableFileError(f"{path} is damaged.", fix="render the report again with --retry") from None


def _failure(outcome: Outcome) -> Failure:
    try:
        return msgspec.json.decode(outcome.last_line.encode(), type=Failure)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Failure(problem=outcome.reason, fix="read the lines in evaluation.log, then report again with --retry")
